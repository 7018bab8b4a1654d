"""Plan for the incarnation of one document: from the facts of the journals and of its stored metadata; pure.

    desired, by the terms               stored                             step
    erased, no term lives               content, or no erasure             Bury, without content
    deleted, no term lives              no tombstone                       Bury
    lives                               a tombstone                        Revive
    lives                               an erasure                         none: an erasure is final
    lives, in a later generation        an earlier one                     Amend
    lives, after an earlier deletion    without the terms that it ended    Amend
    lives; founded by a term            without the term that it began     Amend
    lives                               nothing                            none

Every step is a compare-and-swap of the metadata and idempotent; the next pass plans again.
"""

from dataclasses import dataclass, replace

from lorogo_protocol.journal.incarnation import (
    ENDED_MAX,
    DocumentTerms,
    Ends,
    Incarnation,
    includes,
    lineage,
)
from lorogo_protocol.loro import crdt
from lorogo_protocol.position import NOWHERE
from lorogo_server.snapshot_metadata import SnapshotMetadata


@dataclass(frozen=True, slots=True)
class Bury:
    """Store the tombstone; `keeps_content`: with what a restore may bring back."""

    facts: SnapshotMetadata
    keeps_content: bool


@dataclass(frozen=True, slots=True)
class Revive:
    """Store the living document over its tombstone; `keeps_content`: the tombstone has its content."""

    facts: SnapshotMetadata
    keeps_content: bool


@dataclass(frozen=True, slots=True)
class Amend:
    """Store facts that only journals have beside the living document."""

    facts: SnapshotMetadata


Step = Bury | Revive | Amend


def plan(terms: DocumentTerms, stored: SnapshotMetadata | None, size: int, have: Ends) -> Step | None:
    """Return the step that makes the stored metadata agree with the terms; None: they agree.

    `terms` include the stored facts. `size` and `have`: of the stored content, and ends of its operations, as
    far as they are known.
    """
    desired = terms.incarnation()
    if desired.deleted:
        return _bury(terms, desired, stored or SnapshotMetadata(), size, have)
    if stored is None:  # its owner stores it from memory, or the repair of its content does
        return None
    if stored.deleted:
        # While an erasure is stored, no owner can begin a new incarnation: what lives was not known to it.
        return None if stored.erased_ns else _revive(terms, desired, stored)
    amended = amend(terms, stored)
    return None if amended == stored else Amend(amended)


def amend(terms: DocumentTerms, stored: SnapshotMetadata) -> SnapshotMetadata:
    """Return the metadata of a living document with the facts that journals have."""
    desired = terms.incarnation()
    amended = replace(
        stored,
        generation=max(terms.generation, stored.generation),
        founded=lineage(*stored.founded, *sorted(terms.founded & desired.living)),
    )
    ended = _ended(terms, desired, stored)
    if not set(ended) <= set(stored.ended):
        ended_ns = terms.tombstones[desired.tombstone].deleted_ns
        amended = replace(
            amended, tombstone=desired.tombstone, ended=ended, ended_ns=ended_ns, vector=_vector(desired)
        )
    return amended


def _bury(
    terms: DocumentTerms, desired: Incarnation, stored: SnapshotMetadata, size: int, have: Ends
) -> Bury | None:
    stone = terms.tombstones[desired.tombstone]
    ended = _ended(terms, desired, stored)
    kept = {stored.term, *stored.ancestors, *(stored.ended if stored.deleted else ended)}
    erases = (
        not desired.erased.isdisjoint(kept)
        or desired.has_erased(have)
        or (bool(stone.erased_ns) and not stored.deleted)
    )
    if stored.deleted and (not erases or (stored.erased_ns and not size)):
        return None
    facts = replace(
        stored,
        generation=max(terms.generation, stored.generation),
        # Nothing is stored: the next owners continue what the deletion ended.
        ancestors=stored.ancestors if stored.term else lineage(*ended),
        tombstone=desired.tombstone,
        ended=lineage(*stored.founded, *ended),  # other journals may lack their descendants
        ended_ns=stone.deleted_ns,
        vector=_vector(desired),
        deleted_ns=stone.deleted_ns,
        lease=max(stone.lease, stored.lease),
    )
    if not erases:
        return Bury(facts, keeps_content=True)
    erasure = terms.tombstones[desired.erasure]
    facts = replace(
        facts,
        tombstone=desired.erasure,
        ended=lineage(*sorted(erasure.ends), *facts.ended, most=ENDED_MAX),
        position=NOWHERE,
        frontiers=b"",
        trim=b"\x00",
        dated="[]",
        erased_ns=erasure.erased_ns,
        cutoff=NOWHERE,
    )
    return Bury(facts, keeps_content=False)


def _revive(terms: DocumentTerms, desired: Incarnation, stored: SnapshotMetadata) -> Revive:
    undone = stored.tombstone in terms.undone
    # The tombstone's bytes are content if a restore undid it, or if living terms have all of its operations.
    has_all = bool(stored.ends) and includes(desired.ends, stored.ends)
    keeps = undone or has_all or (bool(stored.term) and desired.has(stored.term))
    kept = stored
    if not keeps:
        nothing = SnapshotMetadata()
        kept = replace(
            stored,
            position=nothing.position,
            frontiers=nothing.frontiers,
            trim=nothing.trim,
            dated=nothing.dated,
            term=nothing.term,
            ancestors=lineage(*terms.living),
        )
    facts = replace(
        kept,
        founded=lineage(*sorted(terms.founded & desired.living)),
        generation=max(terms.generation, stored.generation + 1),  # clients must notice, and rebase
        tombstone=desired.tombstone,
        ended=_ended(terms, desired, stored),
        ended_ns=terms.tombstones[desired.tombstone].deleted_ns if desired.tombstone else 0,
        undone=lineage(stored.tombstone, *stored.undone) if undone else stored.undone,
        vector=_vector(desired),
        deleted_ns=0,
    )
    return Revive(facts, keeps_content=keeps)


def _ended(terms: DocumentTerms, desired: Incarnation, stored: SnapshotMetadata) -> tuple[str, ...]:
    """Return the terms that the deletion which counts ended, and those that the stored metadata name."""
    if not desired.tombstone:
        return ()
    ends = sorted(terms.tombstones[desired.tombstone].ends)
    return lineage(*ends, *stored.ended, most=ENDED_MAX)


def _vector(desired: Incarnation) -> bytes:
    """Return the version vector of what ended."""
    return crdt.vector_of(desired.gone) if desired.gone else b""
