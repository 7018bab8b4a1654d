"""A small owner of one document, written for tests: it says what a test tells it to say."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from loro import ExportMode, LoroDoc

import lorogo_client
from lorogo_client import Client, ClientSettings, Session, State
from lorogo_protocol.errors import HistoryTrimmed
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import chunks, replies, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.chunks import Assembled, ChunkAssembler
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.status import Down, Starting, Up
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import Message, Subscription, Transport
from lorogo_transport.rpc.calls import ReplyBudget, Responder
from lorogo_transport.stores import topology
from lorogo_transport.stores.republish import republished
from lorogo_transport.stores.statuses import Statuses

DEADLINE = 10.0
QUICK = ClientSettings(
    reply_seconds=0.3,
    doubt_seconds=0.1,
    ping_seconds=0.1,
    stale_seconds=0.5,
    retry_seconds_min=0.01,
    retry_seconds_max=0.1,
    head_grace_seconds=0.02,
    open_seconds=DEADLINE,
    close_seconds=1.0,
    store_open_seconds=0.2,
)


async def eventually(true: Callable[[], bool], what: str = "") -> None:
    """Look again after every turn of the loop, within the deadline."""
    async with asyncio.timeout(DEADLINE):
        while not true():  # noqa: ASYNC110 - the things that tests look at have no events of their own
            await asyncio.sleep(0.002)
    assert true(), what


async def until_state(session: Session, wanted: State) -> None:
    async with asyncio.timeout(DEADLINE):
        async for state in session.states():
            if state is wanted:
                return


async def new_world(**options: Any) -> MemoryNats:
    """A NATS with the streams that lorogo needs."""
    world = MemoryNats(rng=random.Random(1), **options)
    transport = world.connect("setup")
    for spec in topology.specs():
        await transport.ensure(spec)
    return world


@asynccontextmanager
async def client_of(
    world: MemoryNats,
    settings: ClientSettings = QUICK,
    *,
    transport: Transport | None = None,
    seed: int = 1,
    store: Path | None = None,
) -> AsyncIterator[Client]:
    """A client whose ids and chance come from a seed."""
    ids = itertools.count(1)
    async with lorogo_client.connect(
        transport or world.connect("client"),
        store=store,
        settings=settings,
        rng=random.Random(seed),
        new_id=lambda: f"id-{seed}-{next(ids)}",
    ) as client:
        yield client


class FakeOwner:
    """Takes inits, answers pings and calls, ACKs updates; every answer can be bent."""

    def __init__(self, world: MemoryNats, document_id: str = "doc", *, name: str = "fake") -> None:
        self.world = world
        self.document_id = document_id
        self.name = name
        self.transport = world.connect(name)
        self.replica = crdt.Replica()
        self.generation = 0
        self.token = 0
        self.revision = 0
        self.head = 0
        self.received: list[tuple[str, bytes]] = []  # (log id, bytes), as they came
        self.syncs: list[dict[str, object]] = []
        self.calls: list[str] = []
        self.arguments: list[dict[str, object]] = []  # of each call
        self.inits = 0
        # how to misbehave
        self.mute = 0  # updates that get no answer
        self.nacks: deque[Reason] = deque()
        self.leases: deque[int] = deque()  # tokens to put into the next ACKs
        self.refuse_calls: deque[Reason] = deque()
        self.announce = True
        self.pinged = True  # whether pings are answered
        self.takes = True  # whether inits are taken
        self.old = False  # a server that takes only what a client has moved to STARTING
        self.deleted = False
        self.presence = b""
        self.sync_payload: bytes | None = None  # instead of a snapshot
        self._statuses = Statuses(self.transport)
        self._assembler = ChunkAssembler()
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: list[Subscription] = []
        self._serving: list[Subscription] = []

    async def __aenter__(self) -> Self:
        bus = self.transport.bus
        self._subscriptions.append(
            await bus.subscribe(subjects.init(self.document_id), self._on_init, queue=subjects.INIT_QUEUE)
        )
        await bus.barrier()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()

    async def vanish(self) -> None:
        """Die without a word."""
        for subscription in (*self._subscriptions, *self._serving):
            await subscription.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def vanish_with_statuses(self) -> None:
        """Die, and NATS loses the statuses: the bucket is made anew, and begins lower."""
        await self.vanish()
        self.world.lose_stream(subjects.STATUS_STREAM)
        for spec in topology.specs():
            await self.transport.ensure(spec)

    async def stop(self) -> None:
        """Go with grace: the status says DOWN."""
        await self.vanish()
        await self._statuses.write(
            self.document_id,
            Down(0),
            expected_revision=self.revision,
            server=self.name,
            lease=self.token,
            head=self.head,
        )

    async def renew(self, *, head: int | None = None) -> None:
        """Write UP again."""
        self.revision = await self._statuses.write(
            self.document_id,
            Up(self.name, self.world.now_ns()),
            expected_revision=self.revision,
            server=self.name,
            lease=self.token,
            head=self.head if head is None else head,
        )

    def text(self) -> str:
        return str(self.replica.doc.get_text("t").to_string())

    async def edit(self, text: str, *, tell: bool = True) -> bytes:
        """An edit of somebody else, at the end of the text."""
        doc = self.replica.doc
        before = doc.oplog_vv
        body = doc.get_text("t")
        body.insert(body.len_unicode, text)
        doc.commit()
        update = doc.export(ExportMode.Updates(before))
        previous, self.head = self.head, self.head + 1
        if tell:
            await self.publish_accepted(f"other-{self.head}", update, previous)
        return update

    async def publish_accepted(
        self, log_id: str, update: bytes, previous: int, *, chunk_bytes: int = 1 << 20, omitted: bool = False
    ) -> None:
        facts = {h.SEQUENCE: str(self.head), h.PREVIOUS: str(previous), h.LEASE: str(self.token)}
        subject = subjects.accepted(self.document_id)
        if omitted:
            headers = {h.LOG_ID: log_id, h.OMITTED: str(len(update)), **facts}
            await self.transport.bus.publish(subject, headers=headers)
            return
        for chunk in chunks.split(update, log_id, chunk_bytes_max=chunk_bytes):
            await self.transport.bus.publish(subject, chunk.data, headers={**chunk.headers(), **facts})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_init(self, message: Message) -> None:
        self.inits += 1
        self._spawn(self._take(message))

    async def _take(self, message: Message) -> None:
        bus = self.transport.bus
        operation = message.data.decode()
        entry = await self._statuses.read(self.document_id)
        revision = 0 if entry is None else entry.revision
        if operation and (self.old or h.EXPECTED not in message.headers):
            if entry is None or not isinstance(entry.status, Starting):
                await bus.publish(message.reply, headers={h.REASON: "conflict"})
                return
            assert entry.status.operation_id == operation
        elif operation and message.headers[h.EXPECTED] != str(revision):
            await bus.publish(message.reply, headers={h.REASON: "conflict"})
            return
        if not self.takes:
            return
        try:
            self.token = self.revision = await self._statuses.write(
                self.document_id,
                Starting(operation or f"op-{self.inits}", 0, 0),
                expected_revision=revision,
                server=self.name,
            )
        except WrongLastSequence:
            await bus.publish(message.reply, headers={h.REASON: "conflict"})
            return
        answer = {h.SERVER: self.name}
        await bus.publish(message.reply, headers=answer if self.old else {**answer, h.LEASE: str(self.token)})
        await self.serve()

    async def serve(self) -> None:
        bus = self.transport.bus
        budget = ReplyBudget(1 << 30)
        responder = Responder(bus, SystemClock(), lambda _: self._answer, spawn=self._spawn, budget=budget)
        for subject, handler in (
            (subjects.ping(self.document_id), self._on_ping),
            (subjects.calls(self.document_id), responder.on_message),
            (subjects.committed(self.document_id), self._on_committed),
        ):
            self._serving.append(await bus.subscribe(subject, handler))
        await bus.barrier()
        await self.renew()

    def _on_ping(self, message: Message) -> None:
        if self.pinged:
            self._spawn(self.transport.bus.publish(message.reply))

    def _on_committed(self, message: Message) -> None:
        stored = republished(message).stored
        chunk = chunks.parse(stored.headers, stored.data)
        match self._assembler.add(chunk, sequence=stored.sequence, now=0.0):
            case Assembled() as update:
                self.received.append((update.log_id, update.payload))
                self._spawn(self._judge(update))
            case other:
                assert other is None

    async def _judge(self, update: Assembled) -> None:
        if self.mute:
            self.mute -= 1
            return
        reply: replies.Reply
        if self.nacks:
            reply = Nack(update.log_id, update.digest, self.nacks.popleft(), "as told")
        else:
            try:
                outcome: crdt.Applied | crdt.Unready | None = self.replica.apply(update.payload)
            except HistoryTrimmed:
                outcome = None
            if outcome is None:
                reply = Nack(update.log_id, update.digest, Reason.HISTORY_TRIMMED, "too old")
            elif isinstance(outcome, crdt.Unready):
                reply = Nack(
                    update.log_id, update.digest, Reason.MISSING_DEPENDENCIES, "something is missing"
                )
            else:
                previous, self.head = self.head, update.sequence
                if self.announce and outcome.new:
                    await self.publish_accepted(update.log_id, update.payload, previous)
                lease = self.leases.popleft() if self.leases else self.token
                reply = Ack(update.log_id, update.digest, update.sequence, "stream", lease)
        body, headers = replies.encode(reply)
        await self.transport.bus.publish(update.inbox, body, headers=headers)

    async def _answer(self, verb: str, arguments: dict[str, object]) -> dict[str, object]:
        self.calls.append(verb)
        self.arguments.append(arguments)
        if self.deleted:
            raise Refused(Reason.DELETED, "it was deleted")
        if self.refuse_calls:
            raise Refused(self.refuse_calls.popleft(), "as told")
        version = self.replica.version()
        facts: dict[str, object] = {
            "frontiers": version.frontiers,
            "vector": version.vector,
            "sequence": self.head,
            "log_id": "log",
            "lease": self.token,
            "generation": self.generation,
            "durability": "stream",
        }
        match verb:
            case "sync":
                self.syncs.append(arguments)
                return {**facts, "presence": self.presence, **self._synced(arguments)}
            case "get":
                return {"value": self.replica.value(), **facts}
            case "history":
                return {"versions": [{"time_ns": 1, "frontiers": b"", "sequence": 1}]}
            case "fork":
                return {"document": arguments["to"]}
            case "export":
                return {"payload": self.replica.snapshot(), **facts}
            case _:
                return facts

    def _synced(self, arguments: dict[str, object]) -> dict[str, object]:
        frontiers, vector = arguments.get("frontiers"), arguments.get("vector")
        assert isinstance(frontiers or vector, bytes)
        known = vector if isinstance(vector, bytes) else self.replica.vector_of(frontiers)  # type: ignore[arg-type]
        if known is None:
            return {"mode": "vector"}
        other_life = arguments.get("generation", self.generation) != self.generation
        if known == crdt.nothing_known() or other_life or not self.replica.can_serve_since(known):
            return {"mode": "snapshot", "payload": self.sync_payload or self.replica.snapshot()}
        if frontiers == self.replica.frontiers():
            return {"mode": "current", "payload": b""}
        return {"mode": "updates", "payload": self.replica.updates_since(known)}

    def compact(self) -> None:
        """Keep the state, forget the history before it."""
        self.replica = crdt.Replica.from_snapshot(self.replica.shallow_snapshot(self.replica.frontiers()))


def type_in(doc: LoroDoc, text: str, at: int = 0) -> None:
    doc.get_text("t").insert(at, text)


def text_of(session: Session) -> str:
    return str(session.doc.get_text("t").to_string())
