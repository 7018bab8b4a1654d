"""Rebuilding one document from the records of journals."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from loro import ExportMode

from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages.digest import digest
from lorogo_server.intake import history
from lorogo_server.recovery.restore import (
    DAMAGED,
    MISSING,
    NO_BASE,
    UNREADABLE,
    Gathered,
    Rebuilt,
    gather,
    rebuild,
)
from tests.journals import restored_record
from tests.server.support import Writer

SECOND = 1_000_000_000
NOW = 250 * SECOND

Timed = tuple[int, DocumentRecord]


def update(payload: bytes, number: int, *, generation: int = 0, epoch: int = 1) -> UpdateRecord:
    return UpdateRecord(epoch, number, f"log{number}", digest(payload), 7, generation, (), payload, "term")


def base(content: bytes, *, given: bool = True, generation: int = 0) -> BaseRecord:
    version = Replica.from_snapshot(content).version()
    kept = content if given else b""
    return BaseRecord(1, 9, 7, generation, digest(content), version.vector, version.frontiers, kept, "term")


def typed(words: Sequence[str]) -> tuple[Writer, list[Timed]]:
    """A document, and its updates a minute apart."""
    writer = Writer()
    made = [(number * 60 * SECOND, update(writer.type(word), number)) for number, word in enumerate(words, 1)]
    return writer, [(time, record) for time, record in made]


def restored(timed: Sequence[Timed], at_ns: int | None = None) -> tuple[Gathered, Rebuilt]:
    def fetch(place: int) -> DocumentRecord | None:
        return records.decode_document(records.encode(timed[place][1]))

    places = [(time, place) for place, (time, _) in enumerate(timed)]
    found = gather(places, fetch, at_ns=at_ns)
    return found, rebuild(found, fetch, now_ns=NOW)


def text(rebuilt: Rebuilt) -> str:
    return Replica.from_snapshot(rebuilt.snapshot).doc.get_text("body").to_string()


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=8))
def test_records_in_any_order_and_more_than_once_make_the_document(
    order: list[int], again: list[int]
) -> None:
    """However journals are merged, an update counts once and the document is the same."""
    writer, timed = typed([f"{number} " for number in range(8)])
    # the times are those of the order, so that time is no help
    shuffled = [(place * SECOND, timed[number][1]) for place, number in enumerate([*order, *again])]
    found, rebuilt = restored(shuffled)
    assert text(rebuilt) == writer.text
    assert (found.updates, found.repeated, rebuilt.applied) == (8, len(again), 8)
    assert rebuilt.left == {}


def test_a_document_as_of_a_time_has_what_was_accepted_until_then() -> None:
    """Records with a later time are left out, and counted."""
    _, timed = typed(["one ", "two ", "three "])
    found, rebuilt = restored(timed, at_ns=120 * SECOND)
    assert text(rebuilt) == "one two "
    assert found.later == 1


def test_versions_are_dated_by_the_records_times() -> None:
    """After a restore, `history` and `--at` know the versions that the journal knew."""
    _, timed = typed(["one ", "two ", "three "])
    _, rebuilt = restored(timed)
    versions = history.decode(rebuilt.dated)
    assert [version.time_ns for version in versions] == [60 * SECOND, 120 * SECOND, 180 * SECOND]
    whole = Replica.from_snapshot(rebuilt.snapshot)
    texts = [whole.at(version.frontiers).doc.get_text("body").to_string() for version in versions]
    assert texts == ["one ", "one two ", "one two three "]


def test_an_update_that_was_brought_back_keeps_its_first_date() -> None:
    """Another journal has it again with the time of its return: the older record counts."""
    _, timed = typed(["one ", "two "])
    again = [(time_ns + 10**15, record) for time_ns, record in timed]
    _, rebuilt = restored([*again, *timed])
    _, before = restored(timed)
    assert rebuilt.dated == before.dated
    assert rebuilt.left == {}


def shallow_of(writer: Writer) -> bytes:
    """A snapshot without history."""
    snapshot = writer.doc.export(ExportMode.ShallowSnapshot(writer.doc.oplog_frontiers))
    assert Replica.from_snapshot(snapshot).doc.is_shallow()
    return snapshot


def test_a_base_stands_for_the_history_that_another_server_has() -> None:
    """The journal of whoever served a document last is enough, also where its snapshot was trimmed."""
    writer, _ = typed(["before "])
    for content in (writer.doc.export(ExportMode.Snapshot()), shallow_of(writer)):
        after = Writer(content)
        timed: list[Timed] = [(60 * SECOND, base(content)), (120 * SECOND, update(after.type("after"), 5))]
        _, rebuilt = restored(timed)
        assert text(rebuilt) == "before after"
        assert rebuilt.left == {}


def test_the_whole_history_is_kept_where_the_journals_go_back_to_the_beginning() -> None:
    """A trimmed snapshot among the records does not trim what the journals still have."""
    writer, timed = typed(["one ", "two "])
    _, rebuilt = restored([*timed, (150 * SECOND, base(shallow_of(writer)))])
    assert Replica.from_snapshot(rebuilt.snapshot).trimmed() == b"\x00"
    assert rebuilt.left == {}


def test_a_trimmed_base_is_the_beginning_where_older_records_are_torn_apart() -> None:
    """Of several ways to begin, the one counts that leaves least behind."""
    writer, timed = typed(["one ", "two ", "three "])
    kept = [timed[0], (200 * SECOND, base(shallow_of(writer)))]  # the second and third update are lost
    after = update(writer.type("four"), 4)
    _, rebuilt = restored([*kept, (240 * SECOND, after)])
    assert text(rebuilt) == "one two three four"
    assert rebuilt.left == {}


def test_what_depends_on_a_lost_record_is_told() -> None:
    """An update whose dependencies are in no journal is not applied, and its reason is given."""
    _, timed = typed(["one ", "two ", "three "])
    _, rebuilt = restored([timed[0], timed[2]])
    assert text(rebuilt) == "one "
    assert rebuilt.left == {MISSING: 1}


def test_a_base_whose_content_is_elsewhere_is_told() -> None:
    """A base that only names its snapshot says that the history is in another server's journal."""
    writer, _ = typed(["one "])
    named = base(writer.doc.export(ExportMode.Snapshot()), given=False)
    _, rebuilt = restored([(SECOND, named), (2 * SECOND, update(writer.type("two"), 2))])
    assert rebuilt.left == {MISSING: 1, NO_BASE: 1}


def test_an_update_that_is_damaged_in_one_journal_comes_from_another() -> None:
    """Bytes that do not match their digest are not used; they are missing only if nobody has them whole."""
    _, timed = typed(["one ", "two "])
    good = timed[1][1]
    assert isinstance(good, UpdateRecord)
    bad = UpdateRecord(1, 2, good.log_id, good.digest, 7, 0, (), good.payload[:-1] + b"\x00")
    _, rebuilt = restored([timed[0], (SECOND, bad), timed[1]])
    assert (text(rebuilt), rebuilt.left) == ("one two ", {})
    _, rebuilt = restored([timed[0], (SECOND, bad)])
    assert (text(rebuilt), rebuilt.left) == ("one ", {DAMAGED: 1})


def test_a_deletion_counts_until_a_restore_undoes_it() -> None:
    """A document is deleted if the deletion ended all terms that accepted something."""
    _, timed = typed(["one "])
    deleted: Timed = (70 * SECOND, DeletedRecord("tombstone", ("term",), 7, 0, 71))
    found, rebuilt = restored([*timed, deleted])
    assert found.deleted_ns == 71
    assert text(rebuilt) == "one "  # the content stays, for `doc restore`
    found, _ = restored([*timed, deleted, (80 * SECOND, restored_record(7, 1))])
    assert (found.deleted_ns, found.terms.generation) == (0, 1)
    found, _ = restored([*timed, deleted], at_ns=65 * SECOND)
    assert found.deleted_ns == 0


def test_an_erasure_counts_whatever_time_is_asked_for() -> None:
    """What was erased on request does not come back by asking for an earlier time."""
    _, timed = typed(["one "])
    found, _ = restored(
        [*timed, (500 * SECOND, ErasedRecord("erasure", ("term",), 0, 0, 42))], at_ns=100 * SECOND
    )
    assert found.erased_ns == 42


def test_a_record_that_cannot_be_read_is_told_and_the_rest_is_used() -> None:
    """One malformed record loses one record."""
    _, timed = typed(["one "])

    def fetch(place: int) -> DocumentRecord | None:
        return records.decode_document(["u", 1, 2] if place == 1 else records.encode(timed[0][1]))

    found = gather([(0, 0), (1, 1)], fetch)
    rebuilt = rebuild(found, fetch, now_ns=NOW)
    assert text(rebuilt) == "one "
    assert [why.startswith(UNREADABLE) for why in rebuilt.left] == [True]


def test_an_update_that_does_not_decode_is_left_out() -> None:
    """Bytes that are no Loro update cost nobody else anything."""
    _, timed = typed(["one "])
    _, rebuilt = restored([*timed, (90 * SECOND, update(b"no update at all, whatever it says", 2))])
    assert text(rebuilt) == "one "
    assert sum(rebuilt.left.values()) == 1


def in_term(timed: Sequence[Timed], term: str) -> list[Timed]:
    """The same updates and bases, accepted or loaded in that term."""
    return [
        (time_ns, replace(record, term=term))
        for time_ns, record in timed
        if isinstance(record, UpdateRecord | BaseRecord)
    ]


@given(st.permutations(range(5)))
def test_content_of_ended_terms_stays_out_and_is_not_missing(order: list[int]) -> None:
    """Neither the times nor the order of the records matter, but the terms that the deletion ended."""
    _, past = typed(["gone "])
    former, later = Writer(), Writer()
    former.type("gone, too ")
    later.type("later ")
    old = base(former.doc.export(ExportMode.Snapshot()), given=False)
    new = base(later.doc.export(ExportMode.Snapshot()))
    more = update(later.type("and more"), 3)
    deletion: Timed = (100 * SECOND, DeletedRecord("tombstone", ("ended",), 7, 0, 100 * SECOND))
    ended = in_term([*past, (2, old)], "ended")
    timed = [*ended, *in_term([(3, new), (120 * SECOND, more)], "living"), deletion]
    found, rebuilt = restored([timed[place] for place in order])
    assert text(rebuilt) == later.text
    assert (found.deleted_ns, found.updates, rebuilt.left) == (0, 2, {})


def test_an_ended_term_that_a_living_one_continues_is_content() -> None:
    """An owner that does not know the deletion goes on with the earlier content."""
    _, timed = typed(["one ", "two "])
    records_of = [*in_term(timed[:1], "ended"), *in_term(timed[1:], "living")]
    deletion: Timed = (100 * SECOND, DeletedRecord("tombstone", ("ended",), 7, 0, 100 * SECOND))
    named: Timed = (110 * SECOND, TermRecord("living", ("ended",), TermKind.ACQUIRED, (), 6, 0))
    found, rebuilt = restored([*records_of, deletion, named])
    assert (text(rebuilt), found.deleted_ns, rebuilt.left) == ("one two ", 0, {})


def test_a_document_of_a_time_before_its_deletion_undoes_that_deletion() -> None:
    """Else a server that knows the later deletion would delete the document that is restored."""
    _, timed = typed(["one "])
    later: Timed = (300 * SECOND, DeletedRecord("tombstone", ("ended",), 7, 0, 300 * SECOND))
    found, rebuilt = restored([*in_term(timed, "ended"), later], at_ns=100 * SECOND)
    assert (text(rebuilt), found.deleted_ns, found.terms.undone) == ("one ", 0, {"tombstone"})
