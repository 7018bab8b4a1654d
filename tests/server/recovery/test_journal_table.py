"""What the journals hold, as a table: the order of reading is no matter, and what is kept comes back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    RestoredRecord,
    UpdateRecord,
)
from lorogo_protocol.loro.crdt import Replica
from lorogo_server.recovery.journal_table import JournalledDocument, JournalTable, decode, includes
from lorogo_server.recovery.reconcile_lives import behind, outlives
from lorogo_server.snapshot_metadata import SnapshotMetadata

MINUTE = 60 * 1_000_000_000


def update(peer: int, end: int, generation: int = 0) -> UpdateRecord:
    return UpdateRecord(1, 1, "log", "1", 1, generation, ((peer, 0, end),), b"")


def folded(*records: DocumentRecord, time_ns: int = 100) -> JournalledDocument:
    table = JournalTable()
    for number, record in enumerate(records):
        table.fold("doc", record, time_ns, "journal/00", number)
    return table.rows["doc"]


GENERATIONS = st.integers(0, 2)
RECORDS = st.one_of(
    st.builds(update, st.integers(1, 3), st.integers(1, 9), GENERATIONS),
    st.builds(DeletedRecord, st.just(7), GENERATIONS, st.just(50)),
    st.builds(RestoredRecord, st.just(7), GENERATIONS.filter(bool)),
    st.builds(
        BaseRecord,
        st.just(1),
        st.just(0),
        st.just(1),
        GENERATIONS,
        st.just("1"),
        st.just(b"\x01\x05\x0a"),
        st.just(b""),
        st.just(b""),
    ),
)


@given(st.lists(RECORDS, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_records_is_no_matter(records: list[DocumentRecord], rng: random.Random) -> None:
    """Journals are read one after another, each again from a little before its end: the row is the same."""
    records = [update(1, 1), *records]
    shuffled = [*records, *records[:3]]
    rng.shuffle(shuffled)
    one, other = folded(*records), folded(*shuffled)
    assert (one.ends, one.generation, one.deleted_ns) == (other.ends, other.generation, other.deleted_ns)


@pytest.mark.parametrize(
    ("records", "generation", "deleted"),
    [
        ([update(1, 5)], 0, False),
        ([update(1, 5), DeletedRecord(7, 0, 50)], 0, True),
        ([DeletedRecord(7, 0, 50), update(1, 5)], 0, True),
        ([DeletedRecord(7, 0, 50), RestoredRecord(8, 1)], 1, False),
        ([RestoredRecord(8, 1), DeletedRecord(7, 0, 50)], 1, False),
        ([DeletedRecord(7, 0, 50), update(1, 5, generation=1)], 1, False),
        ([DeletedRecord(7, 0, 50), RestoredRecord(8, 1), DeletedRecord(9, 1, 60)], 1, True),
    ],
)
def test_the_newest_generation_decides_whether_it_lives(
    records: list[DocumentRecord], generation: int, deleted: bool
) -> None:
    """Deleted in its newest generation means deleted, whatever else is in the journals."""
    row = folded(*records)
    assert (row.generation, row.deleted_ns > 0) == (generation, deleted)


def test_what_was_erased_is_forgotten() -> None:
    """Nothing that is older than the erasure is missed any more, in whichever journal it stands."""
    row = folded(update(1, 5), ErasedRecord(200), update(2, 5), time_ns=150)
    assert row.ends == {}
    assert row.deleted_ns == 200


@pytest.mark.parametrize("turned", [False, True])
def test_an_erasure_knows_its_lease_and_generation(turned: bool) -> None:
    """A snapshot of before it is told from one that was made since, whatever else the journals have lost."""
    records: list[DocumentRecord] = [
        DeletedRecord(7, 1, 50),
        ErasedRecord(200, 9, 1),
        ErasedRecord(200, 12, 1),
    ]
    row = folded(*(reversed(records) if turned else records))
    assert (row.generation, row.deleted_ns, row.deleted_lease, row.erased_ns) == (1, 50, 12, 200)


def test_a_new_record_makes_a_document_be_compared_again() -> None:
    """And one that says nothing new does not."""
    table = JournalTable()
    table.fold("doc", update(1, 5), 100, "journal/00", 1)
    row = table.rows["doc"]
    row.complete = (3, 4)
    table.fold("doc", update(1, 4), 100, "journal/00", 2)
    assert row.complete == (3, 4)
    table.fold("doc", update(1, 6), 100, "journal/00", 3)
    assert row.complete == (-1, -1)


def test_a_version_has_no_holes() -> None:
    """What reaches as far holds everything before."""
    assert includes({1: 5, 2: 3}, {1: 5})
    assert includes({}, {})
    assert not includes({1: 5}, {1: 6})
    assert not includes({1: 5}, {2: 1})


def test_reading_begins_where_it_was_ten_minutes_ago() -> None:
    """The end of a journal that another process writes may be torn off, and its sequences used again."""
    table = JournalTable()
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 100, 20 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 200, 25 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 300, 31 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 100
    assert table.begin("journal/00", b"another log") == 0


def filled() -> JournalTable:
    table = JournalTable()
    table.fold("doc", update(2**63, 5), 100, "journal/00", 1)
    table.fold("gone", DeletedRecord(7, 0, 50), 100, "journal/00", 2)
    table.begin("journal/00", b"log")
    table.ended("journal/00", 3, 20 * MINUTE, 10 * MINUTE)
    table.reject("doc", "log", "1")
    table.met("broker")
    table.epoch, table.snapshots = 4, (5, 6)
    return table


def test_a_table_comes_back_as_it_was() -> None:
    """Written and read again, nothing is forgotten."""
    table, again = filled(), decode(filled().encode())
    assert again.rows == table.rows
    assert again.readings == table.readings
    assert again.rejected == table.rejected
    assert (again.epoch, again.snapshots, again.brokers) == (4, (5, 6), ["broker"])


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_damaged_table_is_an_empty_one(place: int) -> None:
    """Then everything is read and compared from the beginning: it was only a hint."""
    data = bytearray(filled().encode())
    data[place % len(data)] ^= 1
    assert decode(bytes(data)).rows == {}
    assert decode(bytes(data[:place])).rows == {}


def test_what_was_told_is_not_told_again() -> None:
    """An update that can never come back is noted once; the oldest notes make room."""
    table = JournalTable()
    assert table.reject("doc", "a", "1")
    assert not table.reject("doc", "a", "1")
    for number in range(10_000):
        table.reject("doc", "b", str(number))
    assert table.reject("doc", "a", "1")


def test_a_document_that_lives_again_has_only_what_it_holds_since() -> None:
    """Its tombstone was lost, and an owner after the deletion accepted something."""
    since = UpdateRecord(1, 1, "log", "1", 8, 0, ((2, 0, 4),), b"")
    row = folded(update(1, 5), DeletedRecord(7, 0, 50), since)
    assert (row.ends, row.deleted_ns, row.floor) == ({2: 4}, 0, 7)
    row = folded(update(1, 5), DeletedRecord(7, 0, 50), since, update(1, 5), DeletedRecord(7, 0, 50))
    assert (row.ends, row.deleted_ns, row.floor) == ({2: 4}, 0, 7)  # the past, read again
    assert folded(update(1, 5), DeletedRecord(7, 0, 50), since, DeletedRecord(9, 0, 60)).deleted_ns == 60


def test_a_deletion_that_is_told_of_late_ends_no_later_life() -> None:
    """Edits of a later owner came first: the document is read again, from that deletion on."""
    since = UpdateRecord(1, 1, "log", "1", 8, 0, ((2, 0, 4),), b"")
    row = folded(update(1, 5), since, DeletedRecord(7, 0, 50))
    assert (row.deleted_ns, row.floor, row.outlived) == (0, 7, True)
    row = folded(update(1, 5), since, DeletedRecord(8, 0, 50))  # the owner who accepted it deleted it
    assert (row.deleted_ns, row.outlived) == (50, False)
    row = folded(update(1, 5), since, DeletedRecord(7, 0, 100))  # its lease was lower, it came later
    assert (row.deleted_ns, row.outlived) == (100, False)
    row = folded(update(1, 5), since, DeletedRecord(7, 1, 50))  # a life after a loss is of generation 0
    assert (row.deleted_ns, row.generation, row.outlived) == (0, 1, True)
    row = folded(update(1, 5, generation=1), since, DeletedRecord(9, 0, 150))  # the same, deleted
    assert (row.deleted_ns, row.generation, row.outlived) == (150, 1, False)
    assert folded(DeletedRecord(9, 0, 150), since, update(1, 5, generation=1)).deleted_ns == 150


def test_a_restore_counts_though_a_life_before_had_as_high_a_generation() -> None:
    """What it undoes is a deletion of before; one that is later by lease and time stands."""
    before: list[DocumentRecord] = [update(1, 5, generation=3), DeletedRecord(7, 0, 150)]
    table = JournalTable()
    for record in before:
        table.fold("doc", record, 100, "journal/00", 1)
    row = table.rows["doc"]
    assert (row.deleted_ns, row.generation) == (150, 3)
    table.fold("doc", RestoredRecord(6, 1), 160, "journal/00", 2)
    table.fold("doc", RestoredRecord(7, 1), 140, "journal/00", 3)
    assert row.deleted_ns == 150
    table.fold("doc", RestoredRecord(7, 1), 160, "journal/00", 4)
    assert (row.deleted_ns, row.ends) == (0, {1: 5})
    table.fold("doc", DeletedRecord(7, 0, 150), 165, "journal/00", 5)  # read again
    assert row.deleted_ns == 0


def test_what_a_new_life_builds_on_is_not_forsaken() -> None:
    """Changes of the former life within its reach came with it; others stay gone."""
    row = JournalledDocument({1: 5, 2: 4}, floor=7, floor_ns=50)
    later = UpdateRecord(1, 1, "log", "1", 8, 0, ((3, 0, 1),), b"")
    assert not row.forsakes(update(1, 5), 100)
    assert row.forsakes(update(1, 6), 100)
    assert row.forsakes(update(3, 1), 100)
    assert not row.forsakes(later, 100)
    assert row.forsakes(later, 50)  # its lease is of a bucket that was ahead
    assert not row.forsakes(DeletedRecord(7, 0, 50), 100)


GENERATION = st.integers(0, 2)
LEASE = st.integers(0, 9)


@given(
    st.builds(
        JournalledDocument,
        generation=GENERATION,
        deleted_ns=st.sampled_from([0, 50]),
        erased_ns=st.sampled_from([0, 0, 50]),
        edited=LEASE,
        edited_ns=st.sampled_from([40, 50, 60]),
    ),
    st.builds(
        SnapshotMetadata,
        generation=GENERATION,
        deleted_ns=st.sampled_from([0, 50]),
        deleted_by=LEASE,
        erased_ns=st.sampled_from([0, 0, 50]),
    ),
)
def test_who_outlives_whom(row: JournalledDocument, facts: SnapshotMetadata) -> None:
    """Nothing erased or deleted outlives anything; lease and time decide, where it is told by whom."""
    late = row.generation > facts.generation
    later = row.edited > facts.deleted_by and row.edited_ns > facts.deleted_ns if facts.deleted_by else late
    lives = not row.deleted_ns and not row.erased_ns
    assert outlives(row, facts) == (facts.deleted and not facts.erased_ns and lives and later)
    assert behind(row, facts) == (not facts.deleted and not row.deleted_ns and late)
    assert not (outlives(row, facts) and behind(row, facts))


def test_an_erased_document_does_not_live_again() -> None:
    """Whatever a journal says: nothing of it may come back."""
    since = UpdateRecord(1, 1, "log", "1", 8, 0, ((2, 0, 4),), b"")
    row = folded(update(1, 5), ErasedRecord(50, 7), since)
    assert row.deleted_ns == 50


def test_the_floor_of_a_new_life_is_kept() -> None:
    """After a restart the past is still the past."""
    table = JournalTable()
    since = UpdateRecord(1, 1, "log", "1", 8, 0, ((2, 0, 4),), b"")
    records: list[DocumentRecord] = [update(1, 5), DeletedRecord(7, 0, 50), since]
    for number, record in enumerate(records):
        table.fold("doc", record, 100, "journal/00", number)
    assert decode(table.encode()).rows["doc"] == table.rows["doc"]


@pytest.mark.parametrize("base_ns", [500, 5_000])
@pytest.mark.parametrize("erased_first", [True, False])
def test_a_base_of_an_older_lease_is_erased_too(base_ns: int, erased_first: bool) -> None:
    """Whatever its date: that is of the clock of whoever loaded it."""
    base = BaseRecord(1, 1, 10, 0, "1", b"\x01\x05\n", b"", b"content")
    erased = ErasedRecord(1_000, 20, 0)
    table = JournalTable()
    for record in (erased, base) if erased_first else (base, erased):
        table.fold("doc", record, base_ns, "journal/00", 1)
    row = table.rows["doc"]
    assert (row.deleted_ns, row.base[0], row.ends) == (1_000, "", {})


def test_the_highest_lease_is_kept() -> None:
    """Of records of every kind, also of what is no part of a row."""
    table = JournalTable()
    records: list[DocumentRecord] = [
        UpdateRecord(1, 1, "log", "1", 1, 0, ((1, 0, 1),), b""),
        RestoredRecord(2, 1),
        DeletedRecord(3, 1, 50),
        BaseRecord(1, 1, 4, 1, "1", Replica().version().vector, b"", b""),
        ErasedRecord(60, 5, 1),
    ]
    for lease, record in enumerate(records, 1):
        table.fold("doc", record, 100, "journal/00", lease)
        assert decode(table.encode()).highest == lease
