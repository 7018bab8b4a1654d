"""The items of a feed: updates, and markers for gaps, deletions and restores."""

from dataclasses import dataclass

from lorogo_protocol.journal.records import Span


@dataclass(frozen=True, slots=True)
class Update:
    """An accepted update; `payload` is for `LoroDoc.import_`."""

    document: str
    sequence: int  # in the WAL, in `epoch`
    epoch: int
    time_ns: int  # when JetStream stored it
    log_id: str
    digest: str
    lease: int  # of the owner whose journal the feed read
    generation: int  # number of restores of the document before it
    spans: tuple[Span, ...]  # the changes in it: peer, first counter, end counter (exclusive)
    payload: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes that no answering journal has; later items depend on them."""

    document: str
    lease: int
    time_ns: int
    missing: tuple[Span, ...]  # as far as known


@dataclass(frozen=True, slots=True)
class Deleted:
    """The document was deleted."""

    document: str
    lease: int
    generation: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The document was restored; `generation` is the new one."""

    document: str
    lease: int
    generation: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Erased:
    """The document was erased: delete everything derived from its items."""

    document: str
    time_ns: int


FeedItem = Update | Gap | Deleted | Restored | Erased
