"""Incarnations of one document: which of its terms live, folded from records in any order (decision 0023).

A term is one acquisition of the document by one owner. A deletion ends the terms that its owner knew, and
their ancestors. Every rule below is a union by id, so neither order nor repetition of records matters:

    ended     the terms that a deletion names which no restore undoes, and their ancestors
    erased    the terms that an erasure names, their ancestors and their descendants; nothing undoes it
    living    terms that are neither, and were created or restored, or accepted operations that no ended or
              erased term has: merely opening a document revives nothing
    content   the records of living terms and of their ancestors, except erased ones
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    DocumentRecord,
    ErasedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.loro import crdt

ANCESTORS_MAX = 32  # that a term names, nearest first: bridges the loss of journals between them
ENDED_MAX = 64  # terms that a deletion names: of the owner, its ancestors, and those of its server's journals
Ends = dict[int, int]  # by peer: the counter after its last operation


def includes(have: Mapping[int, int], wanted: Mapping[int, int]) -> bool:
    """Return True if a version with the ends `have` includes all operations up to `wanted`."""
    return all(have.get(peer, 0) >= end for peer, end in wanted.items())


def lineage(*terms: str, most: int = ANCESTORS_MAX) -> tuple[str, ...]:
    """Return the first terms without repetitions and empty ids."""
    return tuple(dict.fromkeys(filter(None, terms)))[:most]


def operations(record: UpdateRecord | BaseRecord) -> Ends:
    """Return the ends of the operations in a record; empty if they cannot be read."""
    try:
        match record:
            case UpdateRecord():
                return {peer: end for peer, _, end in record.spans or crdt.spans(record.payload)}
            case BaseRecord():
                return crdt.counters(record.vector)
    except CrdtError:
        return {}


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deletion, or an erasure."""

    ends: frozenset[str]
    lease: int = 0
    generation: int = 0
    deleted_ns: int = 0
    erased_ns: int = 0  # 0: a deletion

    def union(self, other: "Tombstone") -> "Tombstone":
        """Return the tombstone of both; they have one id."""
        return Tombstone(
            self.ends | other.ends,
            max(self.lease, other.lease),
            max(self.generation, other.generation),
            max(self.deleted_ns, other.deleted_ns),
            max(self.erased_ns, other.erased_ns),
        )


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The document that records describe."""

    tombstone: str = ""  # the deletion that counts; "": none, or a restore undoes them
    erasure: str = ""  # the last one
    living: frozenset[str] = frozenset()
    content: frozenset[str] | None = None  # terms whose records are content; None: all
    ended: frozenset[str] = frozenset()  # ended or erased terms
    erased: frozenset[str] = frozenset()
    erased_ends: Ends = field(default_factory=dict)
    ends: Ends = field(default_factory=dict)  # of the content
    gone: Ends = field(default_factory=dict)  # of ended and erased terms

    @property
    def deleted(self) -> bool:
        """True if a deletion or erasure is known, and no term lives."""
        return bool(self.tombstone) and not self.living

    def has(self, term: str) -> bool:
        """Return True if records of that term are content."""
        return self.content is None or term in self.content

    def has_gone(self, ends: Mapping[int, int]) -> bool:
        """Return True if ended or erased terms had all these operations."""
        return includes(self.gone, ends)

    def revives(self, term: str, ends: Mapping[int, int]) -> bool:
        """Return True if a term with these operations lives."""
        return term not in self.ended and not self.has_gone(ends)

    def has_erased(self, ends: Mapping[int, int]) -> bool:
        """Return True if some of the operations are erased, or continue erased ones of their peer."""
        return not self.erased_ends.keys().isdisjoint(ends)


class DocumentTerms:
    """Terms, deletions and operations of one document, as far as they are known."""

    __slots__ = (
        "_folded",
        "founded",
        "generation",
        "operations",
        "parents",
        "tombstones",
        "undone",
        "vectors",
    )

    def __init__(self) -> None:
        self.parents: dict[str, set[str]] = {}
        self.founded: set[str] = set()  # created or restored
        self.operations: dict[str, Ends] = {}  # by term
        self.tombstones: dict[str, Tombstone] = {}  # by id
        self.vectors: dict[str, Ends] = {}  # by tombstone: ends of the content that it ended
        self.undone: set[str] = set()  # tombstones
        self.generation = 0
        self._folded: Incarnation | None = None

    # --- union ------------------------------------------------------------------------------------

    def add(self, record: DocumentRecord) -> None:
        """Add a record; a repeated one changes nothing."""
        self.generation = max(self.generation, record.generation)
        match record:
            case UpdateRecord() | BaseRecord():
                self.extend(record.term, operations(record))
            case TermRecord():
                self.descend(record.term, record.ancestors)
                if record.kind is not TermKind.ACQUIRED:
                    self.found(record.term)
                self.undo(record.undoes)
            case DeletedRecord(tombstone, ends, lease, generation, deleted_ns, vector):
                self.end(tombstone, Tombstone(frozenset(ends), lease, generation, deleted_ns), vector)
            case ErasedRecord(tombstone, ends, lease, generation, erased_ns, vector):
                stone = Tombstone(frozenset(ends), lease, generation, erased_ns, erased_ns)
                self.end(tombstone, stone, vector)

    def extend(self, term: str, ends: Mapping[int, int]) -> None:
        """The term has accepted or loaded operations up to these ends."""
        self._join(self.operations.setdefault(term, {}), ends)

    def descend(self, term: str, ancestors: Iterable[str]) -> None:
        """The term continues its nearest ancestor, that one the next, and so on."""
        for ancestor in ancestors:
            known = self.parents.setdefault(term, set())
            if ancestor not in known:
                known.add(ancestor)
                self._folded = None
            term = ancestor

    def found(self, term: str) -> None:
        """The term was created or restored."""
        if term not in self.founded:
            self.founded.add(term)
            self._folded = None

    def undo(self, tombstones: Iterable[str]) -> None:
        """A restore undoes these deletions."""
        if not self.undone.issuperset(tombstones):
            self.undone.update(tombstones)
            self._folded = None

    def end(self, tombstone: str, stone: Tombstone, vector: bytes) -> None:
        """A deletion or erasure ends terms; `vector`: version vector of the content that it ended."""
        known = self.tombstones.get(tombstone)
        both = stone if known is None else known.union(stone)
        if both != known:
            self.tombstones[tombstone] = both
            self._folded = None
        with suppress(CrdtError):  # the records of the terms have their operations
            self._join(self.vectors.setdefault(tombstone, {}), crdt.counters(vector) if vector else {})

    def _join(self, known: Ends, ends: Mapping[int, int]) -> None:
        for peer, end in ends.items():
            if end > known.get(peer, 0):
                known[peer] = end
                self._folded = None

    def limit(self, have: Mapping[int, int]) -> None:
        """Drop operations above `have`: no journal has them, or they can never be accepted again."""
        for known in self.operations.values():
            for peer in [peer for peer, end in known.items() if end > have.get(peer, 0)]:
                known[peer] = have.get(peer, 0)
        self._folded = None

    # --- fold -------------------------------------------------------------------------------------

    @property
    def living(self) -> tuple[str, ...]:
        """Living terms, created and restored ones first: these live without operations."""
        living = self.incarnation().living
        return (*sorted(living & self.founded), *sorted(living - self.founded))

    @property
    def changed(self) -> bool:
        """True if a fact was added since the last fold."""
        return self._folded is None

    def incarnation(self) -> Incarnation:
        """Return the document that all records so far describe."""
        if self._folded is None:
            self._folded = self._fold()
        return self._folded

    def _fold(self) -> Incarnation:
        valid = {
            name: stone
            for name, stone in self.tombstones.items()
            if stone.erased_ns or name not in self.undone
        }
        if not valid:
            return Incarnation(living=self._all, ends=self._ends(self._all))
        erasures = {name: stone.erased_ns for name, stone in valid.items() if stone.erased_ns}
        erased, erased_ends = self._erased(erasures)
        ended = erased | self.ancestry(term for stone in valid.values() for term in stone.ends)
        gone = self._ends(ended, valid)
        living = frozenset(
            term
            for term in self._all
            if term not in ended
            and (term in self.founded or not includes(gone, self.operations.get(term, {})))
        )
        tombstone = max(valid, key=lambda name: (valid[name].generation, valid[name].deleted_ns, name))
        content = self.ancestry(living or valid[tombstone].ends) - erased
        return Incarnation(
            tombstone,
            max(erasures, key=lambda name: (erasures[name], name), default=""),
            living,
            content,
            ended,
            erased,
            erased_ends,
            self._ends(content) if living else {},
            gone,
        )

    @property
    def _all(self) -> frozenset[str]:
        return frozenset((*self.operations, *self.founded))

    def ancestry(self, terms: Iterable[str]) -> frozenset[str]:
        """Return the terms and all their ancestors."""
        found: set[str] = set()
        left = list(terms)
        while left:
            term = left.pop()
            if term not in found:
                found.add(term)
                left += self.parents.get(term, ())
        return frozenset(found)

    def _erased(self, erasures: Iterable[str]) -> tuple[frozenset[str], Ends]:
        """Return erased terms with those that continue them, and the ends of the erased operations."""
        erased = self.ancestry(term for name in erasures for term in self.tombstones[name].ends)
        ends = self._ends(erased, erasures)
        if not ends and not erased:
            return erased, ends
        terms = {*self._all, *self.parents}
        continuing = {term for term in terms if not erased.isdisjoint(self.ancestry((term,)))}
        return erased | continuing, ends

    def _ends(self, terms: Iterable[str], tombstones: Iterable[str] = ()) -> Ends:
        """Return the ends of the operations of these terms, and of what these deletions ended."""
        total: Ends = {}
        found = [self.operations.get(term, {}) for term in terms]
        for ends in (*found, *(self.vectors.get(name, {}) for name in tombstones)):
            for peer, end in ends.items():
                if end > total.get(peer, 0):
                    total[peer] = end
        return total
