"""A client by hand: sends exactly the given messages, and receives every answer."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Self, TypeVar

import nanoid
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages import chunks, replies, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_protocol.status import Starting, Up
from lorogo_server import Server, ServerSettings
from lorogo_server.journal.replication import JournalReplicas
from lorogo_server.journal_services import JournalServices
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import Message, Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.stores.statuses import Statuses

T = TypeVar("T")
Serve = Callable[..., Awaitable[Server]]

QUICK = ServerSettings(
    renew_seconds=0.2, lease_seconds=0.6, stale_seconds=0.9, pending_seconds=1.0, unfinished_seconds=1.0
)
WAIT = 10.0


def services_of(server: Server) -> JournalServices:
    """The services of a server's journal, which it has."""
    assert server.journal_services is not None
    return server.journal_services


def replicas_of(server: Server) -> JournalReplicas:
    """The journals of other servers that a server replicates."""
    replicas = services_of(server).replicas
    assert replicas is not None
    return replicas


class Probe:
    """Starts documents, sends chunks, makes calls."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.bus = transport.bus
        self.statuses = Statuses(transport)
        self.wal = transport.stream(subjects.WAL_STREAM)
        self.rejected = transport.stream(subjects.REJECTED_STREAM)
        self.inbox = self.bus.new_inbox()
        self.replies: asyncio.Queue[Reply] = asyncio.Queue()
        self.foreign = False  # moves the status without our headers
        self._caller = Caller(self.bus, SystemClock(), nanoid.generate)

    async def __aenter__(self) -> Self:
        await self._caller.start()
        await self.bus.subscribe(self.inbox, self._on_reply)
        await self.bus.barrier()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._caller.close()

    def _on_reply(self, message: Message) -> None:
        self.replies.put_nowait(replies.decode(message.data, message.headers))

    async def status(self, document_id: str) -> StatusEntry:
        entry = await self.statuses.read(document_id)
        assert entry is not None
        return entry

    async def move(self, document_id: str, retry_count: int = 0) -> str:
        """Move the status to STARTING, whatever it is now."""
        entry = await self.statuses.read(document_id)
        operation_id = nanoid.generate()
        before = None if self.foreign or not isinstance(entry and entry.status, Starting) else entry
        await self.statuses.write(
            document_id,
            Starting(operation_id, retry_count, time.time_ns()),
            expected_revision=0 if entry is None else entry.revision,
            trace="" if before is None else before.trace,
            failures=0 if before is None else before.failures,
        )
        return str(operation_id)

    async def init(self, document_id: str, body: bytes, *, expected: int | None = None) -> Message:
        """`expected`: the move is left to the server, over that revision."""
        headers = None if expected is None else {h.EXPECTED: str(expected)}
        return await self.bus.request(subjects.init(document_id), body, headers=headers, timeout=5)

    async def start(self, document_id: str) -> StatusEntry:
        """Have it served, as a client would, and wait until it is UP."""
        while True:
            try:
                operation_id = await self.move(document_id)
                break
            except WrongLastSequence:  # a server moved it just now: the restored document is served again
                continue
        await self.init(document_id, operation_id.encode())
        return await self.until_up(document_id)

    async def until_up(self, document_id: str) -> StatusEntry:
        async def up() -> StatusEntry | None:
            entry = await self.statuses.read(document_id)
            return entry if entry is not None and isinstance(entry.status, Up) else None

        return await until(up)

    def split(self, payload: bytes, log_id: str = "", size: int = 100_000) -> list[Chunk]:
        log_id = log_id or nanoid.generate()
        return list(chunks.split(payload, log_id, chunk_bytes_max=size, inbox=self.inbox))

    async def put(self, document_id: str, parts: Iterable[Chunk]) -> None:
        for chunk in parts:
            await self.wal.append(subjects.wal(document_id), chunk.data, headers=chunk.headers())

    async def answer(self) -> Reply:
        async with asyncio.timeout(WAIT):
            return await self.replies.get()

    async def send(self, document_id: str, payload: bytes, log_id: str = "") -> Reply:
        """Send an update and wait for its own answer; a new owner may answer older ones again."""
        parts = self.split(payload, log_id)
        await self.put(document_id, parts)
        while (reply := await self.answer()).log_id != parts[0].log_id:
            pass
        return reply

    async def accept(self, document_id: str, payload: bytes) -> Ack:
        reply = await self.send(document_id, payload)
        assert isinstance(reply, Ack), reply
        return reply

    async def refuse(self, document_id: str, payload: bytes) -> Nack:
        reply = await self.send(document_id, payload)
        assert isinstance(reply, Nack), reply
        return reply

    async def call(self, verb: str, document_id: str, **arguments: object) -> dict[str, object]:
        return await self._caller.call(verb, document_id, arguments, timeout=WAIT)

    async def value(self, document_id: str) -> object:
        return (await self.call("get", document_id))["value"]

    async def hear(self, subject: str) -> "asyncio.Queue[Message]":
        received: asyncio.Queue[Message] = asyncio.Queue()
        await self.bus.subscribe(subject, received.put_nowait)
        await self.bus.barrier()
        return received


class Writer:
    """A LoroDoc that gives each commit as an update."""

    _peers = itertools.count(1000)

    def __init__(self, snapshot: bytes = b"") -> None:
        self.doc = LoroDoc()
        self.doc.peer_id = next(self._peers)
        if snapshot:
            self.doc.import_(snapshot)

    def type(self, text: str, at: int | None = None) -> bytes:
        """Insert into the text `body`; the update that does so."""
        before = self.doc.oplog_vv
        body = self.doc.get_text("body")
        body.insert(len(body) if at is None else at, text)
        self.doc.commit()
        return self.doc.export(ExportMode.Updates(before))

    def everything(self) -> bytes:
        return self.doc.export(ExportMode.Updates(VersionVector()))

    @property
    def text(self) -> str:
        return self.doc.get_text("body").to_string()


async def so(fact: bool) -> bool:
    """A known fact, for `until`."""
    return fact


async def until(look: Callable[[], Awaitable[T | None]], seconds: float = WAIT) -> T:
    """The first thing that `look` finds."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                found = await look()
            except LorogoError:
                found = None
            if found:
                return found
            await asyncio.sleep(0.01)
