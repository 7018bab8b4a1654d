"""Having a document served: ping, STARTING, init, and again, around the pure `lease.wish`.

Staleness is measured by this process's clock, from when it first saw a revision, and only while it
is connected: a process that could not hear a renewal must not conclude that there was none.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import DocumentFailed, NoSuchDocument, NotServed, ServerFull
from lorogo_client.settings import ClientSettings
from lorogo_protocol import headers as h
from lorogo_protocol import lease, subjects
from lorogo_protocol.lease import GiveUp, Ping, RequestStart, Serve, StatusEntry, Wait
from lorogo_protocol.reasons import Reason
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_transport.clock import Clock
from lorogo_transport.errors import (
    NoResponders,
    OutcomeUnknown,
    RequestTimeout,
    StreamMissing,
    TransportError,
    WrongLastSequence,
)
from lorogo_transport.ports import Message, Subscription, Transport
from lorogo_transport.rpc.discovery import find_servers
from lorogo_transport.stores.statuses import Statuses, heard
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SEEN_MAX = 100_000
_LOOK_SECONDS = 0.5  # how long to trust that a change of the status will be heard
_FIND_SECONDS = 0.5  # for the first server to say that it is there
_TOKEN_DIGITS = 20


@dataclass(slots=True)
class RevisionAge:
    """How long this process has seen one revision."""

    revision: int
    seconds: float  # in earlier stretches of being connected
    since: float | None  # of this stretch; None: not connected

    def for_seconds(self, now: float) -> float:
        return self.seconds + (0.0 if self.since is None else now - self.since)


class RevisionAges:
    """When this process first saw each document's revision. Pure; time comes in."""

    def __init__(self) -> None:
        self._seen: dict[str, RevisionAge] = {}
        self._connected = True

    def saw(self, document_id: str, revision: int, now: float, *, read: bool = True) -> float:
        """Note a revision; returns for how many seconds it has been seen.

        One that was `read` from the leader is the truth; one that was only heard may be overtaken.
        """
        seen = self._seen.get(document_id)
        if seen is None or seen.revision != revision:
            if seen is not None and not read and revision < seen.revision:
                return seen.for_seconds(now)
            self._seen.pop(document_id, None)
            seen = self._seen[document_id] = RevisionAge(revision, 0.0, now if self._connected else None)
            if len(self._seen) > _SEEN_MAX:
                del self._seen[next(iter(self._seen))]  # the oldest; it would be seen anew
        return seen.for_seconds(now)

    def connection(self, connected: bool, now: float) -> None:
        """Stop all watches while we could not hear a renewal."""
        if connected == self._connected:
            return
        self._connected = connected
        for seen in self._seen.values():
            if not connected:
                seen.seconds, seen.since = seen.for_seconds(now), None
            else:
                seen.since = now

    def for_seconds(self, document_id: str, now: float) -> float:
        """For how long the newest revision has been seen; 0 if none was."""
        seen = self._seen.get(document_id)
        return 0.0 if seen is None else seen.for_seconds(now)


class DocumentStarter:
    """Makes sure that documents are served."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        new_id: Callable[[], str],
        settings: ClientSettings,
        *,
        guarded: bool = False,
    ) -> None:
        """`guarded`: one that may not ask which servers there are."""
        self.bus = transport.bus
        self.guarded = guarded
        self.statuses = Statuses(transport)
        self.clock = clock
        self.rng = rng
        self.new_id = new_id
        self.settings = settings
        self.sightings = RevisionAges()
        self._attempts: dict[str, set[_Attempt]] = {}  # that are told of statuses, by document

    def connection(self, connected: bool) -> None:
        self.sightings.connection(connected, self.clock.now())

    def heard(self, document_id: str, entry: StatusEntry) -> None:
        """A status was told on `loro.status.{id}`."""
        self.sightings.saw(document_id, entry.revision, self.clock.now(), read=False)
        for attempt in self._attempts.get(document_id, ()):
            attempt.told(entry)

    def stale(self, document_id: str) -> bool:
        """Whether nobody renewed the status for so long that its owner may be replaced."""
        seconds = self.sightings.for_seconds(document_id, self.clock.now())
        return seconds >= self.settings.stale_seconds

    async def ping(self, document_id: str) -> bool | None:
        """True: the owner answers; False: nobody listens; None: no answer in time."""
        try:
            await self.bus.request(subjects.ping(document_id), timeout=self.settings.ping_seconds)
        except NoResponders:
            return False
        except RequestTimeout:
            return None
        return True

    async def served(
        self, document_id: str, *, timeout: float, listening: bool = False, creates: bool = True
    ) -> StatusEntry | None:
        """Return when an owner answers: its entry, or None if we may not read the bucket.

        `listening`: the caller has subscribed to its status, and says what it hears (`heard`).
        `creates`: a document that does not exist is created; else it raises NoSuchDocument.
        Raises NotServed after `timeout`, DocumentFailed, Disconnected.
        """
        attempt = _Attempt(self, document_id, listening=listening, creates=creates)
        if listening:
            self._attempts.setdefault(document_id, set()).add(attempt)
        try:
            async with asyncio.timeout(timeout):
                if self.settings.start == "server":
                    return await attempt.by_server()
                return await attempt.by_client()
        except TimeoutError:
            kind = ServerFull if attempt.full else NotServed
            raise kind(document_id, attempt.why or f"no answer in {timeout:g} s") from None
        finally:
            self._forget(document_id, attempt)
            await attempt.close()

    def _forget(self, document_id: str, attempt: "_Attempt") -> None:
        told = self._attempts.get(document_id, set())
        told.discard(attempt)
        if not told:
            self._attempts.pop(document_id, None)


class _Attempt:
    """One call of `served`."""

    def __init__(self, starter: DocumentStarter, document_id: str, *, listening: bool, creates: bool) -> None:
        """`listening`: it gets every status, so that it need not subscribe."""
        self._creates = creates
        self._starter = starter
        self._document_id = document_id
        self._subscribes = not listening
        self._listening = False
        self._changed = asyncio.Event()
        self._subscription: Subscription | None = None
        self._told: StatusEntry | None = None
        self._operation = ""  # of our own STARTING, or of a server's for us
        self._started = 0  # its revision
        self._leaves_move = True  # to the server
        self._tries = 0
        self._looked = False
        self._nobody = ""  # why nobody listens although there are servers
        self.why = ""
        self.full = False  # the disk of the server that answered last is full

    async def by_client(self) -> StatusEntry:
        """The client reads the status, and makes the STARTING move itself where somebody had the document."""
        starter, document_id = self._starter, self._document_id
        answered_revision = 0
        while True:
            self._changed.clear()
            if (entry := self._come_up()) is not None:
                return entry
            try:
                entry = await starter.statuses.read(document_id, timeout=starter.settings.reply_seconds)
            except RequestTimeout:
                self.why = "the status bucket does not answer"
                await self._pause()
                continue
            except (StreamMissing, NoResponders):
                self.why = "no server has run on this NATS yet"
                await self._pause()
                continue
            answered = entry is not None and entry.revision == answered_revision
            # asked before judging: "no answer" must not be taken from not having asked
            up = entry is not None and isinstance(entry.status, Up)
            ping = await starter.ping(document_id) if up else None
            match self._wish(entry, ping, answered):
                case Serve():
                    assert entry is not None
                    return entry
                case GiveUp(trace_id):
                    raise DocumentFailed(document_id, trace_id)
                case RequestStart(count, expected):
                    await self._listen()  # before the move: whatever follows it is heard
                    self._operation, self._started = starter.new_id(), 0
                    free = entry is None or isinstance(entry.status, Down)
                    if (self._leaves_move and free) or (entry is None and not self._creates):
                        # nobody has it: the server that takes it makes the move with the same write
                        if await self._init(self._operation, expected):
                            answered_revision = self._started
                            await self._look(_LOOK_SECONDS)
                        continue
                    status = Starting(self._operation, count, starter.clock.wall_ns())
                    self._started = await self._move(status, expected, entry)
                    if self._started and await self._init(self._operation):
                        answered_revision = self._started
                        await self._look(_LOOK_SECONDS)
                case Ping():
                    self.why = "its owner does not answer"
                    await self._look(_LOOK_SECONDS)
                case Wait(seconds):
                    ours = entry is not None and entry.revision == self._started and not answered
                    if ours and await self._init(self._operation):
                        answered_revision = self._started
                    elif not ours:
                        self.why = self.why or "another client or a server is starting it"
                        await self._look(min(seconds, _LOOK_SECONDS))

    async def by_server(self) -> StatusEntry | None:
        """Servers make the STARTING move for us."""
        starter, document_id = self._starter, self._document_id
        while True:
            self._changed.clear()
            if await starter.ping(document_id):
                return self._told
            if self._told is not None and isinstance(self._told.status, Failed):
                raise DocumentFailed(document_id, self._told.status.trace_id)
            await self._listen()
            if await self._init(""):
                await self._look(_LOOK_SECONDS)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def _come_up(self) -> StatusEntry | None:
        """The UP that we heard after our own STARTING: its owner was there just now, so nobody asks it."""
        told = self._told
        came_up = told is not None and isinstance(told.status, Up) and 0 < self._started < told.revision
        return told if came_up else None

    def _wish(self, entry: StatusEntry | None, ping: bool | None, answered: bool) -> lease.ClientStep:
        starter = self._starter
        revision = 0 if entry is None else entry.revision
        seen = starter.sightings.saw(self._document_id, revision, starter.clock.now())
        stale = starter.settings.stale_seconds
        return lease.wish(entry, seen_seconds=seen, ping=ping, init_answered=answered, stale_seconds=stale)

    async def _move(self, status: Starting, expected: int, entry: StatusEntry | None) -> int:
        """The revision of our STARTING; 0 if somebody was faster or nobody knows.

        Failures and the trace of the last are handed on: a server that writes ERROR counts and names them.
        """
        starter = self._starter
        try:
            revision = await starter.statuses.write(
                self._document_id,
                status,
                expected_revision=expected,
                trace="" if entry is None else entry.trace,
                failures=0 if entry is None else entry.failures,
                taken_from=lease.taken_from(entry),
                timeout=starter.settings.reply_seconds,
            )
        except (WrongLastSequence, OutcomeUnknown):
            return 0
        starter.sightings.saw(self._document_id, revision, starter.clock.now())
        return revision

    async def _init(self, operation: str, expected: int | None = None) -> bool:
        """Ask servers to take it; True if one answered that it does. Pauses if none did.

        `expected`: the move is left to the server, over this revision; then `_started` is that of its write.
        """
        starter = self._starter
        self.full = False
        headers = {} if self._creates else {h.EXISTING: "1"}
        if expected is not None:
            headers[h.EXPECTED] = str(expected)
        try:
            answer = await starter.bus.request(
                subjects.init(self._document_id),
                operation.encode(),
                headers=headers or None,
                timeout=starter.settings.init_seconds,
            )
        except NoResponders:
            self.why = self._nobody or "no server is connected to NATS"
            if not self._looked and not starter.guarded:
                await self._look_for_servers()
        except RequestTimeout:
            self.why = "no server answered the init"
        else:
            reason = answer.headers.get(h.REASON)
            if reason is None:
                self._tries = 0
                self.why = "a server is loading it"
                if expected is not None:
                    token = answer.headers.get(h.LEASE, "")
                    self._started = int(token) if token.isdecimal() and len(token) <= _TOKEN_DIGITS else 0
                return True
            if reason == Reason.NOT_FOUND.value and not self._creates:
                raise NoSuchDocument(self._document_id)
            self.why = answer.headers.get(h.MESSAGE) or reason
            self.full = reason == Reason.STORAGE_FULL.value
            if (trace := answer.headers.get(h.TRACE)) and not operation:  # who reads the bucket sees it there
                raise DocumentFailed(self._document_id, trace)
            if reason == Reason.FAILED.value and not operation:
                log.info("a server could not start a document", document=self._document_id, why=self.why)
            if expected is not None and not self.full and self._leaves_move:
                self._leaves_move = False  # somebody was faster, or it is a server that cannot: look again
                return False
        await self._pause()
        return False

    async def _look_for_servers(self) -> None:
        """Nobody takes documents: say so if there are servers, which cannot (their journals have stopped)."""
        self._looked = True
        with suppress(TransportError):
            found = await find_servers(self._starter.bus, first_seconds=_FIND_SECONDS)
            if found:
                self._nobody = (
                    f"none of the servers on NATS ({len(found)}) takes documents now;"
                    " `lorogo status` says why, as when a disk is full"
                )
                self.why = self._nobody

    async def _pause(self) -> None:
        """Back off, or go on as soon as the status changes."""
        settings = self._starter.settings
        pause = backoff(
            self._tries,
            least=settings.retry_seconds_min,
            most=min(settings.retry_seconds_max, settings.stale_seconds / 2),
            jitter=self._starter.rng.random(),
        )
        self._tries += 1
        await self._look(pause)

    async def _look(self, seconds: float) -> None:
        """Wait for a change of the status, but not longer than this."""
        if await self._listen():
            return  # only from now on do we hear of a change: read once more
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _listen(self) -> bool:
        """Take notice of the status from now on; True if this was the first time.

        Nobody waits for that: what we ask next goes behind it on the same connection.
        """
        if self._listening:
            return False
        self._listening = True
        if self._subscribes:
            bus = self._starter.bus
            self._subscription = await bus.subscribe(subjects.status(self._document_id), self._on_status)
        return True

    def _on_status(self, message: Message) -> None:
        entry = heard(message)
        if entry is not None:
            self._starter.heard(self._document_id, entry)
            self.told(entry)

    def told(self, entry: StatusEntry) -> None:
        """This is the status now."""
        if not self._listening:
            return
        self._told = entry
        ours = isinstance(entry.status, Starting) and entry.status.operation_id == self._operation
        if isinstance(entry.status, Up | Failed) or not (entry.server or ours):
            self._changed.set()
