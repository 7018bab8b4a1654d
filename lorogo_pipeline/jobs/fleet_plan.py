"""Which documents are cold, and what of the WAL may go: decided here, done in `fleet.py`.

The stream is one line of messages of many documents. A prefix of it can be dropped at once:

    d1 d2 d1 d1 d2 d3 d1 d3 ...          d1, d2 held and covered, d3 somebody else's
    ────────── X                         X = the first message that must stay

A message must stay if its document is not held, if it is not covered, or if it is the newest of its subject.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Failed

WARM = "edited not long ago"
FAILED = "in ERROR, until a person resets it"


@dataclass(frozen=True, slots=True)
class DocumentActivity:
    """What NATS says of a document without loading it."""

    document_id: str
    messages: int
    newest: int  # sequence of its newest message
    newest_ns: int  # when the stream stored it
    status: StatusEntry | None


@dataclass(frozen=True, slots=True)
class ColdDocuments:
    """The documents to compact, coldest first, and why others are not."""

    cold: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)


def choose(seen: Iterable[DocumentActivity], *, now_ns: int, cold_ns: int) -> ColdDocuments:
    """Those whose newest message is old enough.

    Who owns one is not judged here: a status that says UP may be of a server that is gone. Whoever takes
    the document finds out (lorogo_protocol/lease.py).
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
    """The lowest sequence of a held document that must stay: what is not covered, and its newest message."""
    return min(unneeded_before, newest)


class PurgePrefix:
    """Grows along the stream, message by message, up to the first one that must stay."""

    def __init__(self, keep: Mapping[str, int]) -> None:
        """`keep`: the held documents, each with the lowest of its sequences that must stay."""
        self.before = 0  # everything below may go
        self.messages: dict[str, int] = {}  # of each document, below `before`
        self.bytes: dict[str, int] = {}
        self.ended = False
        self._keep = keep

    def take(self, sequence: int, document_id: str, size: int) -> bool:
        """The next message of the stream; False if it must stay, and the prefix ends before it."""
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
    """What a purge of one document alone would remove, at most."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """Whether the prefix is purged, and which documents are purged one by one."""

    prefix: bool
    one_by_one: tuple[str, ...]
    left: Mapping[str, PurgeEstimate]  # not worth a purge of their own


def plan(
    prefix: PurgePrefix, removable: Mapping[str, PurgeEstimate], *, messages_min: int, bytes_min: int
) -> PurgePlan:
    """The fewest purges: the prefix where it spares at least one document its own.

    `removable`: of each held document, what could go if there were no prefix. A document is worth a purge
    of its own if more than `messages_min` messages would stay (its newest among them), or the others
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
