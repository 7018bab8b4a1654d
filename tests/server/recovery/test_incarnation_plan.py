"""Plan for the incarnation of one document: a table of its cases, and that its steps are idempotent."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_protocol.journal.incarnation import DocumentTerms, Ends
from lorogo_protocol.journal.records import DocumentRecord, TermKind
from lorogo_protocol.loro import crdt
from lorogo_protocol.position import NOWHERE, Position
from lorogo_server.recovery.incarnation_plan import Amend, Bury, Revive, Step, plan
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.terms import DELETED_NS, ENDS, HISTORIES, SETS, TERMS, deletion, erasure, folded, named, update

RESTORED = TermKind.RESTORED
CUTOFF = Position(1, 9, 9)
SIZE = 100  # of a stored snapshot with content
LIVING = SnapshotMetadata(position=Position(1, 2, 3), frontiers=b"f", trim=b"t", dated="[1]", term="a")
DELETED = replace(LIVING, tombstone="x", ended=("a",), ended_ns=DELETED_NS, deleted_ns=DELETED_NS)
ERASED = SnapshotMetadata(
    tombstone="x", ended=("a",), ended_ns=DELETED_NS, deleted_ns=DELETED_NS, erased_ns=DELETED_NS
)


@dataclass(frozen=True)
class Case:
    """Facts of the journals and of NATS, and the step; `kept`: it keeps the content."""

    name: str
    records: list[DocumentRecord]
    stored: SnapshotMetadata | None
    step: type[Step] | None
    kept: bool | None = None
    size: int = SIZE
    have: Ends = field(default_factory=dict)


EDITED = update("a", 1, 5)
TABLE = [
    # --- erased, no term lives ---
    Case("erased, stored content", [EDITED, erasure("x", "a")], LIVING, Bury, kept=False),
    Case("erased, nothing stored", [EDITED, erasure("x", "a")], None, Bury, kept=False, size=0),
    Case("erased, a tombstone with its content", [erasure("y", "a")], DELETED, Bury, kept=False),
    Case("erased, an erasure with content", [erasure("x", "a")], ERASED, Bury, kept=False),
    Case("erased, an erasure", [erasure("x", "a")], ERASED, None, size=0),
    Case(
        "erased, a tombstone of content that builds on it",
        [erasure("y", "e", ended={9: 1})],
        DELETED,
        Bury,
        kept=False,
        have={9: 2},
    ),
    Case(
        "erased, a tombstone of other content",
        [erasure("y", "e", ended={9: 1})],
        DELETED,
        None,
        have={1: 5},
    ),
    # --- deleted, no term lives ---
    Case("deleted, a living snapshot", [EDITED, deletion("x", "a")], LIVING, Bury, kept=True),
    Case("deleted, nothing stored", [EDITED, deletion("x", "a")], None, Bury, kept=True, size=0),
    Case("deleted, the tombstone", [EDITED, deletion("x", "a")], DELETED, None),
    Case("deleted, the tombstone of another deletion", [EDITED, deletion("y", "a")], DELETED, None),
    Case("deleted, a tombstone that no journal has", [EDITED], DELETED, None),
    # --- lives ---
    Case(
        "edits that the deletion did not know, its tombstone",
        [EDITED, deletion("x", "a"), update("b", 2, 4)],
        DELETED,
        Revive,
        kept=False,
    ),
    Case(
        "edits that continue the content of the tombstone",
        [EDITED, deletion("x", "a"), update("b", 2, 4), named("b", "a")],
        DELETED,
        Revive,
        kept=True,
    ),
    Case(
        "restored, its tombstone",
        [EDITED, deletion("x", "a"), named("b", "a", kind=RESTORED, undoes=("x",))],
        DELETED,
        Revive,
        kept=True,
    ),
    Case(
        "restored, a tombstone without a term",
        [EDITED, deletion("x", "a"), named("b", "a", kind=RESTORED, undoes=("x",))],
        replace(DELETED, term=""),
        Revive,
        kept=True,
    ),
    Case("edits that the erasure did not know, the erasure", [update("b", 2, 4)], ERASED, None, size=0),
    Case("lives in a later generation", [update("a", 1, 5, generation=2)], LIVING, Amend),
    Case("lives in the stored generation", [EDITED], LIVING, None),
    Case(
        "lives after an earlier deletion, without the terms that it ended",
        [update("e", 9, 1), deletion("y", "e"), EDITED],
        LIVING,
        Amend,
    ),
    Case(
        "lives after an earlier deletion, with the terms that it ended",
        [update("e", 9, 1), deletion("y", "e"), EDITED],
        replace(LIVING, tombstone="y", ended=("e",), ended_ns=DELETED_NS, vector=crdt.vector_of({9: 1})),
        None,
    ),
    Case(
        "restored, a living snapshot without that term",
        [EDITED, named("b", "a", kind=RESTORED)],
        LIVING,
        Amend,
    ),
    Case(
        "restored, a snapshot of a term that continues it",
        [EDITED, named("b", "a", kind=RESTORED), named("c", "b")],
        replace(LIVING, term="c", founded=("b",)),
        None,
    ),
    Case("created, nothing stored", [named("b", kind=TermKind.CREATED)], None, None, size=0),
    Case("lives, nothing stored", [EDITED], None, None, size=0),
    Case("no records", [], LIVING, None),
]


def union(terms: DocumentTerms, stored: SnapshotMetadata | None) -> DocumentTerms:
    """The terms with the facts of the metadata, as the reconciler reads them."""
    if stored is not None:
        stored.add_to(terms)
    return terms


def executed(step: Step, size: int, have: Ends) -> tuple[SnapshotMetadata, int, Ends]:
    """What is stored after the step."""
    facts = replace(step.facts, cutoff=CUTOFF) if isinstance(step, Revive) else step.facts
    if isinstance(step, Amend) or step.keeps_content:
        return facts, size, have
    return facts, 0, {}


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_every_case_has_its_step(case: Case) -> None:
    """The stored metadata follow the terms; where they agree, nothing is stored."""
    terms = union(folded(case.records), case.stored)
    step = plan(terms, case.stored, case.size, case.have)
    assert (None if step is None else type(step)) is case.step
    if isinstance(step, Bury | Revive):
        assert step.keeps_content is case.kept
    if step is not None:
        stored, size, have = executed(step, case.size, case.have)
        assert stored.deleted == terms.incarnation().deleted
        assert SnapshotMetadata.parse(stored.render()) == stored
        assert plan(union(terms, stored), stored, size, have) is None


def test_a_stored_deletion_has_the_terms_of_the_tombstone() -> None:
    """With those that the metadata named, so that another server ends the same terms."""
    terms = union(folded([EDITED, deletion("x", "a", generation=2, deleted_ns=60)]), LIVING)
    step = plan(terms, LIVING, SIZE, {})
    assert step == Bury(
        replace(
            LIVING,
            lease=1,
            generation=2,
            tombstone="x",
            ended=("a",),
            ended_ns=60,
            deleted_ns=60,
            vector=crdt.vector_of({1: 5}),
        ),
        keeps_content=True,
    )


def test_a_stored_erasure_has_nothing_of_the_content() -> None:
    """Neither its position, its heads nor its dated versions."""
    terms = union(folded([EDITED, erasure("x", "a", erased_ns=60)]), replace(LIVING, cutoff=CUTOFF))
    step = plan(terms, replace(LIVING, cutoff=CUTOFF), SIZE, {})
    assert isinstance(step, Bury)
    assert (step.facts.position, step.facts.cutoff) == (NOWHERE, NOWHERE)
    assert (step.facts.frontiers, step.facts.trim, step.facts.dated) == (b"", b"\x00", "[]")
    assert (step.facts.erased_ns, step.facts.deleted_ns, step.facts.ended) == (60, 60, ("a",))


def test_a_restore_that_the_stored_document_does_not_know_is_ended_by_a_later_deletion() -> None:
    """NATS lost it, and an owner that does not know it may delete the document: it ends that term, too."""
    first, last = named("b", "a", kind=RESTORED), named("c", "b", kind=RESTORED)
    terms = union(folded([EDITED, first, last]), LIVING)
    step = plan(terms, LIVING, SIZE, {})
    assert step == Amend(replace(LIVING, founded=("b", "c")))
    stored = step.facts.claimed("d", 2)
    terms.add(deletion("x", *stored.deleted_as("x", b"", 60).ended))
    assert terms.incarnation().deleted


def test_a_revived_document_has_a_later_generation_and_a_cutoff() -> None:
    """Clients notice the generation and rebase; messages up to the cutoff were refused."""
    restore = named("b", "a", kind=RESTORED, undoes=("x",))
    step = plan(union(folded([EDITED, deletion("x", "a"), restore]), DELETED), DELETED, SIZE, {})
    assert isinstance(step, Revive)
    stored, _, _ = executed(step, SIZE, {})
    assert (stored.generation, stored.cutoff, stored.undone) == (1, CUTOFF, ("x",))
    assert (stored.deleted_ns, stored.tombstone, stored.ended, stored.vector) == (0, "", (), b"")
    assert (stored.position, stored.frontiers, stored.term) == (LIVING.position, b"f", "a")


def test_a_revived_document_without_the_content_of_its_tombstone_begins_empty() -> None:
    """Its content is in journals, and ended terms stay ended."""
    step = plan(union(folded([update("b", 2, 4)]), DELETED), DELETED, SIZE, {})
    assert isinstance(step, Revive)
    stored, _, _ = executed(step, SIZE, {})
    assert (stored.position, stored.frontiers, stored.trim, stored.dated) == (NOWHERE, b"", b"\x00", "[]")
    assert (stored.term, stored.ancestors, stored.ended, stored.tombstone) == ("", (), ("a",), "x")


@st.composite
def metadata(draw: st.DrawFn) -> SnapshotMetadata:
    """Metadata as servers store them: a living document, a tombstone, or an erasure without content."""
    facts = SnapshotMetadata(
        position=Position(1, draw(st.integers(0, 9)), 1),
        generation=draw(st.integers(0, 3)),
        lease=draw(st.integers(0, 3)),
        term=draw(TERMS),
        ancestors=draw(SETS),
        undone=draw(st.sampled_from([(), ("deletion 1",)])),
    )
    state = draw(st.sampled_from(["living", "deleted before", "deleted", "erased"]))
    if state == "living":
        return facts
    vector = draw(ENDS)
    buried = replace(
        facts,
        tombstone="erasure" if state == "erased" else "deletion 2",
        ended=draw(SETS),
        ended_ns=DELETED_NS,
        vector=crdt.vector_of(vector) if vector else b"",
    )
    if state == "deleted before":
        return buried
    buried = replace(buried, deleted_ns=DELETED_NS)
    if state == "deleted":
        return buried
    return replace(buried, erased_ns=DELETED_NS, position=NOWHERE)


@given(HISTORIES, st.none() | metadata(), ENDS)
@settings(max_examples=500)
def test_every_step_is_idempotent(
    history: list[DocumentRecord], stored: SnapshotMetadata | None, have: Ends
) -> None:
    """After a step is executed, the next pass has none: servers do not store one document in turn."""
    terms = union(folded(history), stored)
    size = 0 if stored is None or stored.erased_ns else SIZE
    step = plan(terms, stored, size, have)
    if step is None:
        return
    after, size, have = executed(step, size, have)
    assert after.deleted == terms.incarnation().deleted
    assert SnapshotMetadata.parse(after.render()) == after
    again = plan(union(terms, after), after, size, have)
    assert again is None, (step, again)
