"""Content that only an owner's memory holds is kept there until it is stored."""

from dataclasses import replace

import pytest

from lorogo_protocol.messages import subjects
from lorogo_server import Server
from lorogo_server.compaction import compaction
from lorogo_server.document.host import Host
from lorogo_transport.errors import RequestTimeout, StorageFull
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotHead, SnapshotReplaced, SnapshotStore
from tests.server.slow_writes import writing_slowly
from tests.server.support import QUICK, Writer, so, until
from tests.server.worlds import World


async def compacted_twice(
    memory: World, writer: Writer, *, history_seconds: float = 0.0
) -> tuple[Server, Host]:
    """An owner that trims all history, or some; of its first words nothing is in the WAL any more."""
    server, _ = await memory.server(replace(QUICK, history_seconds=history_seconds))
    probe = memory.probe
    await probe.start("doc")
    for word in ("one ", "two "):
        await probe.accept("doc", writer.type(word))
        await probe.call("compact", "doc")
    await probe.accept("doc", writer.type("three "))
    return server, server.hosts["doc"]


async def loaded_by_the_next(memory: World, server: Server) -> object:
    """Load a document as a server that has only the content of NATS."""
    await server.stop()
    await memory.server()
    await memory.probe.start("doc")
    return await memory.probe.value("doc")


@pytest.mark.parametrize("trims", [True, False])
async def test_a_snapshot_that_is_lost_while_it_is_read_back_is_stored_again(
    memory: World, monkeypatch: pytest.MonkeyPatch, trims: bool
) -> None:
    """The one before it is gone with it, and the WAL behind that is purged: memory is all there is."""
    server, host = await compacted_twice(memory, Writer(), history_seconds=0.0 if trims else 600.0)
    store = server.context.snapshots
    get = store.get

    async def lost(head: SnapshotHead, *, bytes_max: int) -> bytes:
        memory.nats.store(subjects.SNAPSHOT_STREAM).purge(">", 1 << 60)
        monkeypatch.undo()
        return await get(head, bytes_max=bytes_max)

    monkeypatch.setattr(store, "get", lost)
    with pytest.raises(SnapshotReplaced):
        await compaction.compact(host)
    await until(lambda: so(not host.state.memory_is_only_copy))
    assert await memory.probe.value("doc") == {"body": "one two three "}
    assert await store.head("doc") is not None
    assert await loaded_by_the_next(memory, server) == {"body": "one two three "}


async def test_a_snapshot_that_is_damaged_while_it_is_read_back_is_stored_again(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head is there, and its bytes are not: no server can merge that, and its writer holds all of it."""
    server, host = await compacted_twice(memory, Writer())
    store = server.context.snapshots
    get = store.get

    async def damaged(head: SnapshotHead, *, bytes_max: int) -> bytes:
        memory.nats.store(subjects.SNAPSHOT_STREAM).purge(store.chunk_subject(head.nuid), 1 << 60)
        monkeypatch.undo()
        return await get(head, bytes_max=bytes_max)

    monkeypatch.setattr(store, "get", damaged)
    with pytest.raises(SnapshotDamaged):
        await compaction.compact(host)
    await until(lambda: so(not host.state.memory_is_only_copy))
    assert await loaded_by_the_next(memory, server) == {"body": "one two three "}


async def test_a_snapshot_that_is_lost_with_the_connection_is_stored_again(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was confirmed, and NATS ended before it was read back, and forgot it: memory is all there is."""
    server, host = await compacted_twice(memory, Writer())

    async def cut_off(_head: SnapshotHead, *, bytes_max: int) -> bytes:
        memory.nats.store(subjects.SNAPSHOT_STREAM).purge(">", 1 << 60)
        monkeypatch.undo()
        raise RequestTimeout(f"no answer, of {bytes_max} bytes at most")

    monkeypatch.setattr(server.context.snapshots, "get", cut_off)
    with pytest.raises(RequestTimeout):
        await compaction.compact(host)
    assert host.state.is_settled
    await until(lambda: so(not host.state.memory_is_only_copy))
    assert await loaded_by_the_next(memory, server) == {"body": "one two three "}


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "another's"])
async def test_memory_is_kept_though_what_was_stored_is_gone_and_there_is_no_room(
    memory: World, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The document was thrown away for its trim line, and what is stored instead held less."""
    server, host = await compacted_twice(memory, Writer())
    store, facts = server.context.snapshots, host.loaded.facts
    if lost:
        memory.nats.store(subjects.SNAPSHOT_STREAM).purge(">", 1 << 60)
    else:
        newest = host.loaded.follower.position.sequence
        assert memory.nats.lose_messages(subjects.WAL_STREAM, [newest]) == 1
        host.rewind()
        await until(lambda: so(host.state.memory_is_only_copy))
        head = host.loaded.snapshot
        assert head is not None
        old = await store.get(head, bytes_max=1 << 20)  # as a journal that knows no more brings it back
        await store.put("doc", old, facts.render(), expected_revision=head.revision)
    put, tries = SnapshotStore._put_chunks, list[str]()

    async def full(store: SnapshotStore, document_id: str, nuid: str, data: bytes) -> int:
        tries.append(nuid)
        if len(tries) > 1:
            raise StorageFull("no room")
        return await put(store, document_id, nuid, data)

    with monkeypatch.context() as no_room:
        no_room.setattr(SnapshotStore, "_put_chunks", full)
        with pytest.raises(StorageFull):
            await compaction.compact(host)
        assert host.state.memory_is_only_copy
        assert host.state.is_settled
    await until(lambda: so(not host.state.memory_is_only_copy))
    assert await loaded_by_the_next(memory, server) == {"body": "one two three "}


async def test_what_is_accepted_and_lost_while_a_snapshot_is_stored_is_stored_by_the_next(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot was made before that: it does not store what only memory holds since."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("one "))
    host = server.hosts["doc"]
    async with writing_slowly(server, monkeypatch, compaction.compact) as storing:
        await probe.accept("doc", writer.type("two "))
        assert memory.nats.lose_messages(subjects.WAL_STREAM, [host.loaded.follower.position.sequence]) == 1
        host.rewind()
        await until(lambda: so(host.state.memory_is_only_copy))
    await storing
    assert host.state.memory_is_only_copy
    await until(lambda: so(not host.state.memory_is_only_copy))
    assert await loaded_by_the_next(memory, server) == {"body": "one two "}
