"""Facts that the broker observed, as small types: the input of checkers.

`number` counts all events of a run, so that two of them can be put in order; `at` is virtual time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lorogo_protocol.journal.records import Span
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.ports import StoredMessage

Ends = Mapping[int, int]  # of each peer the counter behind its last operation


def covers(ends: Ends, spans: tuple[Span, ...]) -> bool:
    """True if a document that reaches so far has all operations of the spans."""
    return all(ends.get(peer, 0) >= end for peer, _, end in spans)


def reaches_into(ends: Ends, span: Span) -> bool:
    """True if a document that reaches so far has any operation of the span."""
    peer, first, _ = span
    return ends.get(peer, 0) > first


@dataclass(slots=True)
class Update:
    """An update that was whole in the WAL at some time: one byte string under one log id."""

    document: str
    log_id: str
    digest: str
    line: str  # who sent it first
    number: int  # when it was whole for the first time
    chunks: int
    spans: tuple[Span, ...] | None  # None: Loro does not read it
    sequences: set[int] = field(default_factory=set)  # of its final chunk, every time
    accepted: int = 0  # when an owner first announced it; 0: never
    acked: int = 0  # when an owner first ACKed it to its sender; 0: never
    firm: bool = False  # an ACK named more than the stream as its storage
    refusals: set[Reason] = field(default_factory=set)

    @property
    def words(self) -> str:
        return f"update {self.log_id} of {self.line}"


@dataclass(frozen=True, slots=True)
class Head:
    """The snapshot that a document has in the ObjectStore."""

    document: str
    revision: int
    nuid: str
    size: int
    facts: SnapshotMetadata
    ends: Ends | None  # None: its bytes are not whole


class Sent(NamedTuple):
    """An update is whole in the WAL; perhaps again."""

    number: int
    at: float
    line: str
    update: Update


class Acked(NamedTuple):
    """A server ACKs an update. `update` is None if no such update was ever whole in the WAL."""

    number: int
    at: float
    line: str
    log_id: str
    update: Update | None
    sequence: int
    durability: str
    lease: int


class Nacked(NamedTuple):
    """A server refuses an update."""

    number: int
    at: float
    line: str
    log_id: str
    update: Update | None
    reason: Reason


class AckReceived(NamedTuple):
    """An ACK reached its sender."""

    number: int
    at: float
    line: str
    update: Update
    lease: int


class Accepted(NamedTuple):
    """An owner publishes an update as accepted. `update` is None if it was never whole in the WAL."""

    number: int
    at: float
    line: str
    document: str
    log_id: str
    update: Update | None
    lease: int


class StatusStored(NamedTuple):
    """A status was written. `lost`: the bucket lost the key since it was last written."""

    number: int
    at: float
    line: str
    document: str
    before: StatusEntry | None
    before_at: float
    entry: StatusEntry
    lost: bool


class SnapshotStored(NamedTuple):
    """Metadata of a snapshot were replaced."""

    number: int
    at: float
    line: str
    before: Head | None
    head: Head


class ChunksRemoved(NamedTuple):
    """Bytes of a snapshot were removed."""

    number: int
    at: float
    line: str
    nuid: str


class WalRemoved(NamedTuple):
    """Messages of one document are not in the WAL any more: they were purged or deleted."""

    number: int
    at: float
    line: str
    document: str
    messages: tuple[StoredMessage, ...]
    how: str  # purge, delete


class Lost(NamedTuple):
    """The broker lost messages of a stream: the world did that."""

    number: int
    at: float
    stream: str
    documents: frozenset[str]  # of which it lost something


class Asked(NamedTuple):
    """A client calls the owner of a document."""

    number: int
    at: float
    line: str
    document: str
    verb: str
    arguments: Mapping[str, object]


class Answered(NamedTuple):
    """A server answered a call: with facts, or with a reason."""

    number: int
    at: float
    line: str
    asked: Asked
    reason: str  # "" if it did what was asked
    facts: Mapping[str, object]


class Sampled(NamedTuple):
    """The state that a session shows. `end`: the counter behind the last operation of its own peer."""

    number: int
    at: float
    client: str
    document: str
    state: str  # or "flushed": flush() returned just now
    unsaved: int
    problem: str
    peer: int
    end: int


Event = (
    Sent
    | Acked
    | Nacked
    | AckReceived
    | Accepted
    | StatusStored
    | SnapshotStored
    | ChunksRemoved
    | WalRemoved
    | Lost
    | Asked
    | Answered
    | Sampled
)
