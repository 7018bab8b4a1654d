"""Read live documents without changing them.

    UP                      from its owner's memory, with a client's call
    DOWN, STARTING, ERROR   from snapshot and WAL in NATS, as an owner would load it
    deleted, erased         from the tombstone

Nothing is written, and no document is started unless `through_servers` is set. A call resets the idle time
of an open document, as any reader does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import lorogo_client
from lorogo_client import ClientSettings, NotServed
from lorogo_client.connection import new_nanoid
from lorogo_pipeline.audit.comparison import LiveDocument, LiveState
from lorogo_pipeline.sources.nats_connection import connect
from lorogo_pipeline.spark.concurrent_map import as_async, concurrent_map
from lorogo_protocol import ids
from lorogo_protocol.errors import CrdtError, LorogoError, MalformedMessage
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused, need
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import Position
from lorogo_protocol.status import Failed, Status, Up
from lorogo_server.document.loading import DocumentLoadFailed, Loaded, LoadRequest, load
from lorogo_server.settings import ServerSettings
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import Disconnected, NoResponders, RequestTimeout, StreamMissing, TransportError
from lorogo_transport.ports import Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead, SnapshotReplaced, SnapshotStore
from lorogo_transport.stores.statuses import Statuses

Progress = Callable[[str, int, int], None]  # name of the step, items done, items in total

_PAUSES = (0.05, 0.2, 0.5, 1.0)  # between tries
_ALL = 1 << 62  # of sequences and times: this load needs nothing for a journal
_RETRIED = (Reason.NOT_OWNER, Reason.BUSY)
_NO_EPOCH = 0  # only an owner needs the epoch of its sequences


class LiveReadFailed(LorogoError):
    """A document could not be read; the message has the reason."""

    code = "look-failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveReadSettings:
    """Settings of reading live documents."""

    through_servers: bool = False  # start documents that are not UP, and read them from their owners
    at_once: int = 8  # documents read concurrently: each is in memory as a whole
    document_seconds: float = 120.0
    call_seconds: float = 15.0  # without an answer of the owner
    reconnect_seconds: float = 30.0  # without NATS


async def read_documents(
    nats_url: str,
    document_ids: Iterable[str] | None = None,
    on_progress: Progress = lambda *_: None,
    *,
    settings: LiveReadSettings | None = None,
) -> AsyncIterator[LiveDocument]:
    """Yield these documents, or all in NATS, in any order. Raises Unreachable, LiveReadFailed, Disconnected.

    A document that could not be read is UNREADABLE, with the reason.
    """
    async with live(nats_url, settings) as seen:
        names = sorted(await seen.documents()) if document_ids is None else list(document_ids)
        done = 0
        async for document in concurrent_map(as_async(names), seen.try_read, seen.settings.at_once):
            yield document
            done += 1
            on_progress("reading documents", done, len(names))


@asynccontextmanager
async def live(
    where: str | Transport, settings: LiveReadSettings | None = None, *, clock: Clock | None = None
) -> AsyncIterator["LiveDocumentReader"]:
    """Connect to the documents of a NATS. Raises Unreachable, LiveReadFailed if no server has run there."""
    async with AsyncExitStack() as stack:
        transport = where
        if isinstance(transport, str):
            transport = await connect(transport, name="lorogo audit")
            stack.push_async_callback(transport.close)
        try:
            await transport.stream(subjects.WAL_STREAM).state()
        except StreamMissing:
            raise LiveReadFailed(
                "no lorogo server has ever run on this NATS: give the URL of the NATS of these journals"
            ) from None
        seen = LiveDocumentReader(transport, settings or LiveReadSettings(), clock or SystemClock())
        await seen.caller.start()
        stack.push_async_callback(seen.caller.close)
        yield seen


class LiveDocumentReader:
    """Read documents; own and change nothing."""

    def __init__(self, transport: Transport, settings: LiveReadSettings, clock: Clock) -> None:
        self.settings = settings
        self.caller = Caller(transport.bus, clock, new_nanoid)
        self._transport = transport
        self._clock = clock
        self._statuses = Statuses(transport)
        self._wal = transport.stream(subjects.WAL_STREAM)
        self._snapshots = SnapshotStore(
            transport.stream(subjects.SNAPSHOT_STREAM),
            max_payload=transport.bus.max_payload,
            clock=clock,
            new_id=_no_id,
        )

    async def documents(self) -> set[str]:
        """Return the ids of all stored documents. Raises TransportError."""
        for pause in _PAUSES:
            await self._connected()
            try:
                return await self._list()
            except TransportError:
                await asyncio.sleep(pause)
        return await self._list()

    async def _list(self) -> set[str]:
        found = {subjects.document_of(name) for name in await self._wal.subjects(subjects.wal("*"))}
        async for head in self._snapshots.list():
            found.add(head.document_id)
        return found

    async def try_read(self, document_id: str) -> LiveDocument:
        """Like `read`, but return an UNREADABLE document instead of raising LookFailed."""
        try:
            return await self.read(document_id)
        except LiveReadFailed as error:
            return _unreadable(document_id, str(error))

    async def read(self, document_id: str) -> LiveDocument:
        """Read the document. Raises LiveReadFailed if all tries fail, Disconnected without NATS."""
        ids.check_document_id(document_id)
        problem = ""
        try:
            async with asyncio.timeout(self.settings.document_seconds):
                for pause in (*_PAUSES, 0.0):
                    await self._connected()
                    try:
                        if (seen := await self._once(document_id)) is not None:
                            return seen
                        problem = "it keeps changing"
                    except TransportError as error:
                        problem = str(error)
                    await asyncio.sleep(pause)
        except TimeoutError:
            problem = f"it took longer than {self.settings.document_seconds:g} s"
        raise LiveReadFailed(f"{document_id} could not be read: {problem}")

    async def _connected(self) -> None:
        """Wait for a connection to NATS. Raises Disconnected."""
        bus = self._transport.bus
        back = asyncio.Event()
        stop = bus.watch_connection(lambda up: back.set() if up else None)
        try:
            async with asyncio.timeout(self.settings.reconnect_seconds):
                if not bus.connected:
                    await back.wait()
        except TimeoutError:
            raise Disconnected(
                f"no connection to NATS for {self.settings.reconnect_seconds:g} s: restore it and audit again"
            ) from None
        finally:
            stop()

    async def _once(self, document_id: str) -> LiveDocument | None:
        """Try once; None if it changed meanwhile. Raises TransportError."""
        entry = await self._statuses.read(document_id)
        status = None if entry is None else entry.status
        head, facts, damage = None, SnapshotMetadata(), ""
        try:
            head = await self._snapshots.head(document_id)
            facts = facts if head is None else SnapshotMetadata.parse(head.facts)
        except (SnapshotDamaged, MalformedMessage) as error:
            damage = str(error)
        if facts.deleted:
            return _tombstone(document_id, facts)
        if isinstance(status, Up):
            try:
                if (served := await self._from_owner(document_id)) is not None:
                    return replace(served, problem=served.problem or damage)
            except Refused as refused:
                if refused.reason is Reason.DELETED:
                    return None  # deleted just now: the next try reads the tombstone
                return _unreadable(document_id, f"its owner refuses the sync: {refused}")
            except RequestTimeout as error:
                return await self._from_storage(document_id, damage or str(error))
        if damage:
            return _unreadable(document_id, damage)
        if head is None and await self._wal.last(subjects.wal(document_id)) is None:
            return LiveDocument(document_id, LiveState.UNKNOWN)
        if self.settings.through_servers and not isinstance(status, Failed):
            return await self._start_and_read(document_id)
        return await self._from_storage(document_id, _failure(status))

    # --- through its owner ------------------------------------------------------------------------

    async def _from_owner(self, document_id: str) -> LiveDocument | None:
        """Read the owner's replica; None without an owner. Raises Refused, TransportError."""
        for pause in (*_PAUSES, None):
            try:
                answer = await self.caller.call("sync", document_id, {}, timeout=self.settings.call_seconds)
                replica = Replica.from_snapshot(need(answer, "payload", bytes))
                generation = need(answer, "generation", int)
                return _alive(document_id, replica, generation, "server", "")
            except NoResponders:
                return None  # the owner released it or crashed
            except (CrdtError, MalformedMessage) as error:
                return _unreadable(document_id, f"the answer of its owner does not decode: {error}")
            except Refused as refused:
                if refused.reason not in _RETRIED or pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _start_and_read(self, document_id: str) -> LiveDocument | None:
        """Start the document on a server, then read it."""
        seconds = self.settings.document_seconds
        try:
            async with lorogo_client.connect(
                self._transport, settings=ClientSettings(call_seconds=seconds)
            ) as client:
                await client.document(document_id).status()
            return await self._from_owner(document_id)
        except NotServed as error:
            return _unreadable(document_id, str(error))
        except Refused as refused:
            return None if refused.reason is Reason.DELETED else _unreadable(document_id, str(refused))

    # --- as it is stored --------------------------------------------------------------------------

    async def _from_storage(self, document_id: str, problem: str) -> LiveDocument | None:
        """Load the document from snapshot and WAL."""
        try:
            loaded, head = await self._load(document_id)
        except SnapshotReplaced:
            return None
        except (DocumentLoadFailed, SnapshotDamaged, CrdtError, MalformedMessage) as error:
            return _unreadable(document_id, f"{problem}; {error}" if problem else str(error))
        if _revision(loaded.snapshot) != _revision(head):
            return None  # the WAL may have been purged behind a newer snapshot
        if loaded.facts.deleted:
            return _tombstone(document_id, loaded.facts)
        return _alive(document_id, loaded.intake.replica, loaded.facts.generation, "store", problem)

    async def _load(self, document_id: str) -> tuple[Loaded, SnapshotHead | None]:
        request = LoadRequest(
            self._transport,
            self._snapshots,
            document_id,
            ServerSettings(),  # the widest limits, so that every accepted update loads
            self._clock,
            _NO_EPOCH,
            covered=Position(_NO_EPOCH, _ALL, _ALL),
        )
        return await load(request), await self._snapshots.head(document_id)


def _alive(document_id: str, replica: Replica, generation: int, where: str, problem: str) -> LiveDocument:
    version = replica.version()
    return LiveDocument(
        document_id, LiveState.LIVE, generation, version.vector, version.frontiers, where, problem, replica
    )


def _tombstone(document_id: str, facts: SnapshotMetadata) -> LiveDocument:
    state = LiveState.ERASED if facts.erased_ns else LiveState.DELETED
    return LiveDocument(document_id, state, facts.generation)


def _unreadable(document_id: str, problem: str) -> LiveDocument:
    return LiveDocument(document_id, LiveState.UNREADABLE, problem=problem)


def _failure(status: Status | None) -> str:
    if isinstance(status, Failed):
        return f"servers gave up loading it: see trace {status.trace_id} in their logs, then `lorogo reset`"
    return ""


def _revision(head: SnapshotHead | None) -> int:
    return 0 if head is None else head.revision


def _no_id() -> str:
    raise AssertionError("an audit stores no snapshot")
