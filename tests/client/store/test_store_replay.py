"""Replay: what any beginning of a document's records means."""

import asyncio
import base64
import gc
import itertools
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loro import ExportMode, LoroDoc

from lorogo_client.delivery.outbox import Outbox
from lorogo_client.errors import StoreFailed
from lorogo_client.replica import LocalReplica, ReplicaListeners
from lorogo_client.settings import ClientSettings
from lorogo_client.store.document_store import DocumentStore
from lorogo_client.store.records import (
    AckedUpdate,
    AssignedLogId,
    DeletionMark,
    ForgottenMark,
    LocalCommit,
    PendingUpdate,
    Record,
    RemoteUpdate,
    StoreSnapshot,
)
from lorogo_client.store.replay import DocumentCopy, replay, without_payloads
from lorogo_client.store.restored_replica import restore
from lorogo_client.store.store_writer import StoreWriter
from lorogo_client.store.stored_document import CopyIndex
from lorogo_log import QueueFullError
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.replies import Ack

BASE = StoreSnapshot(0, 3, b"base", (PendingUpdate(1, 2, "a", b"12"), PendingUpdate(3, 3, "", b"3")), 3)


def outbox_after(*records: Record) -> list[tuple[int, int, str, bytes]]:
    kept = replay([BASE, *records])
    assert kept is not None
    return [(one.first, one.last, one.log_id, one.payload) for one in kept.outbox]


@pytest.mark.parametrize(
    ("records", "outbox"),
    [
        ([], [(1, 2, "a", b"12"), (3, 3, "", b"3")]),
        ([LocalCommit(1, 4, "b", b"4")], [(1, 2, "a", b"12"), (3, 3, "", b"3"), (4, 4, "b", b"4")]),
        ([AckedUpdate(1, "a")], [(3, 3, "", b"3")]),
        ([AckedUpdate(1, "unknown")], [(1, 2, "a", b"12"), (3, 3, "", b"3")]),
        ([AssignedLogId(1, "c", 3, 3, None)], [(1, 2, "a", b"12"), (3, 3, "c", b"3")]),
        (
            [LocalCommit(1, 4, "", b"4"), AssignedLogId(2, "c", 3, 4, b"34")],
            [(1, 2, "a", b"12"), (3, 4, "c", b"34")],
        ),
        ([AssignedLogId(1, "all", 1, 3, b"new")], [(1, 3, "all", b"new")]),
        ([AssignedLogId(1, "all", 1, 3, b"new"), AckedUpdate(2, "a"), AckedUpdate(3, "all")], []),
        ([AssignedLogId(1, "more", 4, 4, b"lost by the server")], [*[(1, 2, "a", b"12"), (3, 3, "", b"3")],
                                                              (4, 4, "more", b"lost by the server")]),
        ([RemoteUpdate(1, b"r"), DeletionMark(2)], [(1, 2, "a", b"12"), (3, 3, "", b"3")]),
        ([LocalCommit(1, 4, "", b"4"), StoreSnapshot(2, 3, b"", (), 4)], []),
    ],
)  # fmt: skip
def test_every_record_changes_the_outbox_in_one_way(
    records: list[Record], outbox: list[tuple[int, int, str, bytes]]
) -> None:
    """Ids and bytes of what is not ACKed, in the order of the commits."""
    assert outbox_after(*records) == outbox


def test_what_was_surely_not_sent_begins_with_the_first_update_without_an_id() -> None:
    """Updates leave in order: behind one that was never sent none was."""
    kept = replay([BASE, LocalCommit(1, 4, "b", b"4")])
    assert kept is not None
    assert kept.unsent() == 1


@pytest.mark.parametrize(
    ("records", "missing"),
    [
        ([BASE, RemoteUpdate(1, b"r"), RemoteUpdate(2, b"r")], 0),
        ([BASE, RemoteUpdate(2, b"r")], 1),
        ([RemoteUpdate(5, b"r")], 1),
        ([BASE, RemoteUpdate(2, b"r"), RemoteUpdate(5, b"r")], 2),
        ([BASE, RemoteUpdate(2, b"r"), StoreSnapshot(3, 3, b"", (), 3)], 0),
        ([BASE, ForgottenMark(1), StoreSnapshot(2, 3, b"", (), 3)], 0),
        ([BASE, ForgottenMark(1), LocalCommit(3, 1, "", b"")], 1),
    ],
)
def test_a_lost_record_shows_until_a_snapshot_replaces_what_it_was_part_of(
    records: list[Record], missing: int
) -> None:
    """Numbers tell; nothing is silently wrong."""
    kept = replay(records)
    assert kept is not None
    assert kept.missing == missing


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # Loro's, over a broken document
def test_an_update_over_which_loro_panics_leaves_the_rest_in_use() -> None:
    """A good update can make Loro panic over a stored snapshot: it is left out, and the owner has it."""
    case = json.loads((Path(__file__).parents[1] / "panicking.json").read_text())
    snapshot, update = (zlib.decompress(base64.b64decode(case[name])) for name in ("snapshot", "update"))
    writer = crdt.Replica.from_snapshot(snapshot)
    before = writer.version()
    writer.doc.get_text("body").insert(0, "mine")
    writer.doc.commit()
    mine = writer.updates_since(before.vector)
    kept = replay(
        [StoreSnapshot(0, 0, snapshot, (), 0), RemoteUpdate(1, update), LocalCommit(2, 1, "mine", mine)]
    )
    assert kept is not None
    restored = restore(kept)
    gc.collect()  # the broken documents go here, and speak
    assert not restored.whole
    assert [entry.payload for entry in restored.sent] == [mine]
    assert restored.replica.version() == writer.version()
    assert restored.replica.value() == writer.value()


def test_nothing_and_what_was_forgotten_is_no_document() -> None:
    """None, not an empty one."""
    assert replay([]) is None
    assert replay([BASE, ForgottenMark(1)]) is None


def test_a_lean_record_leads_to_the_same_counts() -> None:
    """A list of documents needs no bytes."""
    records: list[Record] = [
        BASE,
        LocalCommit(1, 4, "", b"4"),
        AssignedLogId(2, "x", 3, 4, b"34"),
        AckedUpdate(3, "a"),
    ]
    full, thin = replay(records), replay(map(without_payloads, records))
    assert full is not None
    assert thin is not None
    assert [(one.first, one.last, one.log_id) for one in full.outbox] == [
        (one.first, one.last, one.log_id) for one in thin.outbox
    ]
    assert (full.number, full.commits, full.missing) == (thin.number, thin.commits, thin.missing)


class Disk:
    """Takes records in order; the queue may be full."""

    def __init__(self) -> None:
        self.failure: StoreFailed | None = None
        self.records: list[Record] = []
        self.full = False
        self._loop = asyncio.new_event_loop()

    def append(self, _document_id: str, record: Record) -> "asyncio.Future[int]":
        if self.full:
            raise QueueFullError("full")
        self.records.append(record)
        return self._loop.create_future()

    def replaced(self, place: CopyIndex, base: int, bytes_: int) -> None: ...

    def fail(self, error: Exception) -> None:
        raise AssertionError(str(error))

    def close(self) -> None:
        self._loop.close()


class Desk:
    """A client without a network: a replica, its outbox, its shelf, and an owner that it may reach."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.ids = (f"id{number}" for number in itertools.count())
        self.words: list[str] = []  # word number i was committed with record kept[i]
        self.kept_at: list[int] = []
        self.online = False
        self.owner = crdt.Replica()
        self.settings = ClientSettings(in_flight_updates_max=3)
        self.outbox = Outbox(self.settings)
        self.store_writer = StoreWriter(DocumentStore(disk, "doc", CopyIndex()))
        self.replica = LocalReplica(ReplicaListeners(self._on_local, lambda _: None))
        self.snapshot()

    def _on_local(self, update: bytes) -> None:
        log_id = next(self.ids) if self.online else ""
        self.store_writer.local(self.outbox.add(update, log_id), log_id, update)

    def edit(self) -> None:
        word = f"<{len(self.words)}>"
        text = self.replica.doc.get_text("t")
        text.insert(text.len_unicode, word)
        self.replica.commit()
        self.words.append(word)
        behind = (
            self.store_writer.document_store is not None and self.store_writer.document_store.needs_snapshot
        )
        self.kept_at.append(-1 if behind else len(self.disk.records))

    def remote(self) -> None:
        """Somebody else's edit, on what the owner has."""
        doc = self.owner.doc
        before = doc.oplog_vv
        doc.get_text("t").insert(0, "r")
        doc.commit()
        update = doc.export(ExportMode.Updates(before))
        if not isinstance(self.replica.apply(update), crdt.Unready):
            self.store_writer.remote(update)

    def send(self, *, heard: bool, acked: bool) -> None:
        flight = self.outbox.next_to_send(1e9, lambda: next(self.ids))
        if flight is None:
            return
        self.store_writer.assigned([flight])
        self.outbox.sending(flight.log_id, 0.0)
        if heard and not isinstance(self.owner.apply(flight.payload), crdt.Unready) and acked:
            ack = Ack(flight.log_id, flight.digest, 1, "stream", 1)
            self.outbox.answer(ack, token=0, now=0, jitter=0)
            self.store_writer.settled(flight.log_id)

    def resync(self) -> None:
        lacking = self.replica.lacking(self.owner.version().vector, [])
        if lacking:
            self.store_writer.assigned(self.outbox.replace(lacking, lambda: next(self.ids), now=0, jitter=0))

    def snapshot(self) -> None:
        if self.store_writer.snapshot(self.replica, self.outbox, 0):
            self.kept_at = [len(self.disk.records) if at < 0 else at for at in self.kept_at]

    def do(self, action: str) -> None:
        match action:
            case "edit":
                self.edit()
            case "remote":
                self.remote()
            case "send":
                self.send(heard=True, acked=True)
            case "send, answer lost":
                self.send(heard=True, acked=False)
            case "send, not heard":
                self.send(heard=False, acked=False)
            case "resend":
                self.outbox.resend(0.0)
            case "merge":
                self.outbox.merge(self.replica.merged)
            case "resync":
                self.resync()
            case "snapshot":
                self.snapshot()
            case "online":
                self.online = not self.online
            case "disk slow":
                self.disk.full = True
            case "disk quick":
                self.disk.full = False  # a snapshot comes later


ACTIONS = [
    "edit", "edit", "remote", "send", "send, answer lost", "send, not heard", "resend", "merge", "resync",
    "snapshot", "online", "disk slow", "disk quick",
]  # fmt: skip


def came_back(kept: DocumentCopy, owner: LoroDoc) -> tuple[str, str, str]:
    """What a reopened replica says offline, and what it and the owner say when all unsaved was sent again."""
    restored = restore(kept)
    assert restored.whole
    alone = str(restored.replica.doc.get_text("t").to_string())
    there = crdt.Replica(owner.fork())
    for entry in [*restored.sent, *restored.unsent]:
        assert not isinstance(there.apply(entry.payload), crdt.Unready)
    here = restored.replica
    here.apply(there.updates_since(here.version().vector))
    assert there.includes(here.version().vector)
    return alone, str(here.doc.get_text("t").to_string()), str(there.doc.get_text("t").to_string())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), min_size=15, max_size=40))
def test_whatever_the_crash_leaves_no_stored_edit_is_lost_and_none_is_there_twice(actions: list[str]) -> None:
    """Every beginning of the records: each edit in it is in the replica, and reaches the owner once."""
    disk = Disk()
    try:
        desk = Desk(disk)
        for action in actions:
            desk.do(action)
        for left in range(1, len(disk.records) + 1):
            kept = replay(disk.records[:left])
            assert kept is not None
            assert kept.whole
            alone, here, there = came_back(kept, desk.owner.doc)
            assert here == there
            for word, at in zip(desk.words, desk.kept_at, strict=True):
                assert there.count(word) <= 1
                if 0 <= at <= left:
                    assert alone.count(word) == here.count(word) == 1
    finally:
        disk.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), min_size=15, max_size=40), st.data())
def test_a_lost_record_is_noticed(actions: list[str], data: st.DataObject) -> None:
    """Take one record out of the middle: replay says so, or a later snapshot has made it unimportant."""
    disk = Disk()
    try:
        desk = Desk(disk)
        for action in actions:
            desk.do(action)
        records = disk.records
        last = max(place for place, record in enumerate(records) if isinstance(record, StoreSnapshot))
        out = data.draw(st.integers(0, len(records) - 1))
        kept = replay(records[:out] + records[out + 1 :])
        if kept is None or out == len(records) - 1:
            return  # the newest: nothing that follows can tell
        assert kept.whole == (out < last)
    finally:
        disk.close()
