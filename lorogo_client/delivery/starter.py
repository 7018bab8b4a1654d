"""Getting a document served: ping, STARTING, init and retries, around the pure `lease.wish`.

Staleness is measured by this process's clock, from when it first saw a revision on this connection: a
process that cannot receive renewals must not conclude that there were none.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import DocumentFailed, NoSuchDocument, NotServed, ServerFull
from lorogo_client.settings import ClientSettings
from lorogo_protocol import lease
from lorogo_protocol.lease import GiveUp, Ping, RequestStart, Serve, StatusEntry, Wait
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.staleness import StalenessTracker
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
from lorogo_transport.stores.statuses import Statuses, status_of
from lorogo_transport.tasks import within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_STATUS_WAIT_SECONDS = 0.5  # how long to wait for a status message before reading the status again
_FIND_SECONDS = 0.5  # for the first server to answer
_TOKEN_DIGITS = 20


class DocumentStarter:
    """Gets documents served: finds the owner, or has a server start the document."""

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
        """`guarded`: the client may not list the servers."""
        self.bus = transport.bus
        self.guarded = guarded
        self.statuses = Statuses(transport)
        self.clock = clock
        self.rng = rng
        self.new_id = new_id
        self.settings = settings
        self._staleness = StalenessTracker()
        self._attempts: dict[str, set[_Attempt]] = {}  # that receive status messages, by document

    def connection(self, _connected: bool) -> None:
        """Handle a change of the connection."""
        self._staleness.reset()

    def on_status(self, document_id: str, entry: StatusEntry) -> None:
        """Handle a message on `loro.status.{id}`."""
        self._staleness.saw(document_id, entry.revision, self.clock.now(), read=False)
        for attempt in self._attempts.get(document_id, ()):
            attempt.on_status(entry)

    def stale(self, document_id: str) -> bool:
        """True if the status was not renewed for so long that another server may replace the owner."""
        seconds = self._staleness.unchanged_seconds(document_id, self.clock.now())
        return seconds >= self.settings.stale_seconds

    def unchanged_seconds(self, document_id: str, revision: int) -> float:
        """Return for how long this process has seen the revision that was read or written now."""
        return self._staleness.saw(document_id, revision, self.clock.now())

    async def ping(self, document_id: str) -> bool | None:
        """Ping the owner. True: it answers; False: no subscriber; None: no answer in time."""
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
        """Return when an owner answers: its status entry, or None if the client may not read the bucket.

        `listening`: the caller is subscribed to the status and passes it to `on_status`.
        `creates`: create a document that does not exist; else raise NoSuchDocument.
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
        listening = self._attempts.get(document_id, set())
        listening.discard(attempt)
        if not listening:
            self._attempts.pop(document_id, None)


class _Attempt:
    """One call of `served`."""

    def __init__(self, starter: DocumentStarter, document_id: str, *, listening: bool, creates: bool) -> None:
        """`listening`: `on_status` receives every status, so no subscription is needed."""
        self._creates = creates
        self._starter = starter
        self._document_id = document_id
        self._subscribes = not listening
        self._listening = False
        self._changed = asyncio.Event()
        self._subscription: Subscription | None = None
        self._announced: StatusEntry | None = None
        self._operation = ""  # of the STARTING that this attempt or a server wrote for it
        self._started = 0  # its revision
        self._server_moves = True  # the server writes STARTING itself
        self._tries = 0
        self._searched = False
        self._unavailable = ""  # why no server subscribes to init although servers run
        self.why = ""
        self.full = False  # the last server that answered has a full disk

    async def by_client(self) -> StatusEntry:
        """Read the status, and write STARTING where a server had the document before."""
        starter, document_id = self._starter, self._document_id
        answered_revision = 0
        while True:
            self._changed.clear()
            if (entry := self._announced_up()) is not None:
                return entry
            try:
                entry = await starter.statuses.read(document_id, timeout=starter.settings.reply_seconds)
            except RequestTimeout:
                self.why = "the status bucket does not answer"
                await self._pause()
                continue
            except (StreamMissing, NoResponders):
                self.why = "no server has ever run on this NATS"
                await self._pause()
                continue
            answered = entry is not None and entry.revision == answered_revision
            # ping before deciding: a skipped ping must not count as "no answer"
            up = entry is not None and isinstance(entry.status, Up)
            ping = await starter.ping(document_id) if up else None
            match self._next_step(entry, ping, answered):
                case Serve():
                    assert entry is not None
                    return entry
                case GiveUp(trace_id):
                    raise DocumentFailed(document_id, trace_id)
                case RequestStart(count, expected):
                    await self._listen()  # before the write, to receive every status after it
                    self._operation, self._started = starter.new_id(), 0
                    free = entry is None or isinstance(entry.status, Down)
                    if (self._server_moves and free) or (entry is None and not self._creates):
                        # no owner: the server that acquires the document writes STARTING itself
                        if await self._init(self._operation, expected):
                            answered_revision = self._started
                            await self._wait_for_change(_STATUS_WAIT_SECONDS)
                        continue
                    status = Starting(self._operation, count, starter.clock.wall_ns())
                    self._started = await self._write_starting(status, expected, entry)
                    if self._started and await self._init(self._operation):
                        answered_revision = self._started
                        await self._wait_for_change(_STATUS_WAIT_SECONDS)
                case Ping():
                    self.why = "its owner does not answer"
                    await self._wait_for_change(_STATUS_WAIT_SECONDS)
                case Wait(seconds):
                    ours = entry is not None and entry.revision == self._started and not answered
                    if ours and await self._init(self._operation):
                        answered_revision = self._started
                    elif not ours:
                        self.why = self.why or "another client or a server is starting it"
                        await self._wait_for_change(min(seconds, _STATUS_WAIT_SECONDS))

    async def by_server(self) -> StatusEntry | None:
        """Have a server write STARTING."""
        starter, document_id = self._starter, self._document_id
        while True:
            self._changed.clear()
            if await starter.ping(document_id):
                return self._announced
            if self._announced is not None and isinstance(self._announced.status, Failed):
                raise DocumentFailed(document_id, self._announced.status.trace_id)
            await self._listen()
            if await self._init(""):
                await self._wait_for_change(_STATUS_WAIT_SECONDS)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def _announced_up(self) -> StatusEntry | None:
        """Return the UP status after this attempt's STARTING: its owner is alive, so no ping is needed."""
        entry = self._announced
        came_up = entry is not None and isinstance(entry.status, Up) and 0 < self._started < entry.revision
        return entry if came_up else None

    def _next_step(self, entry: StatusEntry | None, ping: bool | None, answered: bool) -> lease.ClientStep:
        starter = self._starter
        revision = 0 if entry is None else entry.revision
        seen = starter.unchanged_seconds(self._document_id, revision)
        stale = starter.settings.stale_seconds
        return lease.wish(entry, seen_seconds=seen, ping=ping, init_answered=answered, stale_seconds=stale)

    async def _write_starting(self, status: Starting, expected: int, entry: StatusEntry | None) -> int:
        """Write STARTING; return its revision, 0 if another writer was faster or the outcome is unknown.

        The failure count and trace of the last failure are kept: a server that writes ERROR reports them.
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
                journal_of="" if entry is None else entry.journal_of,
                timeout=starter.settings.reply_seconds,
            )
        except (WrongLastSequence, OutcomeUnknown):
            return 0
        starter.unchanged_seconds(self._document_id, revision)
        return revision

    async def _init(self, operation: str, expected: int | None = None) -> bool:
        """Request that a server starts the document; True if one accepts. Pauses if none does.

        `expected`: the server writes STARTING over this revision; `_started` is then its write's revision.
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
            self.why = self._unavailable or "no server is connected to NATS"
            if not self._searched and not starter.guarded:
                await self._search_servers()
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
            if (
                trace := answer.headers.get(h.TRACE)
            ) and not operation:  # a client that reads the bucket finds it there
                raise DocumentFailed(self._document_id, trace)
            if reason == Reason.FAILED.value and not operation:
                log.info("server cannot start document", document=self._document_id, why=self.why)
            if expected is not None and not self.full and self._server_moves:
                self._server_moves = (
                    False  # another writer was faster, or the server cannot write it: read again
                )
                return False
        await self._pause()
        return False

    async def _search_servers(self) -> None:
        """Without a subscriber to init, find out whether servers run that cannot start documents."""
        self._searched = True
        with suppress(TransportError):
            found = await find_servers(self._starter.bus, first_seconds=_FIND_SECONDS)
            if found:
                self._unavailable = (
                    f"none of the servers on NATS ({len(found)}) accepts documents now;"
                    " `lorogo status` shows why, for example a full disk"
                )
                self.why = self._unavailable

    async def _pause(self) -> None:
        """Back off, or return as soon as the status changes."""
        settings = self._starter.settings
        pause = backoff(
            self._tries,
            least=settings.retry_seconds_min,
            most=min(settings.retry_seconds_max, settings.stale_seconds / 2),
            jitter=self._starter.rng.random(),
        )
        self._tries += 1
        await self._wait_for_change(pause)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until the status changes, at most this long."""
        if await self._listen():
            return  # changes before the subscription were missed: read once more
        await within(seconds, self._changed.wait())

    async def _listen(self) -> bool:
        """Subscribe to the status; True if this was the first time.

        No barrier is needed: the next request follows the subscription on the same connection.
        """
        if self._listening:
            return False
        self._listening = True
        if self._subscribes:
            bus = self._starter.bus
            self._subscription = await bus.subscribe(subjects.status(self._document_id), self._on_status)
        return True

    def _on_status(self, message: Message) -> None:
        entry = status_of(message)
        if entry is not None:
            self._starter.on_status(self._document_id, entry)
            self.on_status(entry)

    def on_status(self, entry: StatusEntry) -> None:
        """Record the current status."""
        if not self._listening:
            return
        self._announced = entry
        ours = isinstance(entry.status, Starting) and entry.status.operation_id == self._operation
        if isinstance(entry.status, Up | Failed) or not (entry.server or ours):
            self._changed.set()
