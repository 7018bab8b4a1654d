"""Compare a document replayed from the journals with the live one.

    judge(replayed, live)  ─▶  Verdict: differences, whether the server is ahead, reason if not compared

The server accepts updates while journals are read. So updates beyond the journals count only if the server
had them *before* the read (`before`), and contents are compared at the journals' version, which the server's
history includes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from lorogo_pipeline.audit import difference as found
from lorogo_pipeline.audit.difference import BadRecord, Difference, DifferenceKind, Span
from lorogo_pipeline.audit.values import contrast
from lorogo_pipeline.decode import content
from lorogo_protocol.errors import CrdtError, HistoryTrimmed
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica
from lorogo_server.values.document_value import TooDeep

_ROWS_AT_ONCE = 64
_NEEDED = (
    "document_id",
    "latest",
    "state",
    "generation",
    "complete",
    "problem",
    "version",
    "frontiers",
    "content_hash",
    "json",
)

Ends = Mapping[int, int]  # by peer: the counter after its last operation

#: kinds that a concurrent edit, deletion or restoration can explain
PASSING = frozenset(
    {
        DifferenceKind.MISSING_ON_SERVER,
        DifferenceKind.MISSING_IN_JOURNAL,
        DifferenceKind.UNKNOWN_DOCUMENT,
        DifferenceKind.UNJOURNALLED_DOCUMENT,
        DifferenceKind.DELETION_DIFFERS,
        DifferenceKind.GENERATION_DIFFERS,
        DifferenceKind.CONTENT_DIFFERS,
        DifferenceKind.NOT_READABLE,
    }
)
AHEAD = frozenset({DifferenceKind.MISSING_IN_JOURNAL, DifferenceKind.UNJOURNALLED_DOCUMENT})


class LiveState(StrEnum):
    """The state of a document on the server."""

    LIVE = "live"
    DELETED = "deleted"
    ERASED = "erased"
    UNKNOWN = "unknown"  # nothing stored under the id
    UNREADABLE = "unreadable"  # see `problem`


@dataclass(frozen=True, slots=True)
class JournalDocument:
    """A document replayed from the journals: a row of the table `documents`."""

    document_id: str
    state: str = "live"  # live, deleted, erased
    generation: int = 0
    ends: Ends = field(default_factory=dict)
    frontiers: bytes = b""
    content_hash: str = ""
    json: str | None = field(default=None, repr=False)
    problem: str = ""  # why it is incomplete; empty: complete
    bad: tuple[BadRecord, ...] = ()  # unusable updates

    @classmethod
    def of_row(cls, row: Mapping[str, Any], bad: Iterable[BadRecord] = ()) -> "JournalDocument":
        """Convert a row of `documents`."""
        return cls(
            row["document_id"],
            row["state"],
            row["generation"],
            {int(one["peer"]): one["end"] for one in row["version"]},
            row["frontiers"] or b"",
            row["content_hash"] or "",
            row["json"],
            "" if row["complete"] else row["problem"] or "the journals are incomplete",
            tuple(bad),
        )


def rows(
    batches: Iterable[pa.RecordBatch], bad: Mapping[str, Iterable[BadRecord]] | None = None
) -> Iterator[JournalDocument]:
    """Yield the newest row of each document, a few in memory at once; skip texts and snapshots.

    `bad`: by document, the rows of `updates` with a wrong digest or that do not decode.
    """
    known = bad or {}
    for batch in batches:
        slim = batch.select([name for name in _NEEDED if name in batch.schema.names])
        for begin in range(0, slim.num_rows, _ROWS_AT_ONCE):
            for row in slim.slice(begin, _ROWS_AT_ONCE).to_pylist():
                if row.get("latest", True):
                    yield JournalDocument.of_row(row, known.get(row["document_id"], ()))


@dataclass(frozen=True, slots=True)
class LiveDocument:
    """A document as its owner serves it, or as a new owner would load it."""

    document_id: str
    state: LiveState
    generation: int = 0
    vector: bytes = b"\x00"
    frontiers: bytes = b"\x00"
    where: str = ""  # server: read from its owner; store: loaded from snapshot and WAL; empty: metadata only
    problem: str = ""
    replica: Replica | None = field(default=None, compare=False, repr=False)

    @property
    def ends(self) -> Ends:
        """The end of each peer's operations. Raises CrdtError."""
        return crdt.counters(self.vector)

    def value(self, frontiers: bytes = b"") -> dict[str, object]:
        """Return the content, current or at these frontiers. Raises HistoryTrimmed, TooDeep, CrdtError."""
        if self.replica is None:
            return {}
        at = self.replica if frontiers in (b"", self.frontiers) else self.replica.at(frontiers)
        return content.read(at)

    def content_hash(self) -> str:
        """Hash the current content. Raises TooDeep, CrdtError."""
        return content.content_hash(self.value())


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing one document."""

    differences: tuple[Difference, ...] = ()
    ahead: bool = False  # the server has updates beyond the journals
    uncompared: str = ""  # why the contents were not compared; empty: no problem

    @property
    def passing(self) -> bool:
        """True if a repeated comparison may give another result."""
        return bool(self.uncompared) or any(one.kind in PASSING for one in self.differences)


def compare(replayed: JournalDocument | None, live: LiveDocument | None) -> list[Difference]:
    """Return all differences; None: that side does not have the document."""
    return list(judge(replayed, live).differences)


def judge(
    replayed: JournalDocument | None, live: LiveDocument | None, *, before: Ends | None = None
) -> Comparison:
    """Compare one document.

    `before`: the server's operations before the journals were read, if `live` is newer than the journals.
    """
    if replayed is None:
        return _only_live(live)
    name = replayed.document_id
    if live is None or live.state is LiveState.UNKNOWN:
        missing = beyond(replayed.ends, {})
        bad = found.bad_records(name, replayed.bad, ())
        deleted = replayed.state != LiveState.LIVE
        if replayed.problem and not (bad or deleted):  # unusable updates explain the problem
            bad = [found.not_readable(name, "journals", replayed.problem)]
        if not (missing or deleted):
            return _verdict(bad)  # an empty document is stored nowhere
        return _verdict([*bad, found.unknown(name, deleted=deleted, missing=missing)])
    if live.state in (LiveState.DELETED, LiveState.ERASED) or replayed.state != LiveState.LIVE:
        return _gone(replayed, live)
    ends = live.ends
    ahead = beyond(ends if before is None else before, replayed.ends)
    differences = found.bad_records(name, replayed.bad, ahead)
    if replayed.generation != live.generation and live.state is LiveState.LIVE:
        differences.append(found.generation_differs(name, replayed.generation, live.generation))
    if replayed.problem and not replayed.bad:
        differences.append(found.not_readable(name, "journals", replayed.problem, ahead))
    if live.problem:
        differences.append(found.not_readable(name, "server", live.problem))
    if live.replica is None:
        return _verdict(differences)
    if ahead and not (replayed.bad or replayed.problem):
        differences.append(found.missing_in_journal(name, ahead, stored=live.where == "store"))
    if lacking := beyond(replayed.ends, ends):
        differences.append(found.missing_on_server(name, lacking))
        return _verdict(differences, ahead=bool(ahead))
    try:
        differences += _contents(replayed, live)
    except (HistoryTrimmed, TooDeep, CrdtError) as error:
        return _verdict(differences, ahead=bool(ahead), uncompared=str(error))
    return _verdict(differences, ahead=bool(ahead))


def beyond(more: Ends, less: Ends) -> tuple[Span, ...]:
    """Return the operations of `more` that `less` lacks."""
    return tuple(
        (peer, less.get(peer, 0), end) for peer, end in sorted(more.items()) if end > less.get(peer, 0)
    )


def _verdict(differences: Iterable[Difference], *, ahead: bool = False, uncompared: str = "") -> Comparison:
    return Comparison(tuple(sorted(differences)), ahead, uncompared)


def _only_live(live: LiveDocument | None) -> Comparison:
    """Compare a document without journal records; an empty or deleted one needs none."""
    if live is None or live.state in (LiveState.DELETED, LiveState.ERASED, LiveState.UNKNOWN):
        return Comparison()
    differences = [found.not_readable(live.document_id, "server", live.problem)] if live.problem else []
    missing = beyond(live.ends, {})
    if missing:
        differences.append(found.unjournalled(live.document_id, missing))
    return _verdict(differences, ahead=bool(missing))


def _gone(replayed: JournalDocument, live: LiveDocument) -> Comparison:
    """Compare a document that is deleted on at least one side: only states and generations."""
    name = replayed.document_id
    differences = found.bad_records(name, replayed.bad, ())
    holds = bool(replayed.ends) or replayed.state != "erased"
    if live.state is LiveState.ERASED and not holds:
        return _verdict(differences)
    if live.state is LiveState.UNREADABLE:
        return _verdict([*differences, found.not_readable(name, "server", live.problem)])
    if replayed.state != live.state:
        sides = (str(replayed.state), replayed.generation), (live.state.value, live.generation)
        differences.append(found.deletion_differs(name, *sides))
    elif replayed.generation != live.generation:
        differences.append(found.generation_differs(name, replayed.generation, live.generation))
    return _verdict(differences)


def _contents(replayed: JournalDocument, live: LiveDocument) -> list[Difference]:
    """Compare contents at the journals' version. Raises HistoryTrimmed, TooDeep, CrdtError."""
    if not replayed.ends:
        return []
    served = content.plain(live.value(replayed.frontiers))
    text = content.canonical(served)
    if content.hash_of(text) == replayed.content_hash:
        return []
    first = None
    if replayed.json is not None and content.hash_of(replayed.json) == replayed.content_hash:
        first = contrast(_filled(json.loads(replayed.json)), served)
        if first is None:
            return []  # counters summed in another order, or empty roots
    hashes = replayed.content_hash, content.hash_of(text)
    return [found.content_differs(replayed.document_id, first, *hashes)]


def _filled(value: object) -> object:
    return content.filled(value) if isinstance(value, dict) else value
