"""Local updates on their way: in order, under which log id, and what an answer means for them.

Pure: time, chance and ids are arguments. A room asks what to send, sends it, and tells what came
back. A log id names one byte string: what was sent once keeps its id and bytes until it is ACKed;
only what was never sent may be merged.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lorogo_client.delivery.retry_policy import ReplyAction, backoff, decide
from lorogo_client.settings import ClientSettings
from lorogo_protocol.digest import digest
from lorogo_protocol.replies import Ack, Nack, Reply

MERGED_BYTES_MAX = 8 * 1024  # of commits that become one update: about a hundred keystrokes
_SETTLED_MAX = 4096  # own log ids that are remembered to recognise their accepted copies


@dataclass(slots=True)
class OutgoingUpdate:
    """An update that has its log id."""

    log_id: str
    payload: bytes
    digest: str
    first: int  # the local commits that it holds
    last: int
    attempts: int = 0  # how often it was sent whole
    due: float = 0.0  # when to send it, or send it again; when we stop waiting for the answer, if it was sent
    sent_at: float = 0.0
    plain: bool = False  # the bytes are those of one commit, as it was made
    stored: bool = False  # the local store knows this id with these bytes
    unheard: bool = False  # an answer to it did not come in time


@dataclass(frozen=True, slots=True)
class QueuedCommit:
    """A commit, or several merged, that was never sent."""

    commit: int  # the first of them
    payload: bytes
    log_id: str = ""  # given to it when it was made, because it was to be sent at once


class Outbox:
    """The updates of one replica that no owner has confirmed."""

    def __init__(self, settings: ClientSettings, *, remembered_max: int = _SETTLED_MAX) -> None:
        self._settings = settings
        self._remembered_max = remembered_max
        self._queue: deque[QueuedCommit] = deque()
        self._queue_bytes = 0
        self._flights: OrderedDict[str, OutgoingUpdate] = OrderedDict()  # oldest first
        self._flight_bytes = 0
        self._waiting: OrderedDict[str, OutgoingUpdate] = OrderedDict()  # for an answer; longest first
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._commits = 0

    # --- what is in it

    @property
    def commits(self) -> int:
        """The number of the newest local commit."""
        return self._commits

    @property
    def empty(self) -> bool:
        """Whether every local commit is ACKed."""
        return not self._queue and not self._flights

    @property
    def unsaved(self) -> int:
        """How many updates are not ACKed."""
        return len(self._queue) + len(self._flights)

    @property
    def queued(self) -> bool:
        """Whether something was never sent."""
        return bool(self._queue)

    @property
    def resting(self) -> bool:
        """Whether nothing is to be sent: all that is here was, and waits for its answer."""
        return not self._queue and len(self._waiting) == len(self._flights)

    @property
    def unsaved_bytes(self) -> int:
        return self._queue_bytes + self._flight_bytes

    @property
    def full(self) -> bool:
        """Whether no further commit should be made before something is ACKed."""
        return self.unsaved_bytes >= self._settings.unsent_bytes_max

    def saved_through(self, commit: int) -> bool:
        """Whether that commit and all before it are ACKed."""
        if self._queue and self._queue[0].commit <= commit:
            return False
        return all(flight.first > commit for flight in self._flights.values())

    def owns(self, log_id: str) -> bool:
        """Whether an accepted update is one of ours, so that it need not be imported."""
        return log_id in self._flights or log_id in self._settled

    def flying(self, log_id: str) -> bool:
        """Whether that update is not ACKed, and not replaced."""
        return log_id in self._flights

    def payloads(self) -> Iterator[bytes]:
        """Every update that is not ACKed, oldest first."""
        yield from (flight.payload for flight in self._flights.values())
        yield from (queued.payload for queued in self._queue)

    def entries(self) -> Iterator[tuple[int, int, str, bytes]]:
        """Every update that is not ACKed, oldest first: its commits, its log id ("": none), its bytes."""
        for flight in self._flights.values():
            yield flight.first, flight.last, flight.log_id, flight.payload
        ends = [queued.commit - 1 for queued in self._queue][1:]
        for queued, last in zip(self._queue, [*ends, self._commits], strict=False):
            yield queued.commit, last, queued.log_id, queued.payload

    def stored(self) -> None:
        """The local store knows everything as it is now."""
        for flight in self._flights.values():
            flight.stored = True

    # --- what comes in

    def restore(
        self, sent: Iterable[tuple[int, int, str, bytes]], unsent: Iterable[tuple[int, bytes]], commits: int
    ) -> None:
        """Begin with what a store kept: what may have been sent, and what surely was not."""
        for first, last, log_id, payload in sent:
            self._fly(OutgoingUpdate(log_id, payload, digest(payload), first, last, stored=True))
        for commit, payload in unsent:
            self._queue.append(QueuedCommit(commit, payload))
            self._queue_bytes += len(payload)
        self._commits = commits

    def add(self, payload: bytes, log_id: str = "") -> int:
        """Take a local commit; returns its number. Never refuses: the bytes are in the document."""
        self._commits += 1
        self._queue.append(QueuedCommit(self._commits, payload, log_id))
        self._queue_bytes += len(payload)
        return self._commits

    def merge(self, join: Callable[[Sequence[bytes]], bytes]) -> None:
        """Make fewer updates of what was never sent, each small enough for an owner to take.

        An owner refuses one update of many operations where it takes several (docs/PROTOCOL.md).
        """
        if len(self._queue) < 2:
            return
        groups: list[list[QueuedCommit]] = [[]]
        size, bytes_max = 0, min(MERGED_BYTES_MAX, self._settings.update_bytes_max)
        for queued in self._queue:
            if groups[-1] and size + len(queued.payload) > bytes_max:
                groups.append([])
                size = 0
            groups[-1].append(queued)
            size += len(queued.payload)
        self._queue.clear()
        self._queue_bytes = 0
        for group in groups:
            # a merged update is known by its first commit: who waits for any of them waits for all
            merged = group[0]
            if len(group) > 1:
                merged = QueuedCommit(merged.commit, join([one.payload for one in group]))
            self._queue.append(merged)
            self._queue_bytes += len(merged.payload)

    def replace(
        self, payloads: Sequence[bytes], new_id: Callable[[], str], *, now: float, jitter: float
    ) -> list[OutgoingUpdate]:
        """Updates that together hold everything which is not ACKed, instead of what was here.

        If what was here had been sent, they go out after a pause: else an owner that keeps saying no
        would be asked without end. Who waits for any commit in them waits for all of them.
        """
        first = self._first()
        attempts = max((flight.attempts for flight in self._flights.values()), default=0)
        self.clear()
        self._commits = max(first, self._commits)
        for payload in payloads:
            name = new_id()
            flight = OutgoingUpdate(
                name, payload, digest(payload), first, self._commits, attempts=attempts, due=now
            )
            self._fly(flight)
            if attempts:
                self._again(flight, now, jitter)
        return list(self._flights.values())

    def clear(self) -> None:
        """Forget what is not ACKed."""
        self._queue.clear()
        self._flights.clear()
        self._waiting.clear()
        self._queue_bytes = self._flight_bytes = 0

    def forget_settled(self) -> None:
        """The replica is another, which may lack what was ACKed: it must be imported if it comes again."""
        self._settled.clear()

    # --- what goes out

    def next_to_send(self, now: float, new_id: Callable[[], str]) -> OutgoingUpdate | None:
        """The update to send now, in order; None if there is none, or no room in the window."""
        if (first := self._first_parked()) is not None:
            return first if first.due <= now else None  # in order: what comes after it waits with it
        if not self._queue or not self._window_open():
            return None
        queued = self._queue.popleft()
        commit, payload = queued.commit, queued.payload
        self._queue_bytes -= len(payload)
        last = self._queue[0].commit - 1 if self._queue else self._commits
        flight = OutgoingUpdate(queued.log_id or new_id(), payload, digest(payload), commit, last)
        flight.plain, flight.stored = commit == last, bool(queued.log_id)
        self._fly(flight)
        return flight

    def sending(self, log_id: str, now: float) -> None:
        """It goes out now; from now on an answer may come."""
        flight = self._flights[log_id]
        flight.attempts += 1
        self._waiting[log_id] = flight
        self.sent(log_id, now)

    def sent(self, log_id: str, now: float) -> None:
        """All its chunks are out; the answer, if it is not here yet, has `reply_seconds`."""
        flight = self._waiting.get(log_id)
        if flight is not None:
            flight.sent_at, flight.due = now, now + self._settings.reply_seconds
            self._waiting.move_to_end(log_id)

    def unsent(self, log_id: str, now: float, jitter: float, *, unheard: bool = False) -> None:
        """It could not be sent, or was sent and not answered; try again after a pause."""
        flight = self._flights.get(log_id)
        if flight is not None:
            flight.unheard |= unheard
            self._again(flight, now, jitter)

    def overdue(self, now: float) -> list[OutgoingUpdate]:
        """Updates whose answer did not come in time."""
        late: list[OutgoingUpdate] = []
        for flight in self._waiting.values():
            if flight.due > now:
                break
            late.append(flight)
        return late

    def doubtful(self, now: float) -> bool:
        """Whether an answer is later than usual, so that a ping is worth it."""
        first = next(iter(self._waiting.values()), None)
        return first is not None and now - first.sent_at >= self._settings.doubt_seconds

    def resend(self, now: float) -> None:
        """Send everything that is in flight again: the owner may be another, or may not have heard it."""
        for flight in self._flights.values():
            self._park(flight, now)

    def next_deadline(self, *, after: float, sending_from: float = 0.0) -> float | None:
        """When something here is next due; the last ping out of doubt was at `after`.

        Nothing leaves before `sending_from`; without one, what was never sent is due as soon as it can be.
        """
        times: list[float] = [sending_from] if sending_from and self._queue else []
        for flight in self._waiting.values():
            times += (flight.due, max(flight.sent_at, after) + self._settings.doubt_seconds)
            break  # the others are due later
        if (parked := self._first_parked()) is not None:
            times.append(max(parked.due, sending_from))  # what comes after it waits with it
        return min(times, default=None)

    def answer(
        self, reply: Reply, *, token: int, now: float, jitter: float
    ) -> tuple[ReplyAction, OutgoingUpdate | None]:
        """Take an answer; believed only with exact log id and digest.

        `token` is the newest lease token seen: an ACK with a lower one comes from a server that lost
        the document, so the update is sent again.
        """
        flight = self._flights.get(reply.log_id)
        if flight is None or flight.digest != reply.digest:
            return ReplyAction.IGNORED, None
        match reply:
            case Ack(lease=lease):
                if lease < token:
                    self._again(flight, now, jitter)
                    return ReplyAction.FIND_OWNER, flight
                self._settle(flight)
                return ReplyAction.SETTLED, flight
            case Nack(reason=reason):
                verdict = decide(reason)
                self._again(flight, now, jitter)
                return verdict, flight

    def awaits(self, log_id: str) -> bool:
        """Whether it was sent and no answer came yet."""
        return log_id in self._waiting

    def leads(self, log_id: str) -> bool:
        """Whether nothing that was sent before it waits for its answer."""
        return next(iter(self._flights), "") == log_id

    def drop(self, log_id: str) -> None:
        """Never send this one again."""
        if (flight := self._flights.get(log_id)) is not None:
            self._land(flight)

    # --- inside

    def _first(self) -> int:
        """The oldest commit that is not ACKed; one after the newest if all are."""
        firsts = [flight.first for flight in self._flights.values()]
        if self._queue:
            firsts.append(self._queue[0].commit)
        return min(firsts, default=self._commits + 1)

    def _window_open(self) -> bool:
        if not self._flights:
            return True
        settings = self._settings
        return (
            len(self._flights) < settings.in_flight_updates_max
            and self._flight_bytes + len(self._queue[0].payload) <= settings.in_flight_bytes_max
        )

    def _fly(self, flight: OutgoingUpdate) -> None:
        self._flights[flight.log_id] = flight
        self._flight_bytes += len(flight.payload)

    def _land(self, flight: OutgoingUpdate) -> None:
        del self._flights[flight.log_id]
        self._waiting.pop(flight.log_id, None)
        self._flight_bytes -= len(flight.payload)

    def _park(self, flight: OutgoingUpdate, due: float) -> None:
        """It waits to be sent, rather than for an answer."""
        flight.due = due
        self._waiting.pop(flight.log_id, None)

    def _first_parked(self) -> OutgoingUpdate | None:
        """The oldest that waits to be sent; usually there is none."""
        if len(self._waiting) == len(self._flights):
            return None
        return next(flight for log_id, flight in self._flights.items() if log_id not in self._waiting)

    def _again(self, flight: OutgoingUpdate, now: float, jitter: float) -> None:
        settings = self._settings
        pause = backoff(
            max(0, flight.attempts - 1),
            least=settings.retry_seconds_min,
            most=settings.retry_seconds_max,
            jitter=jitter,
        )
        self._park(flight, now + pause)

    def _settle(self, flight: OutgoingUpdate) -> None:
        self._land(flight)
        self._settled[flight.log_id] = None
        if len(self._settled) > self._remembered_max:
            self._settled.popitem(last=False)
