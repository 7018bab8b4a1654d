"""Decide which sequences of the WAL to read: options, ranges, offsets, epochs. Pure.

An offset is `{"epoch": e, "sequence": s, "created": c}`: everything up to sequence `s` of epoch `e` was
read, and the stream was created at `c` (Unix nanoseconds). JetStream may lose messages in a crash and reuse
their sequences; servers then raise the recorded epoch. A stream that was recreated, or that ends before our
offset, is detected even before a server does. In both cases the next batch starts at the first existing
sequence: rows may repeat, none are lost.
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
    """Options of the reader."""

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
        """Parse Spark's options. Raises BadSourceOption, InvalidDocumentId."""
        source_options.check_names(options, _NAMES, _SOURCE)
        first = source_options.number(options, "first", least=1)
        last = source_options.number(options, "last", least=1)
        if first is not None and last is not None and first > last:
            raise BadSourceOption(f"option first is {first} and last is {last}: first must not exceed last")
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
        """Check that all options apply to `spark.read`."""
        if self.starting != _EARLIEST or self.messages_per_trigger is not None:
            raise BadSourceOption(
                "startingOffset and maxMessagesPerTrigger are options of readStream; use first and last here"
            )
        return self

    def for_stream(self) -> "StreamOptions":
        """Check that all options apply to `spark.readStream`."""
        if self.first is not None or self.last is not None:
            raise BadSourceOption("first and last are options of read; use startingOffset with readStream")
        return self


@dataclass(frozen=True, slots=True)
class WalBounds:
    """The bounds of the WAL from its leader, and its epoch from the status bucket."""

    epoch: int
    first: int
    last: int  # 0: nothing stored yet
    created: int  # 0: unknown


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of the part of the WAL that was read."""

    epoch: int
    sequence: int
    created: int = 0

    def as_json(self) -> dict[str, int]:
        """The form in Spark's checkpoint."""
        return {"epoch": self.epoch, "sequence": self.sequence, "created": self.created}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Parse an offset of Spark's checkpoint."""
        try:
            return cls(int(value["epoch"]), int(value["sequence"]), int(value.get("created", 0)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadSourceOption(
                f"the checkpoint's offset {value!r} is not one of {_SOURCE}: does it belong to another query?"
            ) from None


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """Sequences of one epoch, both ends included."""

    first: int
    last: int
    epoch: int
    created: int


def batch_ranges(options: StreamOptions, seen: WalBounds) -> list[SequenceRange]:
    """Return the partitions of one batch read, limited to existing sequences."""
    first = max(options.first or 1, seen.first)
    last = seen.last if options.last is None else min(options.last, seen.last)
    return _cut(SequenceRange(first, last, seen.epoch, seen.created), options.partition_messages)


def initial(options: StreamOptions, seen: WalBounds) -> StreamOffset:
    """Return the offset of a new query."""
    match options.starting:
        case int(number):
            if number > seen.last + 1:
                raise BadSourceOption(
                    f"option startingOffset is {number}, and the WAL ends at {seen.last}: "
                    f"use {seen.last + 1} or 'latest' for new messages only"
                )
            sequence = number - 1
        case "latest":
            sequence = seen.last
        case _:
            sequence = max(seen.first - 1, 0)
    return StreamOffset(seen.epoch, sequence, seen.created)


def latest(start: StreamOffset, seen: WalBounds, *, messages_max: int | None) -> StreamOffset:
    """Return the end of the next batch; `start` if there is nothing new."""
    epoch = seen.epoch
    if _contradicts(start, seen):
        epoch = max(epoch, start.epoch + 1)  # the epoch that a server will record when it detects the loss
    epoch = max(epoch, start.epoch)
    before = start.sequence if epoch == start.epoch else 0
    before = max(before, seen.first - 1)
    last = seen.last if messages_max is None else min(seen.last, before + messages_max)
    return StreamOffset(epoch, last, seen.created)


def stream_ranges(
    options: StreamOptions, start: StreamOffset, end: StreamOffset, seen: WalBounds
) -> list[SequenceRange] | None:
    """Return the partitions between two offsets; None if the WAL of `end` no longer exists.

    Spark plans a batch again after a restart. If the stream was recreated meanwhile, that batch can no longer
    be read, and the next one starts at the first sequence of the new epoch.
    """
    if _contradicts(end, seen):
        return None
    after = start.sequence if start.epoch == end.epoch else 0
    first = max(after + 1, seen.first)
    return _cut(SequenceRange(first, end.sequence, end.epoch, end.created), options.partition_messages)


def check_unchanged(given: SequenceRange, seen_last: int, seen_created: int) -> None:
    """Raise StreamChanged if the stream may not be the planned one."""
    if _contradicts(
        StreamOffset(given.epoch, given.last, given.created),
        WalBounds(given.epoch, 1, seen_last, seen_created),
    ):
        raise StreamChanged(
            f"the WAL was recreated or lost messages while {given.first} to {given.last} was read: try again"
        )


def _contradicts(offset: StreamOffset, seen: WalBounds) -> bool:
    """True if the stream cannot be the one of the offset."""
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
