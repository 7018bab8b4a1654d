"""Local updates that are not ACKed: their order, log ids, resends and replies.

Pure: time, randomness and ids are arguments. A room sends the update that the outbox returns and reports
the result. A log id names one byte string: an update that was sent keeps its id and bytes until it is
ACKed; only unsent commits may be merged.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lorogo_client.delivery.retry_policy import ReplyAction, backoff, decide
from lorogo_client.settings import ClientSettings
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.replies import Ack, Nack, Reply

MERGED_BYTES_MAX = 8 * 1024  # of commits merged into one update: about a hundred keystrokes
_SETTLED_MAX = 4096  # own log ids kept to recognise their accepted copies


@dataclass(slots=True)
class OutgoingUpdate:
    """An update with its log id: sent, or next to be sent."""

    log_id: str
    payload: bytes
    digest: str
    first: int  # the local commits in it
    last: int
    attempts: int = 0  # how often it was sent completely
    due: float = 0.0  # when to send or resend it; once sent, the deadline of its reply
    sent_at: float = 0.0
    plain: bool = False  # one commit with its original bytes
    stored: bool = False  # the local store has this id with these bytes
    unanswered: bool = False  # a reply did not arrive in time
    confirmed: bool = False  # JetStream confirmed every chunk


@dataclass(frozen=True, slots=True)
class QueuedCommit:
    """A commit, or several merged, never sent."""

    commit: int  # the first commit
    payload: bytes
    log_id: str = ""  # assigned at commit time, because it was to be sent at once


class Outbox:
    """The updates of one replica without an ACK."""

    def __init__(self, settings: ClientSettings, *, remembered_max: int = _SETTLED_MAX) -> None:
        self._settings = settings
        self._remembered_max = remembered_max
        self._queue: deque[QueuedCommit] = deque()
        self._queue_bytes = 0
        self._flights: OrderedDict[str, OutgoingUpdate] = OrderedDict()  # oldest first
        self._flight_bytes = 0
        self._waiting: OrderedDict[str, OutgoingUpdate] = OrderedDict()  # for a reply; longest first
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._commits = 0

    # --- contents

    @property
    def commits(self) -> int:
        """The number of the newest local commit."""
        return self._commits

    @property
    def empty(self) -> bool:
        """True if every local commit is ACKed."""
        return not self._queue and not self._flights

    @property
    def unsaved(self) -> int:
        """The number of updates without an ACK."""
        return len(self._queue) + len(self._flights)

    @property
    def queued(self) -> bool:
        """True if there are unsent commits."""
        return bool(self._queue)

    @property
    def all_sent(self) -> bool:
        """True if every update was sent and waits for its reply."""
        return not self._queue and len(self._waiting) == len(self._flights)

    @property
    def unsaved_bytes(self) -> int:
        return self._queue_bytes + self._flight_bytes

    @property
    def full(self) -> bool:
        """True if further commits should wait for an ACK."""
        return self.unsaved_bytes >= self._settings.unsent_bytes_max

    def saved_through(self, commit: int) -> bool:
        """True if this commit and all before it are ACKed."""
        if self._queue and self._queue[0].commit <= commit:
            return False
        return all(flight.first > commit for flight in self._flights.values())

    def owns(self, log_id: str) -> bool:
        """True for the log id of a local update, whose accepted copy need not be imported."""
        return log_id in self._flights or log_id in self._settled

    def in_flight(self, log_id: str) -> bool:
        """True if this update is neither ACKed nor replaced."""
        return log_id in self._flights

    def payloads(self) -> Iterator[bytes]:
        """Yield every update without an ACK, oldest first."""
        yield from (flight.payload for flight in self._flights.values())
        yield from (queued.payload for queued in self._queue)

    def entries(self) -> Iterator[tuple[int, int, str, bytes]]:
        """Yield every update without an ACK, oldest first: first and last commit, log id or "", bytes."""
        for flight in self._flights.values():
            yield flight.first, flight.last, flight.log_id, flight.payload
        ends = [queued.commit - 1 for queued in self._queue][1:]
        for queued, last in zip(self._queue, [*ends, self._commits], strict=False):
            yield queued.commit, last, queued.log_id, queued.payload

    def stored(self) -> None:
        """Mark every sent update as stored in the local store."""
        for flight in self._flights.values():
            flight.stored = True

    # --- input

    def restore(
        self, sent: Iterable[tuple[int, int, str, bytes]], unsent: Iterable[tuple[int, bytes]], commits: int
    ) -> None:
        """Restore from a local store: updates that may have been sent, and commits that were not."""
        for first, last, log_id, payload in sent:
            self._add_flight(OutgoingUpdate(log_id, payload, digest(payload), first, last, stored=True))
        for commit, payload in unsent:
            self._queue.append(QueuedCommit(commit, payload))
            self._queue_bytes += len(payload)
        self._commits = commits

    def add(self, payload: bytes, log_id: str = "") -> int:
        """Add a local commit and return its number. Never refuses: the document already has the edit."""
        self._commits += 1
        self._queue.append(QueuedCommit(self._commits, payload, log_id))
        self._queue_bytes += len(payload)
        return self._commits

    def merge(self, join: Callable[[Sequence[bytes]], bytes]) -> None:
        """Merge unsent commits into fewer updates, each small enough for an owner to accept.

        An owner refuses one update of many operations but accepts them as several (docs/PROTOCOL.md).
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
            # a merged update has the number of its first commit: waiting for one of them waits for all
            merged = group[0]
            if len(group) > 1:
                merged = QueuedCommit(merged.commit, join([one.payload for one in group]))
            self._queue.append(merged)
            self._queue_bytes += len(merged.payload)

    def replace(
        self, payloads: Sequence[bytes], new_id: Callable[[], str], *, now: float, jitter: float
    ) -> list[OutgoingUpdate]:
        """Replace the contents by updates that together hold every edit without an ACK.

        If the old updates had been sent, the new ones wait for a pause, so that an owner which always refuses
        is not called in a tight loop. Waiting for any of their commits waits for all of them.
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
            self._add_flight(flight)
            if attempts:
                self._retry_later(flight, now, jitter)
        return list(self._flights.values())

    def clear(self) -> None:
        """Drop every update without an ACK."""
        self._queue.clear()
        self._flights.clear()
        self._waiting.clear()
        self._queue_bytes = self._flight_bytes = 0

    def forget_acked(self) -> None:
        """Forget ACKed log ids after the replica was replaced: the new one must import these updates."""
        self._settled.clear()

    # --- output

    def next_to_send(self, now: float, new_id: Callable[[], str]) -> OutgoingUpdate | None:
        """Return the next update to send, in order; None if there is none or the window is full."""
        if (first := self._first_to_resend()) is not None:
            return first if first.due <= now else None  # later updates wait, to keep the order
        if not self._queue or not self._window_open():
            return None
        queued = self._queue.popleft()
        commit, payload = queued.commit, queued.payload
        self._queue_bytes -= len(payload)
        last = self._queue[0].commit - 1 if self._queue else self._commits
        flight = OutgoingUpdate(queued.log_id or new_id(), payload, digest(payload), commit, last)
        flight.plain, flight.stored = commit == last, bool(queued.log_id)
        self._add_flight(flight)
        return flight

    def sending(self, log_id: str, now: float) -> None:
        """Mark an update as being sent: its reply may arrive from now on."""
        flight = self._flights[log_id]
        flight.attempts += 1
        self._waiting[log_id] = flight
        self.sent(log_id, now)

    def sent(self, log_id: str, now: float) -> None:
        """Mark all chunks as sent: the reply, if it has not arrived, is due in `reply_seconds`."""
        flight = self._waiting.get(log_id)
        if flight is not None:
            flight.sent_at, flight.due = now, now + self._settings.reply_seconds
            self._waiting.move_to_end(log_id)

    def unsent(self, log_id: str, now: float, jitter: float, *, unanswered: bool = False) -> None:
        """Schedule a resend after a pause: sending failed, or no reply arrived (`unanswered`)."""
        flight = self._flights.get(log_id)
        if flight is not None:
            flight.unanswered |= unanswered
            self._retry_later(flight, now, jitter)

    def overdue(self, now: float) -> list[OutgoingUpdate]:
        """Return the updates whose reply is overdue."""
        late: list[OutgoingUpdate] = []
        for flight in self._waiting.values():
            if flight.due > now:
                break
            late.append(flight)
        return late

    def ping_due(self, now: float) -> bool:
        """True if a reply is late enough to ping the owner."""
        first = next(iter(self._waiting.values()), None)
        return first is not None and now - first.sent_at >= self._settings.doubt_seconds

    def second_try(self, now: float, jitter: float) -> bool:
        """Schedule a second attempt of the oldest waiting update; return False if it needs none yet.

        nats-server drops messages while too many wait for the stream, and a first attempt requests no
        confirmation. A further attempt waits for `reply_seconds`: an owner may only be slow.
        """
        first = next(iter(self._waiting.values()), None)
        if first is None or first.attempts > 1 or first.confirmed or not self.ping_due(now):
            return False
        self._retry_later(first, now, jitter)
        return True

    def resend(self, now: float) -> None:
        """Resend every update in flight: the owner may have changed or missed them."""
        for flight in self._flights.values():
            self._queue_resend(flight, now)

    def next_deadline(self, *, after: float, sending_from: float = 0.0) -> float | None:
        """Return when something is next due; the last ping was at `after`.

        Nothing is sent before `sending_from`; without it, unsent commits are due as soon as the window
        allows.
        """
        times: list[float] = [sending_from] if sending_from and self._queue else []
        for flight in self._waiting.values():
            times += (flight.due, max(flight.sent_at, after) + self._settings.doubt_seconds)
            break  # all others are due later
        if (parked := self._first_to_resend()) is not None:
            times.append(max(parked.due, sending_from))  # later updates wait for it
        return min(times, default=None)

    def answer(
        self, reply: Reply, *, token: int, now: float, jitter: float
    ) -> tuple[ReplyAction, OutgoingUpdate | None]:
        """Process a reply; a reply with another log id or digest is ignored.

        `token` is the newest lease token seen: an ACK with a lower one comes from a server that lost
        the document, so the update is sent again.
        """
        flight = self._flights.get(reply.log_id)
        if flight is None or flight.digest != reply.digest:
            return ReplyAction.IGNORED, None
        match reply:
            case Ack(lease=lease):
                if lease < token:
                    self._retry_later(flight, now, jitter)
                    return ReplyAction.FIND_OWNER, flight
                self._settle(flight)
                return ReplyAction.SETTLED, flight
            case Nack(reason=reason):
                verdict = decide(reason)
                self._retry_later(flight, now, jitter)
                return verdict, flight

    def awaits_reply(self, log_id: str) -> bool:
        """True if the update was sent and has no reply yet."""
        return log_id in self._waiting

    def drop(self, log_id: str) -> None:
        """Drop an update: it is never sent again."""
        if (flight := self._flights.get(log_id)) is not None:
            self._remove_flight(flight)

    # --- internals

    def _first(self) -> int:
        """The oldest commit without an ACK; one after the newest if all are ACKed."""
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

    def _add_flight(self, flight: OutgoingUpdate) -> None:
        self._flights[flight.log_id] = flight
        self._flight_bytes += len(flight.payload)

    def _remove_flight(self, flight: OutgoingUpdate) -> None:
        del self._flights[flight.log_id]
        self._waiting.pop(flight.log_id, None)
        self._flight_bytes -= len(flight.payload)

    def _queue_resend(self, flight: OutgoingUpdate, due: float) -> None:
        """Queue an update for a resend at `due`; it no longer waits for a reply."""
        flight.due = due
        self._waiting.pop(flight.log_id, None)

    def _first_to_resend(self) -> OutgoingUpdate | None:
        """The oldest update that waits for a resend; usually None."""
        if len(self._waiting) == len(self._flights):
            return None
        return next(flight for log_id, flight in self._flights.items() if log_id not in self._waiting)

    def _retry_later(self, flight: OutgoingUpdate, now: float, jitter: float) -> None:
        settings = self._settings
        pause = backoff(
            max(0, flight.attempts - 1),
            least=settings.retry_seconds_min,
            most=settings.retry_seconds_max,
            jitter=jitter,
        )
        self._queue_resend(flight, now + pause)

    def _settle(self, flight: OutgoingUpdate) -> None:
        self._remove_flight(flight)
        self._settled[flight.log_id] = None
        if len(self._settled) > self._remembered_max:
            self._settled.popitem(last=False)
