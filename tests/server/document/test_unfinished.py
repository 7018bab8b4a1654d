"""Chunks of updates that are never finished: their part of the WAL is bounded."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from lorogo_protocol.limits import KIB, MIB
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.chunks import Chunk, ChunkAssembler
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_server import ServerSettings
from lorogo_server.compaction.wal_usage import WalUsage
from lorogo_server.document import host_loop, wal_reader
from lorogo_server.document.host import Host
from lorogo_server.intake import backlog
from lorogo_transport.ports import Handler, StreamState, Subscription
from tests.server.support import QUICK, Probe, Serve, Writer, until
from tests.server.worlds import memory_world

TIGHT = replace(
    QUICK,
    durability="stream",
    update_bytes_max=256 * KIB,
    unfinished_bytes_max=512 * KIB,
    unfinished_seconds=60.0,
    compact_wal_bytes=128 * KIB,
)


async def flood(probe: Probe, document_id: str, sizes: int, *, log_id: str = "flood", first: int = 0) -> None:
    """Store so many chunks of 64 KiB, without an end."""
    for index in range(first, first + sizes):
        await probe.wal.append(
            subjects.wal(document_id),
            bytes(64 * KIB),
            headers={h.LOG_ID: log_id, h.CHUNK_INDEX: str(index)},
        )


async def wal_messages_at_most(probe: Probe, document_id: str, most: int) -> None:
    """Return when the WAL holds no more messages of the document."""

    async def few() -> bool:
        return await probe.wal.count(subjects.wal(document_id)) <= most

    await until(few)


@pytest.mark.parametrize("updates", [1, 8])
async def test_unfinished_chunks_leave_the_wal(serve: Serve, probe: Probe, unique: str, updates: int) -> None:
    """Of one endless update or of many; ACKed updates of the document stay, and edits go on."""
    server = await serve(TIGHT)
    attacked_id, other_id = f"{unique}-attacked", f"{unique}-other"
    attacked, other = Writer(), Writer()
    for document_id in (attacked_id, other_id):
        await probe.start(document_id)
    await probe.accept(attacked_id, attacked.type("before "))
    for update in range(updates):
        await flood(probe, attacked_id, 64 // updates, log_id=f"u{update}")
        await probe.accept(other_id, other.type("x"))
        await probe.accept(attacked_id, attacked.type("x"))
    most = TIGHT.unfinished_bytes_max + TIGHT.compact_wal_bytes
    await wal_messages_at_most(probe, attacked_id, most // (64 * KIB) + updates + 2)
    host = server.hosts[attacked_id]
    host.stop("to load it again")
    await host.closed.wait()
    await probe.start(attacked_id)
    assert await probe.value(attacked_id) == {"body": "before " + updates * "x"}


async def test_a_flooded_document_is_read_and_not_followed(
    serve: Serve, probe: Probe, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copies would delay those of all documents; every update is answered, and it is followed again."""
    monkeypatch.setattr(backlog, "_RATE_BYTES_MAX", 1000)
    server = await serve(TIGHT)
    bus, received = server.context.transport.bus, Counter[str]()
    subscribe = bus.subscribe

    async def counted(subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        received[subject] += 1
        return await subscribe(subject, handler, queue=queue)

    monkeypatch.setattr(type(bus), "subscribe", lambda _, *args, **options: counted(*args, **options))
    await probe.start(unique)
    writer = Writer()
    parts = [probe.split(writer.type("letters ")) for _ in range(50)]
    for part in parts:
        await probe.put(unique, part)
    answers = [await probe.answer() for _ in parts]
    assert {answer.log_id for answer in answers if isinstance(answer, Ack)} == {
        one[0].log_id for one in parts
    }
    await probe.accept(unique, writer.type("end"))
    assert received[subjects.committed(unique)] > 1
    assert await probe.value(unique) == {"body": writer.text}


async def test_a_flooded_document_is_read_in_rounds(
    serve: Serve, probe: Probe, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rounds its calls and its compaction have their turn."""
    monkeypatch.setattr(backlog, "_RATE_BYTES_MAX", 1000)
    monkeypatch.setattr(host_loop, "_ROUND_BYTES_MAX", 1000)
    server = await serve(TIGHT)
    await probe.start(unique)
    flooded, read_on, rounds = server.hosts[unique], wal_reader.read_to_the_end, list[int]()

    async def counted(one: Host, *, bytes_max: int | None = None) -> None:
        before = one.loaded.intake.seen_bytes
        await read_on(one, bytes_max=bytes_max)
        rounds.append(one.loaded.intake.seen_bytes - before)

    monkeypatch.setattr(wal_reader, "read_to_the_end", counted)
    writer = Writer()
    parts = [probe.split(writer.type("letters ")) for _ in range(50)]
    async with flooded.busy:
        for part in parts:
            await probe.put(unique, part)
    for _ in parts:
        assert isinstance(await probe.answer(), Ack)
    assert sum(rounds) > 2000
    assert max(rounds) < 2000
    assert await probe.value(unique) == {"body": writer.text}


async def test_a_flooded_document_is_followed_again_after_it_was_restored(
    serve: Serve, probe: Probe, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restoration reads what was not received; copies that come after it are received."""
    server = await serve(TIGHT)
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("before "))
    await probe.call("delete", unique)
    deleted = server.hosts[unique]

    async def waits() -> bool:
        return deleted.compacting.locked()

    async def not_followed() -> bool:
        return deleted.copies is None

    with monkeypatch.context() as patch:
        patch.setattr(backlog, "_RATE_BYTES_MAX", 1000)
        async with asyncio.TaskGroup() as group, deleted.busy:
            group.create_task(probe.call("restore", unique))
            await until(waits)  # for us, and so it is the next
            await flood(probe, unique, 1)
            await until(not_followed)
    await probe.accept(unique, writer.type("behind"))
    assert await probe.value(unique) == {"body": "before behind"}


async def test_the_sender_of_a_dropped_update_is_answered(serve: Serve, probe: Probe, unique: str) -> None:
    """Its final chunk comes to an update that was dropped: chunks are missing, send it again."""
    await serve(TIGHT)
    await probe.start(unique)
    parts = probe.split(bytes(192 * KIB), size=64 * KIB)
    await probe.put(unique, parts[:1])
    await flood(probe, unique, 10)
    await probe.put(unique, parts[1:])
    answer = await probe.answer()
    assert isinstance(answer, Nack)
    assert (answer.log_id, answer.reason) == (parts[0].log_id, Reason.CHUNK_MISSING)


async def test_chunks_of_a_document_that_is_not_open_leave_a_wal_that_is_nearly_full() -> None:
    """A server loads it, compacts it, and another document is written to all the time."""
    settings = replace(TIGHT, wal_bytes_max=2 * MIB, compact_idle_bytes=64 * KIB)
    async with memory_world() as world:
        await world.server(settings)
        await world.probe.start("other")
        writer = Writer()
        await flood(world.probe, "unopened", 24)
        await world.probe.accept("other", writer.type("x"))
        world.clock.ahead += 11
        await wal_messages_at_most(world.probe, "unopened", 9)
        await world.probe.accept("other", writer.type("x"))


def test_an_unfinished_update_is_dropped_when_too_much_came_since() -> None:
    """Its own bytes count, those of whole updates, and those of an update that is too large to be held."""
    assembler = ChunkAssembler(update_bytes_max=100)
    for sequence, log_id in enumerate(("small", "large", "large", "large"), start=1):
        assembler.add(Chunk(log_id, sequence, bytes(60)), sequence=sequence, now=0.0)
    assert assembler.expire(0.0, span_bytes_max=240) == []
    assert [no.log_id for no in assembler.expire(0.0, span_bytes_max=180)] == ["small"]
    late = assembler.expire(0.0, span_bytes_max=179)
    assert [(no.log_id, no.reason, no.sequences) for no in late] == [
        ("large", Reason.CHUNK_MISSING, (2, 3, 4))
    ]
    assert assembler.unfinished == 0


@pytest.mark.parametrize(
    ("wal", "share"),
    [(-1, 256), (0, 256), (64, 64), (128, 64), (256, 64), (512, 128), (1024, 256), (8192, 256)],
)
def test_one_document_has_a_share_of_the_wal(wal: int, share: int) -> None:
    level = WalUsage()
    level.update(StreamState(0, 0, 0, 0, 0, bytes_max=wal * MIB if wal > 0 else wal))
    assert level.document_share(ServerSettings()) == share * MIB
