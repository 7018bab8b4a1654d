"""Decide which documents are cold, and which part of the WAL to purge; `fleet.py` executes it.

The stream is one sequence of messages of many documents. One purge can remove a prefix of it:

    d1 d2 d1 d1 d2 d3 d1 d3 ...          d1, d2 held and covered; d3 has another owner
    ────────── X                         X = the first message that must stay

A message must stay if its document is not held, if it is not covered, or if it is the newest of its subject.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Failed

WARM = "edited not long ago"
FAILED = "in ERROR, until an operator resets it"


@dataclass(frozen=True, slots=True)
class DocumentActivity:
    """WAL usage and status of one document, read without loading it."""

    document_id: str
    messages: int
    newest: int  # sequence of its newest message
    newest_ns: int  # when the stream stored it
    status: StatusEntry | None


@dataclass(frozen=True, slots=True)
class ColdDocuments:
    """The documents to compact, coldest first, and the reasons of the skipped ones."""

    cold: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


def choose(seen: Iterable[DocumentActivity], *, now_ns: int, cold_ns: int) -> ColdDocuments:
    """Select the documents whose newest message is old enough.

    Ownership is not decided here: the status UP may belong to a crashed server. The acquisition finds out
    (lorogo_protocol/lease.py).
    """
    cold: list[DocumentActivity] = []
    skipped: dict[str, str] = {}
    for one in seen:
        if one.newest_ns > now_ns - cold_ns:
            skipped[one.document_id] = WARM
        elif one.status is not None and isinstance(one.status.status, Failed):
            skipped[one.document_id] = FAILED
        else:
            cold.append(one)
    cold.sort(key=lambda one: (one.newest, one.document_id))
    return ColdDocuments(tuple(one.document_id for one in cold), skipped)


def keep_from(unneeded_before: int, newest: int) -> int:
    """Return the lowest sequence to keep of a held document: uncovered messages and the newest one."""
    return min(unneeded_before, newest)


class PurgePrefix:
    """The prefix of the stream up to the first message that must stay."""

    def __init__(self, keep: Mapping[str, int]) -> None:
        """`keep`: the held documents, each with the lowest of its sequences that must stay."""
        self.before = 0  # everything below may go
        self.messages: dict[str, int] = {}  # of each document, below `before`
        self.bytes: dict[str, int] = {}
        self.ended = False
        self._keep = keep

    def take(self, sequence: int, document_id: str, size: int) -> bool:
        """Add the next message of the stream; False if it must stay and the prefix ends before it."""
        if self.ended:
            return False
        if sequence >= self._keep.get(document_id, 0):
            self.before, self.ended = sequence, True
            return False
        self.before = sequence + 1
        self.messages[document_id] = self.messages.get(document_id, 0) + 1
        self.bytes[document_id] = self.bytes.get(document_id, 0) + size
        return True


@dataclass(frozen=True, slots=True)
class PurgeEstimate:
    """The most that a single purge of one document can remove."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The purges to make: the prefix or not, and single documents."""

    prefix: bool
    one_by_one: tuple[str, ...]
    left: Mapping[str, PurgeEstimate]  # too small for a single purge


def plan(
    prefix: PurgePrefix, removable: Mapping[str, PurgeEstimate], *, messages_min: int, bytes_min: int
) -> PurgePlan:
    """Plan the fewest purges; the prefix is purged if it saves at least one single purge.

    `removable`: what a single purge of each held document removes without the prefix. A single purge is
    worthwhile if more than `messages_min` messages would stay (the newest included), or the removable ones
    have more than `bytes_min` bytes.
    """

    def worth(rest: PurgeEstimate) -> bool:
        return rest.messages > 0 and (rest.messages + 1 > messages_min or rest.bytes > bytes_min)

    behind = {
        document_id: PurgeEstimate(
            max(0, rest.messages - prefix.messages.get(document_id, 0)),
            max(0, rest.bytes - prefix.bytes.get(document_id, 0)),
        )
        for document_id, rest in removable.items()
    }
    alone = [document_id for document_id, rest in removable.items() if worth(rest)]
    still = [document_id for document_id in alone if worth(behind[document_id])]
    use = len(still) < len(alone)
    rests, chosen = (behind, still) if use else (removable, alone)
    left = {document_id: rest for document_id, rest in rests.items() if rest.messages and not worth(rest)}
    return PurgePlan(use, tuple(chosen), left)
