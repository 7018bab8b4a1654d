"""A hostile writer directly on NATS: whatever it floods a server with, what is held of it is bounded."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from loro import EphemeralStore

from lorogo_protocol import limits
from lorogo_protocol.limits import AWARENESS_BYTES_MAX, KIB
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import ChunkAssembler, MemoryBudget
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.position import Position
from lorogo_server.intake.decisions import (
    Accepted,
    Effect,
)
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Message, StoredMessage
from lorogo_transport.rpc import calls
from tests.server.closed_world import QUIET, ClosedWorld, closed_world, mint
from tests.server.support import QUICK, Writer

TOTAL = 1024 * KIB
TIGHT = replace(
    QUICK,
    lease_seconds=30.0,  # floods take the machine's time, and are not to cost the lease
    stale_seconds=60.0,
    durability="stream",
    update_bytes_max=256 * KIB,
    unfinished_bytes_max=512 * KIB,
    unfinished_total_bytes_max=TOTAL,
    unfinished_seconds=60.0,
)


@pytest.fixture
async def tight() -> AsyncIterator[ClosedWorld]:
    async with closed_world(TIGHT) as made:
        yield made


async def settled(closed: ClosedWorld) -> None:
    """Return when the server has received everything that the probe sent, and had its turns."""
    await closed.probe.bus.barrier()
    await closed.server.context.transport.bus.barrier()
    for _ in range(20):
        await asyncio.sleep(0)


def held(closed: ClosedWorld) -> int:
    return sum(host.unfinished_bytes for host in closed.server.hosts.values())


async def first_chunk(closed: ClosedWorld, document_id: str, log_id: str, size: int) -> None:
    await closed.probe.wal.append(
        subjects.wal(document_id), bytes(size), headers={h.LOG_ID: log_id, h.CHUNK_INDEX: "0"}
    )


async def test_updates_that_never_end(tight: ClosedWorld) -> None:
    """Of one document no more than its limit is held, of all no more than the worker's; edits go on."""
    documents = [f"d{number}" for number in range(6)]
    for document_id in documents:
        await tight.probe.start(document_id)
    for number in range(20):
        await first_chunk(tight, "d0", f"u{number}", 100 * KIB)
    await settled(tight)
    assert 0 < tight.server.hosts["d0"].unfinished_bytes <= TIGHT.unfinished_bytes_max
    for document_id in documents[1:]:
        for number in range(6):
            await first_chunk(tight, document_id, f"u{number}", 100 * KIB)
            await settled(tight)
            assert held(tight) <= TOTAL + 100 * KIB
    assert held(tight) > TOTAL // 2
    writer = Writer()
    await tight.probe.accept("d5", writer.type("goes on"))


async def test_a_load_takes_what_is_stored_however_much_others_hold(tight: ClosedWorld) -> None:
    """An ACKed update was whole in the WAL: the memory limit of a worker does not apply."""
    writer = Writer()
    update = writer.type("x" * 1000)
    await tight.probe.start("kept")
    parts = tight.probe.split(update, "kept-1", size=200)
    assert len(parts) > 2
    await tight.probe.put("kept", parts)
    assert isinstance(await tight.probe.answer(), Ack)
    room = tight.server.context.unfinished
    room.measured(10 * TOTAL)
    host = tight.server.hosts["kept"]
    host.request_reload()

    async with asyncio.timeout(10):
        while not host.state.is_settled:
            room.measured(10 * TOTAL)
            await asyncio.sleep(0)
    answer = await tight.asked("get", "kept", mint({"kept": "read"}))
    assert isinstance(answer, dict)
    assert answer["value"] == {"body": "x" * 1000}


def test_what_is_read_again_is_taken_however_much_others_hold() -> None:
    """As at a load, while the stream is read from its beginning; live the room counts again."""
    room = MemoryBudget(1)
    intake = Intake(Replica(lazy=True), History(), QUICK, head=Position(1), deleted=False)
    intake.go_live()
    intake.share(room, lambda digest: False)
    writer, sequences = Writer(), itertools.count(1)

    def take(payload: bytes) -> list[Effect]:
        effects: list[Effect] = []
        for chunk in chunks.split(payload, f"u{len(payload)}", chunk_bytes_max=50):
            stored = StoredMessage(subjects.wal("doc"), next(sequences), 1, chunk.data, chunk.headers())
            taken = intake.take(stored, 0.0)
            assert isinstance(taken, list)
            effects += taken
        return effects

    assert not any(isinstance(effect, Accepted) for effect in take(writer.type("x" * 100)))
    intake.begin_again(1)
    assert [type(effect) for effect in take(writer.everything())] == [Accepted]
    intake.go_live()
    assert not any(isinstance(effect, Accepted) for effect in take(writer.type("y" * 200)))


def test_a_budget_drops_what_is_no_longer_held() -> None:
    """Released bytes make room at once, lost ones at the next measurement."""
    room = MemoryBudget(1000)
    one, other = ChunkAssembler(room=room), ChunkAssembler(room=room)
    for number in range(9):
        assert one.add(chunks.Chunk(f"a{number}", 0, bytes(100)), sequence=number + 1, now=0.0) is None
    assert other.add(chunks.Chunk("b0", 0, bytes(100)), sequence=1, now=0.0) is None
    no = other.add(chunks.Chunk("b1", 0, bytes(200)), sequence=2, now=0.0)
    assert isinstance(no, chunks.AssemblyRejected)
    assert (no.log_id, no.reason, other.unfinished_bytes) == ("b1", Reason.CHUNK_MISSING, 100)
    assert len(one.expire(61.0)) == 9
    assert other.add(chunks.Chunk("b2", 0, bytes(700)), sequence=3, now=0.0) is None
    assert isinstance(
        other.add(chunks.Chunk("b3", 0, bytes(300)), sequence=4, now=0.0), chunks.AssemblyRejected
    )
    del other
    third = ChunkAssembler(room=room)
    assert isinstance(
        third.add(chunks.Chunk("c", 0, bytes(950)), sequence=1, now=0.0), chunks.AssemblyRejected
    )
    room.measured(0)
    assert third.add(chunks.Chunk("c", 0, bytes(950)), sequence=1, now=0.0) is None


async def test_a_thousand_log_ids(tight: ClosedWorld) -> None:
    """More updates begun than a document may have begun: the oldest go, and the rest stays small."""
    await tight.probe.start("doc")
    for number in range(limits.UNFINISHED_UPDATES_MAX + 200):
        await first_chunk(tight, "doc", f"u{number}", 10)
    await settled(tight)
    intake = tight.server.hosts["doc"].loaded.intake
    assert intake.unfinished == limits.UNFINISHED_UPDATES_MAX
    assert intake.unfinished_bytes == 10 * limits.UNFINISHED_UPDATES_MAX


async def test_presence_without_end(tight: ClosedWorld) -> None:
    """Above its share of bytes presence is dropped and counted; what is merged stays below its limit."""
    await tight.probe.start("doc")
    store = EphemeralStore(30_000)
    for number in range(100):
        store.set(f"member-{number}", "x" * 60_000)
        await tight.probe.bus.publish(subjects.awareness("doc"), store.encode(f"member-{number}"))
    await tight.probe.bus.publish(subjects.awareness("doc"), bytes(AWARENESS_BYTES_MAX + 1))
    await settled(tight)
    dropped = tight.server.stats()["presence_dropped"]
    assert isinstance(dropped, int)
    assert dropped > 20
    assert len(tight.server.hosts["doc"].endpoint.presence.encode_all()) <= limits.PRESENT_BYTES_MAX


async def test_calls_and_pings_without_end(tight: ClosedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers cannot go out, only so many wait; the rest gets `busy`, or nothing."""
    await tight.probe.start("doc")
    host = tight.server.hosts["doc"]
    bus, gate, waiting = tight.server.context.transport.bus, asyncio.Event(), 0
    publish = bus.publish

    async def slowly(subject: str, *data: bytes, **more: object) -> None:
        nonlocal waiting
        if subject.startswith("_INBOX"):
            waiting += 1
            await gate.wait()
        await publish(subject, *data, **more)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(bus, "publish", slowly)
    reply, token = tight.probe.bus.new_inbox(), mint({"doc": "read"})
    for _ in range(3000):
        host.endpoint._on_ping(Message(subjects.ping("doc"), b"", {}, reply))
    responder = host.endpoint._responder
    assert responder is not None
    for _ in range(3000):
        responder.on_message(Message(subjects.call("version", "doc"), b"", {h.TOKEN: token}, reply))
        responder.on_message(Message(subjects.call("version", "doc"), b"", {}, reply))
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting <= 1024 + 64 + calls._SENDING_MAX
    stats = tight.server.stats()
    assert stats["pings_dropped"] == 3000 - 1024
    refused = stats["calls_refused"]
    assert isinstance(refused, dict)
    assert refused[Reason.PERMISSION_DENIED.value] == 3000
    assert refused[Reason.BUSY.value] == 3000 - 64
    gate.set()


async def test_inits_without_end() -> None:
    """For documents that may not be opened any more: declined, and nothing is left behind."""
    async with closed_world(replace(QUIET, documents_max=2), world=MemoryNats()) as closed:
        for number in range(50):
            answer = await closed.probe.bus.request(subjects.init(f"doc-{number}"), timeout=10)
            assert (h.REASON in answer.headers) == (number >= 2)
        assert len(closed.server.hosts) == 2
        assert closed.server._registry._inits == 0
