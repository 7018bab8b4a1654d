"""Checkers of what an owner answers for, and of what a client sends again."""

import asyncio
import random

import pytest

from lorogo_log import Log
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import BaseRecord, DeletedRecord, DocumentRecord, UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_testing.virtual_loop import SimLoop
from tests.simulation.checks.on_disk import AnswersAreOnDisk
from tests.simulation.disk import SimStorage
from tests.simulation.platter import Kept, Platter
from tests.simulation.story import (
    CLIENT,
    DOCUMENT,
    OTHER,
    SERVER,
    FakeRest,
    Story,
    Writer,
    client,
    fresh,
    tombstone,
)

_JOURNAL = "/data/journal/00"


class _FakePlatter(Platter):
    """A platter whose content the test sets."""

    def __init__(self) -> None:
        super().__init__(SimStorage(random.Random(1)), _JOURNAL)
        self.kept, self.now = Kept(), Kept()

    def of(self, document: str) -> Kept:
        return self.kept

    def reread(self) -> Platter:
        platter = _FakePlatter()
        platter.kept = self.now
        return platter


class _DiskStory(Story):
    """A story, and what the server's platter holds in it."""

    def __init__(self, *, damaged: bool = False) -> None:
        super().__init__()
        self.platter = _FakePlatter()
        self.checker = AnswersAreOnDisk(self.record, {SERVER: self.platter}, damaged=damaged)
        self.checkers = [*self.checkers, self.checker]
        self.record.checkers = self.checkers

    def journal(self, writer: Writer) -> None:
        self.platter.kept.reach(dict(crdt.counters(writer.doc.oplog_vv.encode())))


# --- (3) on the disk


@pytest.mark.parametrize("synced", [True, False])
def test_acked(synced: bool) -> None:
    """An ACK is true if the journal of its server has the update on its platter."""
    story, writer = _DiskStory(), Writer(1)
    token = story.take()
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    if synced:
        story.journal(writer)
    story.ack(update, "one", sequence, token)
    assert story.broken == ("" if synced else "on-disk")


def test_acked_by_the_stream() -> None:
    """An ACK that promises the stream alone needs no journal."""
    story, writer = _DiskStory(), Writer(1)
    token = story.take()
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    story.ack(update, "one", sequence, token, how="stream")
    assert story.broken == ""


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("verb", ["patch", "revert", "import"])
def test_receipt(verb: str, synced: bool) -> None:
    """A receipt with `journal` is as true as an ACK: the update is on the platter before it."""
    story, writer = _DiskStory(), Writer(1)
    story.take()
    (sequence,) = story.send(writer.commit(), "one", SERVER)
    if synced:
        story.journal(writer)
    story.call(verb, {"sequence": sequence, "durability": "journal"})
    assert story.broken == ("" if synced else "on-disk")


@pytest.mark.parametrize("synced", [True, False])
def test_purged(synced: bool) -> None:
    """An accepted update is purged from the WAL only if the journal of the purging server has it, too."""
    story, writer = _DiskStory(), Writer(1)
    token = story.take()
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    story.accept(update, "one", token)
    story.snapshot(writer.snapshot, SnapshotMetadata(lease=token))
    story.up(SERVER, token)
    if synced:
        story.journal(writer)
    story.purge([sequence])
    assert story.broken == ("" if synced else "on-disk")


@pytest.mark.parametrize("synced", [True, False])
def test_came_up(synced: bool) -> None:
    """A server writes UP once its journal has the loaded content."""
    story, writer = _DiskStory(), Writer(1)
    writer.commit()
    story.snapshot(writer.snapshot, SnapshotMetadata())
    if synced:
        story.journal(writer)
    story.take()
    assert story.broken == ("" if synced else "on-disk")


@pytest.mark.parametrize("synced", [True, False])
def test_deleted(synced: bool) -> None:
    """A deletion is answered when the journal has the tombstone."""
    story, writer = _DiskStory(), Writer(1)
    token = story.take()
    writer.commit()
    story.journal(writer)
    inbox = story.ask("delete")
    story.snapshot(writer.snapshot, tombstone(SnapshotMetadata(lease=token)))
    if synced:
        story.platter.kept.tombstones.add(7)
    story.reply(inbox, {"deleted_ns": 7})
    assert story.broken == ("" if synced else "on-disk")


@pytest.mark.parametrize("loaded", [True, False])
def test_came_up_with_what_was_acked(loaded: bool) -> None:
    """Updates ACKed before a server took the document are in its journal before it is UP."""
    story, writer = _DiskStory(), Writer(1)
    token = story.take(OTHER)
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    story.ack(update, "one", sequence, token, OTHER)
    if loaded:
        story.journal(writer)
    story.take()
    assert story.broken == ("" if loaded else "on-disk")


@pytest.mark.parametrize(("gone", "damaged", "found"), [(0, 0, ""), (1, 0, "on-disk"), (1, 1, "")])
async def test_forgotten(gone: int, damaged: int, found: str) -> None:
    """Content on the disk stays there, unless the disk itself is damaged."""
    story, writer = _DiskStory(damaged=bool(damaged)), Writer(1)
    writer.commit()
    story.journal(writer)
    if not gone:
        story.platter.now = story.platter.kept
    world = FakeRest({DOCUMENT: fresh(writer.doc)}, [client(CLIENT, writer.doc)])
    assert await story.rest(world) == found


# --- the platter


async def _put(journal: Log, *found: DocumentRecord) -> None:
    for record in found:
        await journal.append(records.encode(record), key=DOCUMENT.encode(), ts=1)


def test_platter() -> None:
    """The platter holds what was synced: updates, bases, tombstones; not what only the page cache has."""
    disk, one, two = SimStorage(random.Random(1)), Writer(1), Writer(2)
    update = one.commit()
    two.took(update).commit()
    vector = two.doc.oplog_vv.encode()

    async def write() -> None:
        async with Log.open(_JOURNAL, storage=disk) as journal:
            await _put(
                journal,
                UpdateRecord(1, 1, "a", digest(update), 1, 0, crdt.spans(update), update),
                BaseRecord(1, 2, 1, 0, "d", vector, b"", b""),
                DeletedRecord("tombstone", (), 1, 0, 9),
            )
            kept = platter.of(DOCUMENT)
            assert kept.ends == dict(crdt.counters(vector))
            assert kept.tombstones == {9}
            more = one.commit()
            inode = next(iter(disk.folders[_JOURNAL].folder.durable.values()))
            inode.sync = lambda: None  # type: ignore[method-assign]  # a disk that reports a sync without one
            await _put(journal, UpdateRecord(1, 3, "b", digest(more), 1, 0, crdt.spans(more), more))
            assert platter.of(DOCUMENT).ends == dict(crdt.counters(vector))
            assert platter.of("another") == Kept()

    platter = Platter(disk, _JOURNAL)
    assert platter.of(DOCUMENT) == Kept()
    loop = SimLoop(random.Random(1))
    try:
        loop.run_until_complete(asyncio.wait_for(write(), 60))
    finally:
        loop.close()


# --- sent again


@pytest.mark.parametrize(
    ("again", "lacking", "found"),
    [("one", False, ""), ("two", True, ""), ("two", False, "resent")],
    ids=["same id", "the owner lacks something", "another id"],
)
def test_resent(again: str, lacking: bool, found: str) -> None:
    """A resent update has the same id, unless the owner lacks its dependencies."""
    story, update = Story(), Writer(1).commit()
    story.take()
    story.now += 60
    story.send(update, "one", CLIENT)
    if lacking:
        story.nack(update, "one", Reason.MISSING_DEPENDENCIES)
    story.now += 5
    story.send(update, again, CLIENT)
    assert story.broken == found


def test_published_again_by_a_server() -> None:
    """A server that brings back what the stream lost may give it another id."""
    story, update = Story(), Writer(1).commit()
    story.take()
    story.now += 60
    story.send(update, "one", CLIENT)
    story.lose(subjects.WAL_STREAM)
    story.send(update, "again-one", SERVER)
    assert story.broken == ""
