"""Which sequences of the WAL to read: options, ranges, offsets, and what a new epoch means. Pure.

An offset is `{"epoch": e, "sequence": s, "created": c}`: everything up to sequence `s` of epoch `e` was
given, and the stream was made at `c` (Unix nanoseconds). JetStream may lose messages in a crash and use
their sequences again; servers then raise the recorded epoch. A stream that was deleted and made again,
or that ends before our offset, is seen even before any server notices. Either way the next batch
begins at the first sequence there is: rows may come again, none stays out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lorogo_pipeline.sources import options as source_options
from lorogo_pipeline.sources.errors import BadSourceOption, StreamChanged

PARTITION_MESSAGES = 50_000
_NAMES = (
    "nats",
    "first",
    "last",
    "payload",
    "partition_messages",
    "documents",
    "startingOffset",
    "maxMessagesPerTrigger",
)
_SOURCE = "lorogo.stream"
_EARLIEST, _LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the reader was asked for."""

    nats: str = source_options.NATS
    first: int | None = None
    last: int | None = None
    payload: bool = True
    partition_messages: int = PARTITION_MESSAGES
    documents: tuple[str, ...] = ()  # none: all
    starting: int | str = _EARLIEST  # of readStream: earliest, latest, or the first sequence to read
    messages_per_trigger: int | None = None  # of readStream

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "StreamOptions":
        """From Spark's options. Raises BadSourceOption, InvalidDocumentId."""
        source_options.check_names(options, _NAMES, _SOURCE)
        first = source_options.number(options, "first", least=1)
        last = source_options.number(options, "last", least=1)
        if first is not None and last is not None and first > last:
            raise BadSourceOption(f"option first is {first} and last is {last}: nothing lies between")
        return cls(
            nats=options.get("nats", source_options.NATS),
            first=first,
            last=last,
            payload=source_options.flag(options, "payload", default=True),
            partition_messages=source_options.number(options, "partition_messages", least=1)
            or PARTITION_MESSAGES,
            documents=source_options.documents(options),
            starting=_starting(options),
            messages_per_trigger=source_options.number(options, "maxMessagesPerTrigger", least=1),
        )

    def for_batch(self) -> "StreamOptions":
        """Itself, if it makes sense for `spark.read`."""
        if self.starting != _EARLIEST or self.messages_per_trigger is not None:
            raise BadSourceOption(
                "startingOffset and maxMessagesPerTrigger are options of readStream; use first and last here"
            )
        return self

    def for_stream(self) -> "StreamOptions":
        """Itself, if it makes sense for `spark.readStream`."""
        if self.first is not None or self.last is not None:
            raise BadSourceOption("first and last are options of read; use startingOffset with readStream")
        return self


@dataclass(frozen=True, slots=True)
class WalBounds:
    """What the leader says of the WAL, and the status bucket of its epoch."""

    epoch: int
    first: int
    last: int  # 0: nothing was ever stored
    created: int  # 0: not known


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Everything up to here was given."""

    epoch: int
    sequence: int
    created: int = 0

    def as_json(self) -> dict[str, int]:
        """For Spark's checkpoint."""
        return {"epoch": self.epoch, "sequence": self.sequence, "created": self.created}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """From Spark's checkpoint."""
        try:
            return cls(int(value["epoch"]), int(value["sequence"]), int(value.get("created", 0)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadSourceOption(
                f"the checkpoint's offset {value!r} is none of {_SOURCE}: does it belong to another query?"
            ) from None


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """Sequences of one epoch, both ends included."""

    first: int
    last: int
    epoch: int
    created: int


def batch_ranges(options: StreamOptions, seen: WalBounds) -> list[SequenceRange]:
    """The partitions of one batch read; what does not exist yet, or no more, is cut off."""
    first = max(options.first or 1, seen.first)
    last = seen.last if options.last is None else min(options.last, seen.last)
    return _cut(SequenceRange(first, last, seen.epoch, seen.created), options.partition_messages)


def initial(options: StreamOptions, seen: WalBounds) -> StreamOffset:
    """Where a new query begins."""
    match options.starting:
        case int(number):
            if number > seen.last + 1:
                raise BadSourceOption(
                    f"startingOffset is {number}, and the WAL ends at {seen.last}: "
                    f"use {seen.last + 1} or 'latest' for what is yet to come"
                )
            sequence = number - 1
        case "latest":
            sequence = seen.last
        case _:
            sequence = max(seen.first - 1, 0)
    return StreamOffset(seen.epoch, sequence, seen.created)


def latest(start: StreamOffset, seen: WalBounds, *, messages_max: int | None) -> StreamOffset:
    """How far the next batch goes; `start` itself if there is nothing new."""
    epoch = seen.epoch
    if _contradicts(start, seen):
        epoch = max(epoch, start.epoch + 1)  # as a server will say when it notices
    epoch = max(epoch, start.epoch)
    before = start.sequence if epoch == start.epoch else 0
    before = max(before, seen.first - 1)
    last = seen.last if messages_max is None else min(seen.last, before + messages_max)
    return StreamOffset(epoch, last, seen.created)


def stream_ranges(
    options: StreamOptions, start: StreamOffset, end: StreamOffset, seen: WalBounds
) -> list[SequenceRange] | None:
    """The partitions between two offsets; None if the WAL that `end` speaks of is gone.

    Spark plans a batch again after a restart, when the stream may have been made anew: what that batch
    was to give can no longer be read, and the next one begins the new epoch from its first sequence.
    """
    if _contradicts(end, seen):
        return None
    after = start.sequence if start.epoch == end.epoch else 0
    first = max(after + 1, seen.first)
    return _cut(SequenceRange(first, end.sequence, end.epoch, end.created), options.partition_messages)


def check_unchanged(given: SequenceRange, seen_last: int, seen_created: int) -> None:
    """StreamChanged if what was read may not be what was planned."""
    if _contradicts(
        StreamOffset(given.epoch, given.last, given.created),
        WalBounds(given.epoch, 1, seen_last, seen_created),
    ):
        raise StreamChanged(
            f"the WAL was made anew or lost messages while {given.first} to {given.last} was read: try again"
        )


def _contradicts(offset: StreamOffset, seen: WalBounds) -> bool:
    """Whether the stream cannot be the one that the offset speaks of."""
    if seen.last < offset.sequence:
        return True
    return bool(offset.created and seen.created and offset.created != seen.created)


def _cut(whole: SequenceRange, size: int) -> list[SequenceRange]:
    edges = [*range(whole.first, whole.last + 1, size), whole.last + 1]
    return [SequenceRange(low, high - 1, whole.epoch, whole.created) for low, high in pairwise(edges)]


def _starting(options: Mapping[str, str]) -> int | str:
    text = options.get("startingoffset", _EARLIEST)
    word = text.strip().lower()
    if word in (_EARLIEST, _LATEST):
        return word
    try:
        return source_options.number(options, "startingOffset", least=1) or 1
    except BadSourceOption:
        raise BadSourceOption(
            f"option startingOffset is {text!r}; it must be earliest, latest or the first sequence to read"
        ) from None
