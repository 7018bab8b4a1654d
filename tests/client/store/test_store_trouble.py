"""A store in trouble: full disks, flipped bits, slow disks, and growth."""

import errno
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_client import State, StoreDamaged, StoreFailed, StoreFull, Unsaved
from lorogo_client.store import Store, cleaner, document_store
from lorogo_client.store.local_store import LocalStore
from lorogo_log import QueueFullError, limits
from lorogo_log.storage.disk import DiskFile
from lorogo_protocol.loro import crdt
from lorogo_testing.memory_nats import MemoryNats
from tests.client.stores import crashed, files, holding, offline, size_of
from tests.client.support import DEADLINE, QUICK, FakeOwner, client_of, eventually, text_of, type_in


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def full_disk(file: DiskFile, parts: Sequence[bytes], offset: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_store_goes_on_when_its_disk_has_room(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app is given the cause; edits made meanwhile are in memory, and on the disk once there is room."""
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.02)
    write = DiskFile.pwrite
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "before ")
        await session.stored(DEADLINE)
        monkeypatch.setattr(DiskFile, "pwrite", full_disk)
        type_in(session.doc, "after ", at=7)
        with pytest.raises(StoreFull, match="No space left") as full:
            await session.stored(DEADLINE)
        assert full.value.retriable
        assert isinstance(session.problem, StoreFull)
        type_in(session.doc, "more", at=13)
        await session.flush(DEADLINE)
        monkeypatch.setattr(DiskFile, "pwrite", write)
        await eventually(lambda: session.problem is None)
        type_in(session.doc, " and more", at=17)
        await session.stored(DEADLINE)
        image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "before after more and more"
        assert not [one for one in client.stored_documents() if one.damaged]


async def test_a_document_that_is_left_while_the_disk_is_full_is_whole_when_it_is_opened_again(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that found no room are not counted: none is missing before the next."""
    monkeypatch.setattr(limits, "FULL_SECONDS", 0.02)
    write = DiskFile.pwrite
    async with client_of(world, store=store) as client:
        async with client.open("doc") as session:
            type_in(session.doc, "before ")
            await session.stored(DEADLINE)
            monkeypatch.setattr(DiskFile, "pwrite", full_disk)
            type_in(session.doc, "after ", at=7)
            await session.flush(DEADLINE)
        monkeypatch.setattr(DiskFile, "pwrite", write)
        local = client._context.store
        assert local is not None
        await eventually(lambda: local.failure is None)
        async with client.open("doc") as session:
            type_in(session.doc, "more", at=13)
            await session.stored(DEADLINE)
            image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "before after more"
        assert not [one for one in client.stored_documents() if one.damaged]


async def test_a_full_disk_stops_no_edits(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits go on in memory and to the server; the app is told that they are not on this disk."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "before ")
        await session.stored(DEADLINE)
        monkeypatch.setattr(DiskFile, "pwrite", full_disk)
        type_in(session.doc, "after ", at=7)
        with pytest.raises(StoreFailed, match="No space left"):
            await session.stored(DEADLINE)
        assert isinstance(session.problem, StoreFailed)
        await session.flush(DEADLINE)
        assert session.state is State.SAVED
        assert owner.text() == text_of(session) == "before after "
        type_in(session.doc, "more", at=13)
        await session.flush(DEADLINE)
        with pytest.raises(StoreFailed):
            await session.stored(DEADLINE)
        monkeypatch.undo()
        image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "before "  # what was said to be stored, and nothing half


async def test_leaving_with_a_failed_store_says_unsaved_again(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store cannot save the edits that the server did not get."""
    async with client_of(world, store=store) as client, client.open("doc"):
        pass
    with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
        async with offline(world, store, seed=2) as client, client.open("doc") as session:
            monkeypatch.setattr(DiskFile, "pwrite", full_disk)
            type_in(session.doc, "x")


async def test_a_disk_that_hangs_is_given_up_and_edits_are_sent(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait has a deadline, the one for the disk too."""
    impatient = replace(QUICK, store_seconds=0.2)
    async with client_of(world, impatient, store=store) as client, client.open("doc") as session:
        await session.stored(DEADLINE)
        hanging = document_store.DocumentStore.durable

        async def never(self: document_store.DocumentStore, seconds: float) -> None:
            self.needs_snapshot = True  # and nobody writes a snapshot
            await hanging(self, seconds)

        monkeypatch.setattr(document_store.DocumentStore, "wants_snapshot", False)
        monkeypatch.setattr(document_store.DocumentStore, "durable", never)
        type_in(session.doc, "sent all the same")
        await session.flush(DEADLINE)
        assert isinstance(session.problem, StoreFailed)
        assert owner.text() == "sent all the same"


async def test_a_process_that_was_stopped_does_not_blame_the_disk(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of a write, for longer than a disk may take: it goes on as before."""
    impatient = replace(QUICK, store_seconds=0.5)
    async with client_of(world, impatient, store=store) as client, client.open("doc") as session:
        await session.stored(DEADLINE)
        write, writing, resumed = DiskFile.pwrite, threading.Event(), threading.Event()

        def late(file: DiskFile, parts: Sequence[bytes], offset: int) -> int:
            writing.set()
            resumed.wait(DEADLINE)
            return write(file, parts, offset)

        monkeypatch.setattr(DiskFile, "pwrite", late)
        type_in(session.doc, "kept")
        session.commit()
        await eventually(writing.is_set)
        awake = time.monotonic() + 2 * impatient.store_seconds
        while time.monotonic() < awake:  # nothing of this process runs
            pass
        resumed.set()
        await session.flush(DEADLINE)
        await session.stored(DEADLINE)
        assert session.problem is None


async def test_a_store_that_cannot_be_opened_is_an_error_of_connect(world: MemoryNats, store: Path) -> None:
    """A file where the directory should be: nothing is pretended."""
    store.write_text("not a store")  # noqa: ASYNC240 - nothing else runs
    with pytest.raises(StoreFailed, match="cannot be opened"):
        async with client_of(world, store=store):
            pass
    with pytest.raises(StoreFailed, match="not a store"):
        Store.open(store)


async def test_when_the_log_has_no_room_a_snapshot_makes_up_for_it(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that could not be queued are not missed: everything is written whole later."""
    async with offline(world, store) as client, client.open("doc", create=True) as session:
        append = LocalStore.append
        refused = 0

        def no_room(self: LocalStore, document_id: str, record: object) -> object:
            nonlocal refused
            refused += 1
            raise QueueFullError("full")

        monkeypatch.setattr(LocalStore, "append", no_room)
        for number in range(10):
            type_in(session.doc, f"{number}", at=number)
            session.commit()
        await eventually(lambda: refused > 1)
        monkeypatch.setattr(LocalStore, "append", append)
        await session.stored(DEADLINE)
        image = crashed(store)
    async with offline(world, image, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == "0123456789"
        assert session.unsaved == 1  # merged into one by the snapshot


async def test_the_store_compacts_itself(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is typed, on the disk is a small multiple of what the documents are."""
    monkeypatch.setattr(document_store, "TAIL_BYTES_MIN", 16 * 1024)
    monkeypatch.setattr(cleaner, "OBSOLETE_BYTES_MIN", 64 * 1024)
    async with client_of(world, store=store) as client, client.open("doc") as session:
        local = client._context.store
        assert local is not None
        written = 0
        largest = 0
        for _ in range(100):
            for _ in range(20):
                body = session.doc.get_text("t")
                body.insert(0, "some words ")
                body.delete(0, max(0, body.len_unicode - 2000))
                session.commit()
            await session.flush(DEADLINE)
            largest = max(largest, size_of(store))
            written = local._log.stats().appended_bytes
        await eventually(lambda: local._cleaner.cleanings >= 3)
        live = sum(one.bytes for one in client.stored_documents())
    assert written > 4 * size_of(store)
    assert size_of(store) < 4 * live + 512 * 1024
    assert largest < written
    async with offline(world, store, seed=2) as client, client.open("doc") as session:
        assert text_of(session) == owner.text()


async def test_the_copies_of_other_documents_outlive_a_cleaning(
    world: MemoryNats, owner: FakeOwner, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what a snapshot replaced is dropped; unsaved edits and forgotten documents stay as they are."""
    monkeypatch.setattr(document_store, "TAIL_BYTES_MIN", 4 * 1024)
    monkeypatch.setattr(cleaner, "OBSOLETE_BYTES_MIN", 16 * 1024)
    async with offline(world, store) as client:
        for name in ("quiet", "gone"):
            async with client.open(name, create=True) as session:
                type_in(session.doc, f"{name} document")
        await client.forget("gone")
        local = client._context.store
        assert local is not None
        async with client.open("busy", create=True) as session:
            while local._cleaner.cleanings < 2:
                body = session.doc.get_text("t")
                body.insert(0, "0123456789" * 10)
                body.delete(0, max(0, body.len_unicode - 100))
                await session.stored(DEADLINE)
        image = crashed(store)
    assert holding(image, b"quiet document")
    assert not holding(image, b"gone document")
    async with offline(world, image, seed=2) as client:
        assert [one.document_id for one in client.stored_documents()] == ["busy", "quiet"]
        assert all(one.unsaved for one in client.stored_documents())
        async with client.open("quiet") as session:
            assert text_of(session) == "quiet document"


def flip(path: Path, mark: bytes) -> None:
    """One bit, in the middle of these bytes."""
    data = bytearray(path.read_bytes())
    at = data.index(mark) + len(mark) // 2
    data[at] ^= 1
    path.write_bytes(data)


def flip_all(path: Path, mark: bytes) -> None:
    """One bit in each place where these bytes are."""
    data = path.read_bytes()
    path.write_bytes(data.replace(mark, bytes([mark[0] ^ 1]) + mark[1:]))


def tear(path: Path, missing: int) -> None:
    """The last bytes that were written never came to the disk."""
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    path.write_bytes(data[: end - missing])


async def test_a_flipped_bit_is_told_and_the_server_completes_the_copy(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Which documents are affected, the bytes kept aside, the readable unsaved edits saved."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "saved-one ")
        await session.flush(DEADLINE)
        type_in(session.doc, "saved-two ", at=10)
        await session.flush(DEADLINE)
    async with offline(world, store, seed=2) as client:
        async with client.open("other", create=True) as session:
            type_in(session.doc, "untouched")
        async with client.open("doc") as session:
            type_in(session.doc, "unsaved", at=20)
            await session.stored(DEADLINE)
    (hit,) = holding(store, b"saved-two")
    flip(hit, b"saved-two")
    async with offline(world, store, seed=3) as client:
        assert [(one.document_id, one.damaged) for one in client.stored_documents()] == [
            ("doc", True),
            ("other", False),
        ]
        with pytest.raises(StoreDamaged, match="doc"):
            await client.open("doc")
        async with client.open("other") as session:
            assert text_of(session) == "untouched"
    assert files(store, "*.broken")
    async with client_of(world, store=store, seed=4) as client:
        async with client.open("doc") as session:
            await session.flush(DEADLINE)
            assert owner.text() == text_of(session) == "saved-one saved-two unsaved"
        assert not any(one.damaged for one in client.stored_documents())


async def test_a_lost_snapshot_leaves_the_unsaved_edits_after_it(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Nothing to show offline; on what the server has, the edits that can be read fit again."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "in-the-snapshot ")
        await session.flush(DEADLINE)
        assert session._mirror.store_snapshot()
        await session.stored(DEADLINE)
    async with offline(world, store, seed=2) as client, client.open("doc") as session:
        type_in(session.doc, "unsaved", at=16)
        await session.stored(DEADLINE)
    before = crashed(store)
    for hit in holding(store, b"in-the-snapshot"):
        flip_all(hit, b"in-the-snapshot")
    async with offline(world, store, seed=3) as client:
        assert [one.damaged for one in client.stored_documents()] == [True]
        with pytest.raises(StoreDamaged):
            await client.open("doc")
    async with client_of(world, store=store, seed=4) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "in-the-snapshot unsaved"
    assert crdt.Replica.from_snapshot(Store.open(before).export("doc")).value() == {
        "t": "in-the-snapshot unsaved"
    }


@pytest.mark.parametrize("missing", [1, 7, 40, 200, 450])
async def test_a_torn_end_is_a_shorter_past(
    world: MemoryNats, owner: FakeOwner, store: Path, missing: int
) -> None:
    """Power fails within a write: what opens is the document as it once was."""
    async with offline(world, store) as client, client.open("doc", create=True) as session:
        for number in range(10):
            type_in(session.doc, str(number), at=number)
            await session.stored(DEADLINE)
        image = crashed(store)
    tear(files(image, "*.seg")[-1], missing)
    async with offline(world, image, seed=2) as client, client.open("doc", create=True) as session:
        text = text_of(session)
        assert text == "0123456789"[: len(text)]
        assert len(text) < 10
        type_in(session.doc, "!", at=len(text))
    async with client_of(world, store=image, seed=3) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == f"{text}!"


async def test_unsaved_edits_that_build_on_lost_ones_are_kept_as_files(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """Nobody has what they need any more: the document goes on without them, and they are not thrown away."""
    async with client_of(world, store=store) as client, client.open("doc") as session:
        type_in(session.doc, "saved ")
        await session.flush(DEADLINE)
    async with offline(world, store, seed=2) as client, client.open("doc") as session:
        for word in ("first-word ", "lost-word ", "third-word "):
            type_in(session.doc, word, at=session.doc.get_text("t").len_unicode)
            await session.stored(DEADLINE)
        image = crashed(store)
    (hit,) = holding(image, b"lost-word")
    flip(hit, b"lost-word")
    async with client_of(world, store=image, seed=3) as client, client.open("doc") as session:
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session) == "saved first-word "
        assert len(files(image, "aside/doc.*.update")) == 1
    async with offline(world, image, seed=4) as client, client.open("doc") as session:
        assert text_of(session) == "saved first-word "


async def test_the_door_reads_a_store_that_is_in_use(
    world: MemoryNats, owner: FakeOwner, store: Path
) -> None:
    """For support: what is in the app's store, without stopping the app."""
    async with offline(world, store) as client, client.open("doc", create=True) as session:
        type_in(session.doc, "words")
        await session.stored(DEADLINE)
        door = Store.open(store)
        assert [(one.document_id, one.unsaved) for one in door.documents()] == [("doc", 1)]
        taken = crdt.Replica.from_snapshot(door.export("doc"))
        assert str(taken.doc.get_text("t").to_string()) == "words"
        assert door.problems() == []
