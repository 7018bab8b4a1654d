"""What a feed gives: updates, and honest remarks about what is not one."""

from dataclasses import dataclass

from lorogo_protocol.records import Span


@dataclass(frozen=True, slots=True)
class Update:
    """An accepted update; `payload` is for `LoroDoc.import_`."""

    document: str
    sequence: int  # where the WAL held it, in `epoch`
    epoch: int
    time_ns: int  # when JetStream stored it
    log_id: str
    digest: str
    lease: int  # of the owner whose journal it was taken from
    generation: int  # how often the document was restored before it
    spans: tuple[Span, ...]  # the changes in it: peer, first counter, the counter behind the last
    payload: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes of a document that no journal which answers has; what follows builds on them."""

    document: str
    lease: int
    time_ns: int
    missing: tuple[Span, ...]  # as far as it is known


@dataclass(frozen=True, slots=True)
class Deleted:
    """The document was deleted."""

    document: str
    lease: int
    generation: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A deletion was undone; the generation is the new one."""

    document: str
    lease: int
    generation: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Erased:
    """The document was erased: forget what you were given of it."""

    document: str
    time_ns: int


FeedItem = Update | Gap | Deleted | Restored | Erased
