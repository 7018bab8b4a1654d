"""What the metadata of a snapshot say about the document's terms."""

from dataclasses import replace

import pytest

from lorogo_protocol.journal.incarnation import ANCESTORS_MAX
from lorogo_protocol.journal.records import TermKind
from lorogo_protocol.loro import crdt
from lorogo_protocol.position import NOWHERE
from lorogo_server.recovery.incarnation_plan import plan
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.terms import base, deletion, folded, named

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
