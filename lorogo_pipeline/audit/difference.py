"""The kinds of differences of an audit, their severity, and their messages."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from lorogo_pipeline.audit.values import Contrast

_SHOWN_MAX = 3

Span = tuple[int, int, int]  # peer, first counter, the counter behind the last


class Severity(IntEnum):
    """The severity of a difference, most severe first."""

    WRONG = 0  # the served document is not the accepted one, or erased content remains
    UNCOVERED = 1  # served, but these journals could not restore it
    UNSURE = 2  # not compared


class DifferenceKind(StrEnum):
    """The kind of a difference: a stable code."""

    CONTENT_DIFFERS = "content-differs"
    MISSING_ON_SERVER = "missing-on-server"
    MISSING_IN_JOURNAL = "missing-in-journal"
    DELETION_DIFFERS = "deletion-differs"
    GENERATION_DIFFERS = "generation-differs"
    UNKNOWN_DOCUMENT = "unknown-document"
    UNJOURNALLED_DOCUMENT = "unjournalled-document"
    BAD_DIGEST = "bad-digest"
    DOES_NOT_DECODE = "does-not-decode"
    NOT_READABLE = "not-readable"
    DAMAGED_SEGMENT = "damaged-segment"


_SEVERITY = {
    DifferenceKind.CONTENT_DIFFERS: Severity.WRONG,
    DifferenceKind.MISSING_ON_SERVER: Severity.WRONG,
    DifferenceKind.DELETION_DIFFERS: Severity.WRONG,
    DifferenceKind.UNKNOWN_DOCUMENT: Severity.WRONG,
    DifferenceKind.GENERATION_DIFFERS: Severity.WRONG,
    DifferenceKind.MISSING_IN_JOURNAL: Severity.UNCOVERED,
    DifferenceKind.UNJOURNALLED_DOCUMENT: Severity.UNCOVERED,
    DifferenceKind.BAD_DIGEST: Severity.UNCOVERED,
    DifferenceKind.DOES_NOT_DECODE: Severity.UNCOVERED,
    DifferenceKind.DAMAGED_SEGMENT: Severity.UNCOVERED,
    DifferenceKind.NOT_READABLE: Severity.UNSURE,
}
assert set(_SEVERITY) == set(DifferenceKind)


@dataclass(frozen=True, order=True, slots=True)
class Difference:
    """One difference. Sorted by severity, then by document."""

    severity: Severity
    document_id: str  # empty: not about one document
    kind: DifferenceKind
    sentence: str
    facts: tuple[tuple[str, object], ...] = field(default=(), compare=False)

    def to_json(self) -> dict[str, object]:
        """The difference as JSON values."""
        return {
            "document": self.document_id or None,
            "kind": self.kind.value,
            "severity": self.severity.name.lower(),
            "sentence": self.sentence,
            **dict(self.facts),
        }


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An update record whose digest is wrong or that does not decode."""

    log_id: str
    where: str  # which log, and at which sequence
    problem: str = ""  # Loro's error; empty: the bytes do not match the digest


def difference(kind: DifferenceKind, document_id: str, sentence: str, **facts: object) -> Difference:
    """Create a difference with the severity of its kind."""
    return Difference(_SEVERITY[kind], document_id, kind, sentence, tuple(facts.items()))


def damaged_segment(name: str, problem: str) -> Difference:
    """A part of a journal that cannot be read."""
    sentence = f"{name} is damaged: {problem}; `lorogo log repair` repairs it from a copy"
    return difference(DifferenceKind.DAMAGED_SEGMENT, "", sentence, segment=name, problem=problem)


def missing_on_server(document_id: str, missing: tuple[Span, ...]) -> Difference:
    """Operations in the journals that the server lacks."""
    return difference(
        DifferenceKind.MISSING_ON_SERVER,
        document_id,
        f"{document_id}: the server lacks {_operations(missing)}, which the journals have;"
        " a server that starts with these journals brings them back",
        missing=spans_json(missing),
    )


def missing_in_journal(document_id: str, missing: tuple[Span, ...], *, stored: bool) -> Difference:
    """Operations on the server that no journal has."""
    waiting = "; they may be in the WAL, not loaded by a server yet: open the document once" if stored else ""
    return difference(
        DifferenceKind.MISSING_IN_JOURNAL,
        document_id,
        f"{document_id}: no journal here has {_operations(missing)}, which the server has{waiting}",
        missing=spans_json(missing),
    )


def unjournalled(document_id: str, missing: tuple[Span, ...]) -> Difference:
    """A document without journal records."""
    sentence = f"{document_id}: no journal here has records of it; the server has {_operations(missing)}"
    return difference(
        DifferenceKind.UNJOURNALLED_DOCUMENT, document_id, sentence, missing=spans_json(missing)
    )


def unknown(document_id: str, *, deleted: bool, missing: tuple[Span, ...]) -> Difference:
    """A document that only the journals have."""
    what = "its deletion" if deleted else _operations(missing)
    return difference(
        DifferenceKind.UNKNOWN_DOCUMENT,
        document_id,
        f"{document_id}: the server does not have it; the journals have {what}",
        deleted=deleted,
        missing=spans_json(missing),
    )


def deletion_differs(document_id: str, journals: tuple[str, int], server: tuple[str, int]) -> Difference:
    """The states (live, deleted, erased) differ; with the generations."""
    sentence = (
        f"{document_id}: it is {journals[0]} in the journals (generation {journals[1]})"
        f" and {server[0]} on the server (generation {server[1]})"
    )
    if server[0] == "erased":
        sentence = f"{document_id}: it was erased, and these journals or tables still hold its content"
    return difference(
        DifferenceKind.DELETION_DIFFERS,
        document_id,
        sentence,
        journals={"state": journals[0], "generation": journals[1]},
        server={"state": server[0], "generation": server[1]},
    )


def generation_differs(document_id: str, journals: int, server: int) -> Difference:
    """One side has a further deletion and restoration."""
    sentence = f"{document_id}: it is in generation {journals} in the journals and {server} on the server"
    return difference(
        DifferenceKind.GENERATION_DIFFERS, document_id, sentence, journals=journals, server=server
    )


def content_differs(document_id: str, contrast: Contrast | None, journals: str, server: str) -> Difference:
    """The contents of the same version differ; with both hashes and the first difference."""
    where = f" from {contrast} on" if contrast else ""
    return difference(
        DifferenceKind.CONTENT_DIFFERS,
        document_id,
        f"{document_id}: at the same version the journals and the server differ{where}",
        path=contrast.path if contrast else None,
        journals=contrast.left if contrast else None,
        server=contrast.right if contrast else None,
        journals_hash=journals,
        server_hash=server,
    )


def bad_records(
    document_id: str, records: tuple[BadRecord, ...], missing: tuple[Span, ...]
) -> list[Difference]:
    """Unusable updates, by kind; `missing`: operations of the server beyond the usable ones."""
    found = []
    for kind, words in (
        (DifferenceKind.BAD_DIGEST, "not match the digest"),
        (DifferenceKind.DOES_NOT_DECODE, "not decode"),
    ):
        bad = [one for one in records if bool(one.problem) == (kind is DifferenceKind.DOES_NOT_DECODE)]
        if bad:
            named = _few([f"{one.log_id} in {one.where}" for one in bad])
            why = f" ({bad[0].problem})" if bad[0].problem else ""
            verb = "does" if len(bad) == 1 else "do"
            sentence = f"{document_id}: {_count(len(bad), 'update')} {verb} {words}: {named}{why}"
            facts = [{"log_id": one.log_id, "where": one.where, "problem": one.problem} for one in bad]
            found.append(difference(kind, document_id, sentence, records=facts, missing=spans_json(missing)))
    return found


def not_readable(document_id: str, side: str, problem: str, missing: tuple[Span, ...] = ()) -> Difference:
    """One side cannot provide the document; `side` is "journals" or "server"."""
    lacks = f"; the server has {_operations(missing)} beyond them" if missing else ""
    sentence = f"{document_id}: the {side} cannot provide all of it: {problem}{lacks}"
    return difference(
        DifferenceKind.NOT_READABLE,
        document_id,
        sentence,
        side=side,
        problem=problem,
        missing=spans_json(missing),
    )


def spans_json(spans: tuple[Span, ...]) -> list[dict[str, object]]:
    """Spans as JSON; peers as text, because JSON numbers lose 64-bit precision."""
    return [{"peer": str(peer), "first": first, "end": end} for peer, first, end in spans]


def _operations(spans: tuple[Span, ...]) -> str:
    count = sum(end - first for _, first, end in spans)
    named = _few([f"{first}..{end - 1} of peer {peer}" for peer, first, end in spans])
    return f"{_count(count, 'operation')} ({named})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _few(names: list[str]) -> str:
    left = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {left} more" if left > 0 else "")
