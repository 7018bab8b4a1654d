"""A client with a store: offline work, crashes, and coming back."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import lorogo_client
from lorogo_client import (
    DocumentDeleted,
    NotStored,
    State,
    StoreFailed,
    StoreLocked,
    Unsaved,
)
from lorogo_client.store import Store
from lorogo_log.storage.disk import DiskFile
from lorogo_protocol.limits import UPDATE_PEERS_MAX
from lorogo_protocol.loro import crdt
from lorogo_testing.memory_nats import MemoryNats
from tests.client.stores import crashed, offline
from tests.client.support import (
    DEADLINE,
    QUICK,
    FakeOwner,
    client_of,
    eventually,
    new_world,
    text_of,
    type_in,
    until_state,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


async def begun(world: MemoryNats, store: Path, text: str = "base ") -> None:
    """The document is in the store, with this text saved."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, text)
        await session.flush(DEADLINE)


async def test_a_stored_document_opens_offline_and_its_edits_arrive_later(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Open, edit, leave, come back: the owner gets everything, merged into few updates."""
    await begun(world, store)
    async with offline(world, store) as client, client.open("doc") as session:
        assert session.state is State.OFFLINE
        assert text_of(session) == "base "
        for number in range(50):
            type_in(session.doc, f"{number} ", at=session.doc.get_text("t").len_unicode)
            session.commit()
        assert session.state is State.OFFLINE
        assert session.unsaved == 50
        await session.stored(DEADLINE)
    assert len(owner.received) == 1
    async with client_of(world, store=store, seed=2) as client:
        assert [(one.document_id, one.unsaved) for one in client.stored_documents()] == [("doc", 50)]
        async with client.open("doc") as session:
            await session.flush(DEADLINE)
            assert owner.text() == text_of(session) == "base " + "".join(f"{n} " for n in range(50))
        assert [one.unsaved for one in client.stored_documents()] == [0]
    assert len(owner.received) == 2


async def test_a_crash_loses_nothing_that_was_stored(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Without a farewell: what stored() promised is there, under a new peer id."""
    await begun(world, store)
    async with offline(world, store) as client, client.open("doc") as session:
        type_in(session.doc, "kept ", at=5)
        await session.stored(DEADLINE)
        peer = session.doc.peer_id
        image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "base kept "
        assert session.doc.peer_id != peer
        type_in(session.doc, "more", at=10)
        await session.stored(DEADLINE)
        image = crashed(image)
    async with client_of(world, store=image, seed=3) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "base kept more"


async def test_an_update_leaves_only_when_it_is_on_the_disk(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk hangs nothing is sent, and stored() does not return."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        await session.stored(DEADLINE)
        free, sync = threading.Event(), DiskFile.sync
        asked = threading.Event()

        def hanging(file: DiskFile) -> None:
            asked.set()
            assert free.wait(DEADLINE)
            sync(file)

        monkeypatch.setattr(DiskFile, "sync", hanging)
        type_in(session.doc, "x")
        session.commit()
        storing = asyncio.ensure_future(session.stored(DEADLINE))
        await eventually(asked.is_set)
        await owner.edit("theirs")
        await eventually(lambda: "theirs" in text_of(session))  # the loop goes on meanwhile
        assert owner.received == []
        assert not storing.done()
        free.set()
        await storing
        await session.flush(DEADLINE)
        assert len(owner.received) == 1


async def test_what_may_have_been_sent_is_sent_again_byte_for_byte(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """A crash between sending and ACK: the same log id, the same bytes, the edit once."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        owner.mute = 1
        type_in(session.doc, "once")
        session.commit()
        await eventually(lambda: len(owner.received) == 1)
        image = crashed(store)
        await session.flush(DEADLINE)
    first = owner.received[0]
    owner.received.clear()
    async with client_of(world, store=image, seed=2) as client, client.open("doc") as session:
        assert session.unsaved == 1 or owner.received
        await session.flush(DEADLINE)
        assert owner.received == [first]
        assert owner.text() == text_of(session) == "once"


async def test_edits_go_on_top_when_the_owner_trimmed_its_history_meanwhile(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Rebased once: after a crash between rebase and ACK the same rebased update is sent, not another."""
    await begun(world, store)
    async with offline(world, store) as client, client.open("doc") as session:
        type_in(session.doc, "mine", at=5)
        await session.stored(DEADLINE)
    await owner.edit("theirs ", tell=False)
    owner.compact()
    before = crashed(store)  # both lives rebase the same edits
    owner.received.clear()
    owner.mute = 1000
    async with client_of(world, store=before, seed=2) as client, client.open("doc") as session:
        await eventually(lambda: len(owner.received) >= 1)
        rebased = owner.received[0]
        after = crashed(before)
        owner.mute = 0
        await session.flush(DEADLINE)
        assert sorted(owner.text()) == sorted("base minetheirs ")
    owner.received.clear()
    await owner.edit("later ", tell=False)
    owner.compact()
    async with client_of(world, store=after, seed=3) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert all(received == rebased for received in owner.received)
        assert owner.text() == text_of(session)
        assert owner.text().count("mine") == 1
        assert owner.text().count("theirs") == 1


async def test_another_generation_gets_the_unsaved_edits_only(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Deleted and restored while we were away: the owner's state counts, and what we never sent."""
    await begun(world, store, "acked ")
    async with offline(world, store) as client, client.open("doc") as session:
        type_in(session.doc, "unsent", at=6)
        await session.stored(DEADLINE)
    owner.replica = crdt.Replica()
    owner.generation += 1
    await owner.edit("restored", tell=False)
    async with client_of(world, store=store, seed=2) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert session.generation == 1
        assert sorted(owner.text()) == sorted("restoredunsent")
    async with offline(world, store, seed=3) as client, client.open("doc") as session:
        assert text_of(session) == owner.text()
        assert session.generation == 1


async def test_the_edits_of_a_deleted_document_stay_in_the_store(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """A typed error, and the edits can be taken out; after a restore they arrive."""
    await begun(world, store)
    async with offline(world, store) as client, client.open("doc") as session:
        type_in(session.doc, "precious", at=5)
        await session.stored(DEADLINE)
    owner.deleted = True
    async with client_of(world, store=store, seed=2) as client:
        with pytest.raises(DocumentDeleted):
            await client.open("doc")
    async with offline(world, store, seed=3) as client:
        with pytest.raises(DocumentDeleted):
            await client.open("doc")
    door = Store.open(store)
    assert [(one.deleted, one.unsaved) for one in door.documents()] == [(True, 1)]
    taken = crdt.Replica.from_snapshot(door.export("doc"))
    assert str(taken.doc.get_text("t").to_string()) == "base precious"
    assert len(door.unsaved("doc")) == 1
    owner.deleted = False
    owner.generation += 1
    async with client_of(world, store=store, seed=4) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "base precious"
        assert not client.stored_documents()[0].deleted


async def test_what_the_server_lost_the_next_sync_brings_back(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """ACKed, and gone on the server: the copy in the store still has it, edits of others included."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "ours ")
        await session.flush(DEADLINE)
        await owner.edit("theirs")
        await eventually(lambda: "theirs" in text_of(session))
    owner.replica = crdt.Replica()
    async with client_of(world, store=store, seed=2) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "ours theirs"


async def test_what_is_of_many_peers_comes_back_in_parts(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """An owner takes each of them; after a crash they go out again under the same ids, byte for byte."""
    for peer in range(2 * UPDATE_PEERS_MAX + 1):
        owner.replica.doc.peer_id = peer + 1
        owner.replica.doc.get_map("m").insert("by", peer)
        owner.replica.doc.commit()
    whole = owner.replica.value()
    async with client_of(world, store=store) as client, client.open("doc") as session:
        await session.stored(DEADLINE)
    owner.replica, owner.mute = crdt.Replica(), 3
    async with client_of(world, store=store, seed=2) as client, client.open("doc") as session:
        await eventually(lambda: len(owner.received) == 3)
        image = crashed(store)
        await session.flush(DEADLINE)
        assert owner.replica.value() == whole
    parts = owner.received[:3]
    assert not any(crdt.too_wide(payload) for _, payload in parts)
    owner.replica = crdt.Replica()
    owner.received.clear()
    async with client_of(world, store=image, seed=3) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.received == parts
        assert owner.replica.value() == session.doc.get_deep_value() == whole


async def test_a_document_that_is_not_stored_does_not_open_offline(world: MemoryNats, store: Path) -> None:
    """A clear error at once; nobody is shown an empty document that is not empty."""
    async with offline(world, store) as client:
        with pytest.raises(NotStored, match="create=True"):
            await client.open("doc")
        assert client.stored_documents() == []


async def test_an_app_may_begin_a_document_offline(world: MemoryNats, owner: FakeOwner, store: Path) -> None:
    """create=True: empty here, merged with what the server has."""
    async with offline(world, store) as client, client.open("doc", create=True) as session:
        type_in(session.doc, "mine ")
        await session.stored(DEADLINE)
        image = crashed(store)
    await owner.edit("theirs", tell=False)
    async with client_of(world, store=image, seed=2) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session)
        assert sorted(owner.text()) == sorted("mine theirs")


async def test_create_is_for_when_the_server_cannot_say(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Connected, the document is what the server has, however long that takes."""
    await owner.edit("theirs", tell=False)
    impatient = replace(QUICK, store_open_seconds=0.001)
    async with client_of(world, impatient, store=store) as client:
        async with client.open("doc", create=True) as session:
            assert text_of(session) == "theirs"
        async with client.open("nobody-serves-it", create=True, timeout=0.3) as session:
            assert session.unsaved == 0
            assert session.state is State.CONNECTING


async def test_a_stored_document_opens_although_nobody_serves_it(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Connected, but no server: after a moment the copy is given; ready() tells when it is synced."""
    await begun(world, store)
    await owner.stop()
    async with client_of(world, store=store, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "base "
        assert session.state is State.CONNECTING
        async with FakeOwner(world, name="next") as other:
            other.replica = owner.replica
            await session.ready(DEADLINE)
            await until_state(session, State.SAVED)


async def test_a_nats_that_says_nothing_does_not_hold_the_app_up(store: Path) -> None:
    """Something listens and never answers: connect() comes back after the moment, and goes on trying."""
    calls = 0
    silent = asyncio.Event()

    async def listen(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await silent.wait()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = replace(QUICK, connect_seconds=0.2, store_open_seconds=0.3)
    async with asyncio.timeout(DEADLINE), server:
        address = f"nats://127.0.0.1:{port}"
        async with lorogo_client.connect(address, store=store, settings=settings) as client:
            async with client.open("doc", create=True) as session:
                type_in(session.doc, "typed all the same")
                await session.stored(DEADLINE)
                assert session.state is State.OFFLINE
            await eventually(lambda: calls >= 3)
        silent.set()


async def test_two_clients_on_one_store_are_refused(world: MemoryNats, store: Path) -> None:
    """The second hears what to do; when the first has left, it may come."""
    async with client_of(world, store=store):
        with pytest.raises(StoreLocked, match="use another store"):
            async with client_of(world, store=store):
                pass
    async with client_of(world, store=store):
        pass


async def test_a_client_without_a_store_does_not_say_stored(world: MemoryNats, owner: FakeOwner) -> None:
    """stored() never lies."""
    async with client_of(world) as client, client.open("doc") as session:
        with pytest.raises(StoreFailed, match="no store"):
            await session.stored(DEADLINE)
        assert session.problem is None
        assert client.stored_documents() == []


async def test_a_reader_sees_the_copy_and_sends_nothing(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Read-only and offline: the copy is shown, unsaved edits of a writer stay a writer's to send."""
    await begun(world, store)
    async with offline(world, store) as client, client.open("doc") as writer:
        type_in(writer.doc, "unsaved", at=5)
        await writer.stored(DEADLINE)
        async with client.open("doc", read_only=True) as reader:
            assert text_of(reader) == "base unsaved"
    owner.received.clear()
    async with client_of(world, store=store, seed=2) as client:
        async with client.open("doc", read_only=True) as reader:
            await owner.edit("theirs")
            await eventually(lambda: "theirs" in text_of(reader))
        assert owner.received == []
        assert [one.unsaved for one in client.stored_documents()] == [1]
        async with client.open("doc") as writer:
            await writer.flush(DEADLINE)
            assert sorted(owner.text()) == sorted("base unsavedtheirs")


async def test_a_reader_keeps_the_copy_current_until_a_writer_comes(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """What a reader saw opens offline; a writer takes the copy over."""
    async with client_of(world, store=store) as client, client.open("doc", read_only=True) as reader:
        await owner.edit("one ")
        await eventually(lambda: text_of(reader) == "one ")
        async with client.open("doc") as writer:
            type_in(writer.doc, "two", at=4)
            await writer.flush(DEADLINE)
            await eventually(lambda: text_of(reader) == "one two")
            await writer.stored(DEADLINE)
            image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc", read_only=True) as reader:
        assert text_of(reader) == "one two"


async def test_a_forgotten_document_is_gone(world: MemoryNats, owner: FakeOwner, store: Path) -> None:
    """forget() drops the copy for good, but not while it is open."""
    await begun(world, store)
    async with client_of(world, store=store, seed=2) as client:
        async with client.open("doc"):
            with pytest.raises(StoreFailed, match="open"):
                await client.forget("doc")
        assert await client.forget("doc")
        assert not await client.forget("doc")
        assert client.stored_documents() == []
    async with offline(world, store, seed=3) as client:
        with pytest.raises(NotStored):
            await client.open("doc")


async def test_leaving_raises_unsaved_only_if_the_store_does_not_have_it(store: Path) -> None:
    """Stored edits go out later; without a store they would be lost."""
    world = await new_world()
    async with offline(world, store) as client, client.open("doc", create=True) as session:
        type_in(session.doc, "x")
    async with FakeOwner(world):
        with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
            async with client_of(world, QUICK) as client, client.open("doc") as session:
                client.transport.cut()  # type: ignore[attr-defined]  # the twin's fault
                type_in(session.doc, "y")
