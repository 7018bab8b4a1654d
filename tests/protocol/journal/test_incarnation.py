"""Incarnations: which terms of a document live, by the union of records in any order (decision 0023)."""

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_protocol.journal.incarnation import (
    ANCESTORS_MAX,
    DocumentTerms,
    Ends,
    Tombstone,
    includes,
    lineage,
    operations,
)
from lorogo_protocol.journal.records import DocumentRecord, TermKind
from tests.terms import HISTORIES, base, deletion, erasure, folded, named, update

CREATED, RESTORED = TermKind.CREATED, TermKind.RESTORED


@dataclass(frozen=True)
class History:
    """Records, and the document that they describe."""

    name: str
    records: list[DocumentRecord]
    deleted: bool
    living: str = ""  # terms
    content: str | None = ""  # terms; None: all
    ends: Ends = field(default_factory=dict)


TABLE = [
    History("no records", [], False, "", None),
    History("an update", [update("a", 1, 5)], False, "a", None, {1: 5}),
    History("a created document", [named("a", kind=CREATED)], False, "a", None),
    History("an opened document", [named("a")], False, "", None),
    # --- deletions ---
    History("a deletion ends its terms", [update("a", 1, 5), deletion("x", "a")], True, "", "a"),
    History("a deletion without known edits", [deletion("x", "a")], True, "", "a"),
    History(
        "a deletion ends the ancestors of its terms",
        [update("a", 1, 5), update("b", 2, 3), named("b", "a"), deletion("x", "b")],
        True,
        "",
        "ab",
    ),
    History(
        "ancestors are followed through terms without edits",
        [update("a", 1, 5), named("c", "b"), named("b", "a"), deletion("x", "c")],
        True,
        "",
        "abc",
    ),
    History(
        "a token was given out twice: the deletion does not name the term of the edits",
        [update("a", 1, 5), update("b", 2, 4), deletion("x", "a")],
        False,
        "b",
        "b",
        {2: 4},
    ),
    History(
        "NATS went back: another server edits, then the deleting one returns",
        [
            update("a", 1, 5),
            named("c", "a"),
            update("c", 3, 2),
            deletion("x", "c", "a"),
            named("b", "a"),
            update("b", 2, 4),
        ],
        False,
        "b",
        "ab",
        {1: 5, 2: 4},
    ),
    History(
        "a paused owner journals an update after the deletion of its successor",
        [update("a", 1, 5), named("b", "a"), deletion("x", "b", "a"), update("a", 1, 9)],
        True,
        "",
        "ab",
    ),
    History(
        "a tombstone that only an absent server knows: users edit content that another journal brought back",
        [update("a", 1, 5), deletion("x", "a"), base("b", {1: 5}), update("b", 2, 1)],
        False,
        "b",
        "b",
        {1: 5, 2: 1},
    ),
    History(
        "the journals between a term and the deletion are lost: the term is unknown",
        [update("a", 1, 5), named("c", "b"), deletion("x", "c")],
        False,
        "a",
        "a",
        {1: 5},
    ),
    History(
        "opening a deleted document revives nothing",
        [update("a", 1, 5), deletion("x", "a"), named("b", "a"), base("b", {1: 5})],
        True,
        "",
        "a",
    ),
    History(
        "the deletion names operations whose records are lost",
        [deletion("x", "a", ended={1: 5}), base("b", {1: 5})],
        True,
        "",
        "a",
    ),
    History(
        "a term with operations after those that the deletion names",
        [deletion("x", "a", ended={1: 5}), update("b", 1, 6)],
        False,
        "b",
        "b",
        {1: 6},
    ),
    History(
        "a document that is created after a deletion lives without edits",
        [update("a", 1, 5), deletion("x", "a"), named("b", kind=CREATED)],
        False,
        "b",
        "b",
    ),
    History(
        "two journals name different terms of one deletion",
        [update("a", 1, 5), update("b", 2, 3), deletion("x", "a"), deletion("x", "b")],
        True,
        "",
        "ab",
    ),
    History(
        "two deletions end more than one",
        [update("a", 1, 5), update("b", 2, 3), deletion("x", "a"), deletion("y", "b", deleted_ns=60)],
        True,
        "",
        "b",
    ),
    # --- restores ---
    History(
        "a restore undoes a deletion",
        [update("a", 1, 5), deletion("x", "a"), named("b", "a", kind=RESTORED, undoes=("x",))],
        False,
        "ab",
        None,
        {1: 5},
    ),
    History(
        "a restore undoes the deletions that it knew, no other one",
        [
            update("a", 1, 5),
            deletion("x", "a"),
            named("b", "a", kind=RESTORED, undoes=("x",)),
            deletion("y", "b", "a"),
        ],
        True,
        "",
        "ab",
    ),
    History(
        "a restored document lives though a deletion that its server did not know ends the content",
        [
            update("a", 1, 5),
            deletion("x", "a"),
            deletion("y", "a"),
            named("b", "a", kind=RESTORED, undoes=("x",)),
        ],
        False,
        "b",
        "ab",
        {1: 5},
    ),
    # --- erasures ---
    History("an erasure removes its content", [update("a", 1, 5), erasure("x", "a")], True),
    History(
        "nothing undoes an erasure",
        [update("a", 1, 5), erasure("x", "a"), named("b", "a", kind=RESTORED, undoes=("x",))],
        True,
    ),
    History(
        "a descendant of an erased term is erased",
        [update("a", 1, 5), erasure("x", "a"), named("c", "b"), named("b", "a"), update("c", 2, 3)],
        True,
    ),
    History(
        "edits beside erased operations that a client brought back live",
        [update("a", 1, 5), erasure("x", "a"), update("b", 1, 5), update("b", 2, 3)],
        False,
        "b",
        "b",
        {1: 5, 2: 3},
    ),
    History(
        "erased operations that a client brought back are erased",
        [update("a", 1, 5), erasure("x", "a"), update("b", 1, 5)],
        True,
    ),
    History(
        "the erasure has the operations whose records are removed",
        [erasure("x", "a", ended={1: 5}), base("b", {1: 5})],
        True,
    ),
    History(
        "edits that neither continue an erased term nor have its operations live",
        [update("a", 1, 5), erasure("x", "a"), update("b", 2, 3)],
        False,
        "b",
        "b",
        {2: 3},
    ),
    History(
        "an erasure ends the ancestors of its terms",
        [update("a", 1, 5), named("b", "a"), erasure("x", "b")],
        True,
    ),
    History(
        "a deletion and an erasure: erased content is no content",
        [update("a", 1, 5), update("b", 2, 3), erasure("x", "a"), deletion("y", "b", deleted_ns=60)],
        True,
        "",
        "b",
    ),
]


@pytest.mark.parametrize("turned", [False, True], ids=["in order", "in reverse"])
@pytest.mark.parametrize("history", TABLE, ids=lambda history: history.name)
def test_a_history_folds_to_its_incarnation(history: History, turned: bool) -> None:
    """Terms live unless a deletion or erasure ended them, or they only opened the document."""
    found = folded(history.records[::-1] if turned else history.records).incarnation()
    content = None if history.content is None else frozenset(history.content)
    assert (found.deleted, found.living) == (history.deleted, frozenset(history.living))
    assert (found.content, found.ends) == (content, history.ends)


@given(HISTORIES, st.data(), st.randoms(use_true_random=False))
@settings(max_examples=500)
def test_any_permutation_and_duplication_folds_to_the_same_incarnation(
    history: list[DocumentRecord], data: st.DataObject, rng: random.Random
) -> None:
    """Journals are read one after another, and each again from a little before its end."""
    again = [*history, *data.draw(st.lists(st.sampled_from(history)) if history else st.just([]))]
    rng.shuffle(again)
    one, other = folded(history), folded(again)
    assert one.incarnation() == other.incarnation()
    assert one.generation == other.generation


@given(HISTORIES)
@settings(max_examples=300)
def test_what_every_incarnation_keeps(history: list[DocumentRecord]) -> None:
    """No ended term lives, no erased term is content, and content is that of living terms, if any lives."""
    terms = folded(history)
    found = terms.incarnation()
    assert found.erased <= found.ended
    assert found.living.isdisjoint(found.ended)
    assert found.deleted == (bool(found.tombstone) and not found.living)
    if found.content is not None:
        assert found.content.isdisjoint(found.erased)
        assert found.living <= found.content
    for term in found.living - terms.founded:
        assert not found.has_gone(terms.operations[term]) or not found.tombstone
    assert terms.incarnation() is found
    assert not terms.changed


@given(HISTORIES, HISTORIES)
def test_records_of_a_later_reading_count(history: list[DocumentRecord], later: list[DocumentRecord]) -> None:
    """A fold in between changes nothing, and `changed` is True if a record added a fact."""
    terms = folded(history)
    before = terms.incarnation()
    for record in later:
        terms.add(record)
    assert terms.changed or terms.incarnation() == before
    assert terms.incarnation() == folded([*history, *later]).incarnation()


@pytest.mark.parametrize(
    ("records", "tombstone"),
    [
        ([deletion("x", "a"), deletion("y", "a", deleted_ns=60)], "y"),
        ([deletion("x", "a", generation=1), deletion("y", "a", deleted_ns=60)], "x"),
        ([deletion("x", "a"), deletion("y", "a")], "y"),
        ([deletion("x", "a"), named("b", kind=RESTORED, undoes=("x",))], ""),
        ([deletion("x", "a"), deletion("y", "b"), named("b", kind=RESTORED, undoes=("y",))], "x"),
        ([erasure("x", "a"), erasure("y", "a", erased_ns=60)], "y"),
    ],
)
def test_the_last_deletion_that_no_restore_undoes_counts(
    records: list[DocumentRecord], tombstone: str
) -> None:
    """By generation, then by time; the erasure that counts is the last one."""
    for some in (records, records[::-1]):
        found = folded(some).incarnation()
        assert found.tombstone == tombstone
        assert found.erasure in {"", tombstone}


def test_operations_revive_a_document_unless_all_of_them_ended() -> None:
    """The term must not be ended either."""
    found = folded(
        [update("a", 1, 5), deletion("x", "a"), update("e", 9, 1), erasure("y", "e")]
    ).incarnation()
    assert found.revives("b", {2: 1})
    assert found.revives("b", {1: 6})
    assert not found.revives("b", {1: 5})
    assert not found.revives("a", {2: 1})
    assert not found.revives("b", {9: 1})
    assert found.has_gone({1: 5, 9: 1})
    assert not found.has_gone({1: 5, 2: 1})
    assert found.has_erased({9: 4})
    assert not found.has_erased({1: 4})


def test_records_of_ended_terms_are_no_content() -> None:
    """Without a deletion, every record is."""
    history: list[DocumentRecord] = [update("a", 1, 5), update("b", 2, 4)]
    assert folded(history).incarnation().has("unknown")
    found = folded([*history, deletion("x", "a")]).incarnation()
    assert (found.has("a"), found.has("b")) == (False, True)


def test_operations_above_a_limit_are_dropped() -> None:
    """Neither journals nor NATS have them any more, so no document is incomplete without them."""
    terms = folded([update("a", 1, 5), update("b", 2, 4)])
    terms.limit({1: 3})
    assert terms.incarnation().ends == {1: 3}


def test_a_base_or_update_that_cannot_be_read_has_no_operations() -> None:
    """Its record is kept; what it holds is unknown. A deletion without a readable version still counts."""
    assert operations(replace(update("a", 1, 5), spans=(), payload=b"no update")) == {}
    assert operations(replace(base("a", {1: 5}), vector=b"\xff")) == {}
    assert operations(base("a", {1: 5})) == operations(update("a", 1, 5)) == {1: 5}
    terms = folded([update("a", 1, 5), replace(deletion("x", "a"), vector=b"\xff")])
    assert terms.incarnation().deleted


def test_a_lineage_is_bounded_and_without_repetitions() -> None:
    """The nearest ancestors are first, and the farthest ones are dropped."""
    assert lineage("b", "", "a", "b") == ("b", "a")
    many = [str(number) for number in range(2 * ANCESTORS_MAX)]
    assert lineage(*many) == tuple(many[:ANCESTORS_MAX])


def test_a_version_has_no_gaps() -> None:
    """A version with an end of a peer includes all operations of that peer before it."""
    assert includes({1: 5, 2: 3}, {1: 5})
    assert includes({}, {})
    assert not includes({1: 5}, {1: 6})
    assert not includes({1: 5}, {2: 1})


def test_tombstones_with_one_id_are_united() -> None:
    """Each number is the higher one."""
    one = Tombstone(frozenset("a"), 1, 5, 50, 0)
    other = Tombstone(frozenset("b"), 2, 4, 40, 60)
    assert one.union(other) == other.union(one) == Tombstone(frozenset("ab"), 2, 5, 50, 60)


def test_an_empty_history_is_a_living_document() -> None:
    """Without a deletion, there is nothing to end."""
    found = DocumentTerms().incarnation()
    assert not found.deleted
    assert found.revives("a", {1: 1})
