"""Requests and pages of a journal's feed (docs/PROTOCOL.md, "The feed"). Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgpack

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import is_token
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import (
    BaseRecord,
    DocumentRecord,
    MalformedRecord,
    TermKind,
    TermRecord,
    UpdateRecord,
)
from lorogo_protocol.limits import MIB
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason

PAGE_BYTES_DEFAULT = MIB
PAGE_BYTES_MAX = 4 * MIB
WAIT_SECONDS_MAX = 20.0
DOCUMENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class FeedStart:
    """Start of a feed: after a WAL position, and not before a time. Default: the beginning."""

    epoch: int = 0
    sequence: int = 0
    time_ns: int = 0

    @property
    def everything(self) -> bool:
        return self == EVERYTHING

    def wants(self, time_ns: int, record: DocumentRecord) -> bool:
        """Return True if the feed includes the record: bases always, as context; of terms only restores."""
        match record:
            case BaseRecord():
                return True
            case UpdateRecord(epoch=epoch, sequence=sequence):
                return time_ns >= self.time_ns and (epoch, sequence) > (self.epoch, self.sequence)
            case TermRecord(kind=kind) if kind is not TermKind.RESTORED:
                return False
            case _:
                return time_ns >= self.time_ns


EVERYTHING = FeedStart()


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A feed's request to one partition."""

    journal: str  # the id of the log, hex
    after: str = ""  # `next` of the previous page; empty: from the beginning
    start: FeedStart = EVERYTHING
    documents: frozenset[str] | None = None
    bytes_max: int = PAGE_BYTES_DEFAULT
    wait_seconds: float = 0.0
    log_id: str = ""  # only updates with this log id; empty: all records

    def body(self) -> dict[str, object]:
        """Return the body of the call."""
        one: dict[str, object] = {"log_id": self.log_id} if self.log_id else {}
        return {
            **one,
            "journal": self.journal,
            "after": self.after,
            "epoch": self.start.epoch,
            "sequence": self.start.sequence,
            "time_ns": self.start.time_ns,
            "documents": None if self.documents is None else sorted(self.documents),
            "bytes_max": self.bytes_max,
            "wait_seconds": self.wait_seconds,
        }


def parse_request(body: calls.Body) -> PageRequest:
    """Parse a request and clamp its limits. Raises Refused with `invalid-request`."""
    journal = calls.need(body, "journal", str)
    documents = calls.maybe(body, "documents", list)
    log_id = calls.maybe(body, "log_id", str) or ""
    wait = body.get("wait_seconds") or 0.0
    numbers = [calls.maybe(body, name, int) or 0 for name in ("epoch", "sequence", "time_ns", "bytes_max")]
    if not is_token(journal) or not isinstance(wait, int | float) or min(numbers) < 0 or not wait >= 0:
        raise Refused(Reason.INVALID_REQUEST, "'journal', 'wait_seconds' or a number is invalid")
    if documents is not None and (
        len(documents) > DOCUMENTS_MAX or not all(isinstance(one, str) for one in documents)
    ):
        raise Refused(Reason.INVALID_REQUEST, f"'documents' must be at most {DOCUMENTS_MAX} ids")
    if log_id and not is_token(log_id):
        raise Refused(Reason.INVALID_REQUEST, "'log_id' is not a log id")
    epoch, sequence, time_ns, bytes_max = numbers
    return PageRequest(
        journal,
        calls.maybe(body, "after", str) or "",
        FeedStart(epoch, sequence, time_ns),
        None if documents is None else frozenset(documents),
        min(bytes_max or PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX),
        min(float(wait), WAIT_SECONDS_MAX),
        log_id,
    )


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A record with its position in a journal."""

    sequence: int  # in the journal
    time_ns: int
    document: str
    record: DocumentRecord


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Consecutive records, and the position after them."""

    entries: tuple[PageEntry, ...]
    next: str
    end: bool


def encode(page: FeedPage) -> dict[str, object]:
    """Return the body of the reply; the records are packed as one value, so that their size is known."""
    return {"records": pack(page.entries), "next": page.next, "end": page.end}


def pack(entries: Iterable[PageEntry]) -> bytes:
    """Pack the entries of a page."""
    rows = [(one.sequence, one.time_ns, one.document, records.encode(one.record)) for one in entries]
    packed: bytes = msgpack.packb(rows, use_bin_type=True)
    return packed


def decode(body: Mapping[str, object]) -> FeedPage:
    """Decode a page, without records of unknown kinds or about servers. Raises MalformedMessage."""
    try:
        rows = msgpack.unpackb(calls.need(body, "records", bytes), raw=False)
        entries = []
        for sequence, time_ns, document, value in rows:
            if not isinstance(sequence, int) or not isinstance(time_ns, int) or not isinstance(document, str):
                raise MalformedMessage("a record in a page of the feed is malformed")
            if (record := records.decode_document(value)) is not None:
                entries.append(PageEntry(sequence, time_ns, document, record))
        return FeedPage(tuple(entries), calls.need(body, "next", str), calls.need(body, "end", bool))
    except (
        ValueError,
        TypeError,
        RecursionError,
        msgpack.UnpackException,
        MalformedRecord,
        Refused,
    ) as error:
        raise MalformedMessage(f"the page of a feed does not parse: {error}") from None
