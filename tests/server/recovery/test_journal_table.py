"""Contents of the journals as a table: documents, the progress of reading, and what is kept on disk."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.journal.records import DocumentRecord
from lorogo_server.recovery.journal_table import JournalledDocument, JournalTable, decode
from tests.terms import HISTORIES, base, deletion, erasure, named, update

MINUTE = 60 * 1_000_000_000
JOURNALS = st.sampled_from(["one/00", "two/03"])
NUMBERS = st.integers(0, 2**62)


def filled(*records: DocumentRecord) -> JournalTable:
    """A table of one document."""
    table = JournalTable()
    for number, record in enumerate(records):
        table.fold("doc", record, "journal/00", number)
    return table


def folded(*records: DocumentRecord) -> JournalledDocument:
    return filled(*records).rows["doc"]


# --- documents ------------------------------------------------------------------------------------


@given(HISTORIES, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_of_records_matters(
    history: list[DocumentRecord], rng: random.Random
) -> None:
    """Journals are read one after another, and each again from a little before its end."""
    history = [update("a", 1, 1), *history]
    again = [*history, *history[:3]]
    rng.shuffle(again)
    one, other = folded(*history), folded(*again)
    assert (one.incarnation, one.ends, one.base[2]) == (other.incarnation, other.ends, other.base[2])


def test_a_record_with_a_new_fact_makes_a_document_be_compared_again() -> None:
    """A record without a new fact does not."""
    table = JournalTable()
    table.fold("doc", update("a", 1, 5), "journal/00", 1)
    row = table.rows["doc"]
    row.incarnation  # noqa: B018  # folds, as the comparison does
    row.complete = (3, 4)
    table.fold("doc", update("a", 1, 4), "journal/00", 2)
    assert row.complete == (3, 4)
    table.fold("doc", update("a", 1, 6), "journal/00", 3)
    assert row.complete == (-1, -1)


def test_a_changed_stream_makes_every_document_be_compared_again() -> None:
    """The document was complete in the stream before."""
    table = filled(update("a", 1, 5))
    table.rows["doc"].complete = (3, 4)
    table.forget_complete()
    assert table.rows["doc"].complete == (-1, -1)


@pytest.mark.parametrize(
    ("records", "sequence"),
    [
        ([base("a", {1: 5}, content=b"x")], 0),
        ([base("a", {1: 5}, content=b"x"), base("a", {1: 9}, content=b"x")], 1),
        ([base("a", {1: 9}, content=b"x"), base("b", {1: 5, 2: 5}, content=b"x")], 1),
        ([base("a", {1: 9}, content=b"x"), base("b", {2: 5}, content=b"x"), deletion("x", "a")], 1),
        ([base("a", {1: 5}, content=b"x"), base("a", {1: 9})], 0),
    ],
)
def test_the_base_is_the_largest_one_of_the_content(records: list[DocumentRecord], sequence: int) -> None:
    """Bases of ended terms, and those without bytes, do not count."""
    assert folded(*records).base[:2] == ("journal/00", sequence)


def test_an_erased_document_has_no_base_and_no_operations() -> None:
    """In any order of the journals."""
    records: list[DocumentRecord] = [base("a", {1: 5}, content=b"x"), erasure("x", "a")]
    for some in (records, records[::-1]):
        row = folded(*some)
        assert (row.incarnation.deleted, row.base, row.ends) == (True, ("", 0, 0), {})


def test_the_highest_lease_is_kept() -> None:
    """Of records of every kind."""
    kinds: list[DocumentRecord] = [
        update("a", 1, 5),
        named("a"),
        base("a", {}),
        deletion("x", "a"),
        erasure("y", "a"),
    ]
    for record in kinds:
        assert record.lease == 1
        assert decode(filled(record).encode()).highest == 1
    assert filled(deletion("x", "a"), replace(named("a"), lease=7), update("a", 1, 5)).highest == 7


# --- progress -------------------------------------------------------------------------------------


def test_reading_begins_where_it_was_ten_minutes_ago() -> None:
    """A crash may cut the end of a journal that another process writes, and its sequences are used again."""
    table = JournalTable()
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 100, 20 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 200, 25 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 0
    table.ended("journal/00", 300, 31 * MINUTE, 10 * MINUTE)
    assert table.begin("journal/00", b"log") == 100
    assert table.begin("journal/00", b"another log") == 0


def test_a_journal_that_was_absent_is_read_from_its_beginning() -> None:
    """It may have been replaced in the meantime."""
    table = JournalTable()
    for journal in ("journal/00", "journal/01"):
        table.begin(journal, b"log")
        table.ended(journal, 100, 20 * MINUTE, 10 * MINUTE)
        table.ended(journal, 200, 40 * MINUTE, 10 * MINUTE)
    table.forget_readings(["journal/00"])
    assert [table.begin(journal, b"log") for journal in ("journal/00", "journal/01")] == [100, 0]


def test_a_run_of_a_nats_server_is_met_once() -> None:
    """The last sixteen are known."""
    table = JournalTable()
    assert not table.met("broker")
    assert table.met("broker")
    for number in range(16):
        table.met(str(number))
    assert not table.met("broker")


def test_a_rejected_update_is_noted_once() -> None:
    """The oldest notes make room for new ones."""
    table = JournalTable()
    assert table.reject("doc", "a", "1")
    assert not table.reject("doc", "a", "1")
    for number in range(10_000):
        table.reject("doc", "b", str(number))
    assert table.reject("doc", "a", "1")


# --- on disk --------------------------------------------------------------------------------------


@given(
    documents=st.dictionaries(st.text("abc", min_size=1), HISTORIES, max_size=3),
    journals=st.lists(st.tuples(JOURNALS, st.binary(), NUMBERS, NUMBERS), max_size=3),
    rejected=st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=3),
    brokers=st.lists(st.text(), max_size=3, unique=True),
    numbers=st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    complete=st.tuples(NUMBERS, NUMBERS, NUMBERS),
)
def test_a_table_is_decoded_as_it_was_encoded(
    documents: dict[str, list[DocumentRecord]],
    journals: list[tuple[str, bytes, int, int]],
    rejected: list[tuple[str, str, str]],
    brokers: list[str],
    numbers: tuple[int, int, int, int],
    complete: tuple[int, int, int],
) -> None:
    """Every field of terms, bases, readings and notes; a decoded document is not compared again."""
    table = JournalTable()
    for name, history in documents.items():
        for number, record in enumerate(history):
            table.fold(name, record, "journal/00", number)
        if history:
            row = table.rows[name]
            row.complete, row.complete_ns = complete[:2], complete[2]
    for journal, log_id, at, now_ns in journals:
        table.begin(journal, log_id)
        table.ended(journal, at, now_ns, MINUTE)
    for key in rejected:
        table.reject(*key)
    for broker in brokers:
        table.met(broker)
    table.epoch, table.highest = numbers[:2]
    table.snapshots = numbers[2:]
    again = decode(table.encode())
    for name, row in table.rows.items():
        back = again.rows[name]
        assert not back.terms.changed
        assert back.incarnation == row.incarnation
        for field in ("parents", "founded", "operations", "tombstones", "vectors", "undone", "generation"):
            assert getattr(back.terms, field) == getattr(row.terms, field)
        assert (back.bases, back.complete, back.complete_ns) == (row.bases, row.complete, row.complete_ns)
    assert again.rows.keys() == table.rows.keys()
    assert (again.readings, again.rejected, again.brokers) == (table.readings, table.rejected, table.brokers)
    assert (again.epoch, again.highest, again.snapshots) == (table.epoch, table.highest, table.snapshots)


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_damaged_table_is_decoded_as_an_empty_one(place: int) -> None:
    """The journals are read from their beginning then."""
    whole = filled(update("a", 2**63, 5), named("a"), deletion("x", "a", ended={1: 5}))
    whole.reject("doc", "log", "1")
    data = bytearray(whole.encode())
    data[place % len(data)] ^= 1
    assert decode(bytes(data)).rows == {}
    assert decode(bytes(data[:place])).rows == {}
