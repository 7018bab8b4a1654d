"""Metadata of a stored snapshot: parsed as rendered, within one message, and its facts about terms."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.journal.incarnation import ANCESTORS_MAX, DocumentTerms
from lorogo_protocol.journal.records import TermKind
from lorogo_protocol.loro import crdt
from lorogo_protocol.position import NOWHERE, Position
from lorogo_server.recovery.incarnation_plan import Bury, plan
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.terms import ENDS, base, deletion, folded, named

NUMBERS = st.integers(0, 2**62)
IDS = st.text("abcXYZ019_-", min_size=1, max_size=12)
SOME = st.lists(IDS, max_size=ANCESTORS_MAX).map(tuple)
POSITIONS = st.builds(Position, NUMBERS, NUMBERS, NUMBERS)
METADATA = st.builds(
    SnapshotMetadata,
    position=POSITIONS,
    frontiers=st.binary(),
    trim=st.binary(),
    dated=st.just("[[1,2,3]]"),
    lease=NUMBERS,
    generation=NUMBERS,
    term=st.just("") | IDS,
    ancestors=SOME,
    tombstone=st.just("") | IDS,
    ended=SOME,
    ended_ns=NUMBERS,
    undone=SOME,
    vector=ENDS.map(crdt.vector_of),
    deleted_ns=NUMBERS,
    erased_ns=NUMBERS,
    cutoff=POSITIONS,
)
FULL = SnapshotMetadata(
    position=Position(2, 7, 5),
    frontiers=b"heads",
    trim=b"trim",
    dated="[[1,2,3]]",
    lease=9,
    generation=3,
    term="term",
    ancestors=("parent", "grandparent"),
    founded=("founder",),
    tombstone="tombstone",
    ended=("ended",),
    ended_ns=10,
    undone=("undone",),
    vector=crdt.vector_of({1: 5}),
    deleted_ns=11,
    erased_ns=12,
    cutoff=Position(1, 8, 4),
)


@given(METADATA)
def test_metadata_are_parsed_as_they_were_rendered(facts: SnapshotMetadata) -> None:
    """Every field, also where it has its default."""
    assert SnapshotMetadata.parse(facts.render()) == facts


def test_every_field_is_rendered() -> None:
    """A field that this table does not have would be lost silently."""
    default = SnapshotMetadata()
    assert all(getattr(FULL, field.name) != getattr(default, field.name) for field in fields(FULL))
    assert SnapshotMetadata.parse(FULL.render()) == FULL


def test_a_vector_that_is_too_large_is_left_out_and_everything_that_decides_stays() -> None:
    """The records of the ended terms have the same operations; the ids of terms have no other place."""
    many = tuple(f"{number:012}" for number in range(ANCESTORS_MAX))
    facts = replace(FULL, ancestors=many, ended=many, undone=many, vector=bytes(300_000))
    rendered = facts.render()
    assert "vector" not in rendered
    assert sum(map(len, rendered.values())) < 8192
    left_out = replace(facts, vector=b"", frontiers=b"", trim=b"\x00", dated="[]")
    assert SnapshotMetadata.parse(rendered) == left_out


def test_dated_versions_are_left_out_before_the_vector() -> None:
    """They only inform."""
    versions = "[" + ",".join(["[1,2,3]"] * 1000) + "]"
    rendered = replace(FULL, dated=versions).render(bytes_max=2000)
    assert 0 < len(rendered["dated"]) < 2000
    assert SnapshotMetadata.parse(rendered).vector == FULL.vector


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "1"},
        {"format": ""},
        {"lease": "x"},
        {"vector": "?"},
        {"cutoff": "1:2"},
        {"ended_ns": "soon"},
    ],
)
def test_malformed_metadata_are_refused(damage: dict[str, str]) -> None:
    """A format of another version, and a field that does not parse."""
    with pytest.raises(MalformedMessage):
        SnapshotMetadata.parse(FULL.render() | damage)


# --- terms ----------------------------------------------------------------------------------------


def test_a_claim_continues_the_term_before() -> None:
    """A repeated claim of one owner names its term once."""
    claimed = FULL.claimed("next", 10)
    assert (claimed.term, claimed.lease) == ("next", 10)
    assert claimed.ancestors == ("term", "parent", "grandparent")
    assert claimed.claimed("next", 11).ancestors == claimed.ancestors


def test_a_deletion_ends_the_term_its_ancestors_and_those_ended_before() -> None:
    """An earlier incarnation stays ended."""
    deleted = replace(FULL, deleted_ns=0, erased_ns=0).deleted_as("later", b"\x00", 60)
    assert deleted.ended == ("term", "founder", "parent", "grandparent", "ended")
    assert (deleted.tombstone, deleted.ended_ns, deleted.deleted_ns) == ("later", 60, 60)
    assert deleted.deleted


def test_a_restore_undoes_the_deletion_under_a_new_term() -> None:
    """The generation rises, so that clients rebase."""
    restored = replace(FULL, erased_ns=0).restored("next", 10, Position(3, 1, 1))
    assert (restored.term, restored.ancestors[0]) == ("next", "term")
    assert (restored.undone, restored.tombstone, restored.ended) == (("tombstone", "undone"), "", ())
    assert (restored.deleted, restored.generation, restored.cutoff) == (False, 4, Position(3, 1, 1))
    assert (restored.vector, restored.ended_ns) == (b"", 0)


def test_another_snapshot_adds_its_deletions() -> None:
    """The document keeps its own term, and the later generation."""
    merged = SnapshotMetadata(term="mine", ended=("first",), generation=1).merged(FULL)
    assert (merged.term, merged.tombstone, merged.generation) == ("mine", "tombstone", 3)
    assert (merged.ended, merged.undone, merged.vector) == (("first", "ended"), ("undone",), FULL.vector)


def test_facts_of_metadata_join_those_of_the_journals() -> None:
    """A tombstone in NATS ends terms like one in a journal; the vector tells which operations ended."""
    terms = DocumentTerms()
    replace(FULL, erased_ns=0, ended=("founder", "ended")).add_to(terms)
    found = terms.incarnation()
    assert (found.tombstone, found.deleted, terms.generation) == ("tombstone", True, 3)
    assert found.has_gone({1: 5})
    assert terms.parents == {"term": {"parent"}, "parent": {"grandparent"}}
    assert terms.undone == {"undone"}


def test_the_ends_of_a_damaged_vector_are_unknown() -> None:
    """The deletion counts all the same."""
    assert FULL.ends == {1: 5}
    assert SnapshotMetadata().ends == replace(FULL, vector=b"\xff").ends == {}


VECTOR = crdt.vector_of({1: 5})
FORKED = SnapshotMetadata(term="begun", founded=("begun",))
RESTORED = SnapshotMetadata(term="old").deleted_as("first", VECTOR, 50).restored("begun", 2, NOWHERE)


def acquired(facts: SnapshotMetadata, times: int) -> SnapshotMetadata:
    """The metadata after so many owners."""
    for number in range(times):
        facts = facts.claimed(f"owner-{number}", number + 1)
    return facts


@pytest.mark.parametrize("begun", [FORKED, RESTORED], ids=["forked", "restored"])
@pytest.mark.parametrize("owners", [0, 1, ANCESTORS_MAX + 1])
def test_a_deletion_ends_a_founded_document_after_any_number_of_owners(
    begun: SnapshotMetadata, owners: int
) -> None:
    """The journal of the server that forked or restored it does not revive it."""
    stored = acquired(begun, owners).deleted_as("last", VECTOR, 60)
    stored = SnapshotMetadata.parse(stored.render())
    terms = folded(
        [named("begun", kind=TermKind.RESTORED, undoes=begun.undone), base("begun", {1: 5}, content=b"x")]
    )
    stored.add_to(terms)
    assert plan(terms, stored, 10, {}) is None


@pytest.mark.parametrize("begun", [FORKED, RESTORED], ids=["forked", "restored"])
def test_a_founded_document_lives_without_the_journal_of_its_founder(begun: SnapshotMetadata) -> None:
    """Its metadata suffice against a deletion of the same operations that only a journal has."""
    stored = acquired(begun, 2)
    terms = folded([deletion("unknown", "old", ended={1: 5}), base("old", {1: 5})])
    stored.add_to(terms)
    assert not terms.incarnation().deleted


def test_founded_terms_of_journals_are_stored_beside_the_living_document() -> None:
    """The next deletion names them, although NATS had lost them."""
    terms = folded([named("begun", kind=TermKind.CREATED)])
    stored = replace(FORKED, founded=())
    stored.add_to(terms)
    step = plan(terms, stored, 10, {})
    assert step is not None
    assert step.facts == FORKED


def test_a_tombstone_that_is_stored_again_ends_the_founded_terms() -> None:
    """A journal knows them as ancestors of what the deletion ended; the next server does not."""
    stored = acquired(FORKED, ANCESTORS_MAX + 1)
    terms = folded([named("last", "begun"), deletion("lost", "last", stored.term, ended={1: 5})])
    stored.add_to(terms)
    step = plan(terms, stored, 10, {})
    assert isinstance(step, Bury)
    elsewhere = folded([named("begun", kind=TermKind.CREATED), base("begun", {1: 5}, content=b"x")])
    step.facts.add_to(elsewhere)
    assert plan(elsewhere, step.facts, 10, {}) is None
