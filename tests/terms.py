"""Records about the terms of one document, made by hand and drawn."""

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from lorogo_protocol.journal.incarnation import DocumentTerms
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

DELETED_NS = 50


def update(term: str, peer: int, end: int, *, generation: int = 0) -> UpdateRecord:
    """An update that the term accepted: the peer's operations up to `end`."""
    return UpdateRecord(1, 1, "log", "1", 1, generation, ((peer, 0, end),), b"", term)


def base(term: str, ends: Mapping[int, int], *, content: bytes = b"") -> BaseRecord:
    """A base that the term loaded, with these operations."""
    return BaseRecord(1, 1, 1, 0, "1", crdt.vector_of(ends), b"", content, term)


def named(
    term: str, *ancestors: str, kind: TermKind = TermKind.ACQUIRED, undoes: tuple[str, ...] = ()
) -> TermRecord:
    """The record of a term."""
    return TermRecord(term, ancestors, kind, undoes, 1, 0)


def deletion(
    tombstone: str,
    *ends: str,
    generation: int = 0,
    deleted_ns: int = DELETED_NS,
    ended: Mapping[int, int] | None = None,
) -> DeletedRecord:
    """A deletion that ends these terms; `ended`: the ends of their operations, if it names them."""
    vector = crdt.vector_of(ended) if ended else b""
    return DeletedRecord(tombstone, ends, 1, generation, deleted_ns, vector)


def erasure(
    tombstone: str, *ends: str, erased_ns: int = DELETED_NS, ended: Mapping[int, int] | None = None
) -> ErasedRecord:
    """An erasure of these terms."""
    return ErasedRecord(tombstone, ends, 1, 0, erased_ns, crdt.vector_of(ended) if ended else b"")


def folded(records: Iterable[DocumentRecord]) -> DocumentTerms:
    """The union of these records."""
    terms = DocumentTerms()
    for record in records:
        terms.add(record)
    return terms


TERMS = st.sampled_from("abcd")
SETS = st.lists(TERMS, max_size=3, unique=True).map(tuple)
STONES = st.sampled_from(["deletion 1", "deletion 2", "erasure"])
NUMBERS = st.integers(0, 3)
ENDS = st.dictionaries(st.integers(1, 3), st.integers(1, 4), max_size=2)
RECORDS: st.SearchStrategy[DocumentRecord] = st.one_of(
    st.builds(
        lambda term, peer, end, generation: update(term, peer, end, generation=generation),
        TERMS,
        st.integers(1, 3),
        st.integers(1, 4),
        NUMBERS,
    ),
    st.builds(base, TERMS, ENDS, content=st.sampled_from([b"", b"content"])),
    st.builds(
        TermRecord, TERMS, SETS, st.sampled_from(TermKind), st.lists(STONES).map(tuple), NUMBERS, NUMBERS
    ),
    st.builds(
        DeletedRecord,
        st.sampled_from(["deletion 1", "deletion 2"]),
        SETS,
        NUMBERS,
        NUMBERS,
        st.integers(40, 60),
        ENDS.map(crdt.vector_of),
    ),
    st.builds(
        ErasedRecord,
        st.just("erasure"),
        SETS,
        NUMBERS,
        NUMBERS,
        st.integers(40, 60),
        ENDS.map(crdt.vector_of),
    ),
)
HISTORIES = st.lists(RECORDS, max_size=9)
