"""What waits in the writer's queue: records that will be one frame, and orders; and who is told of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from lorogo_log.checks import distinct_keys
from lorogo_log.errors import LogError

#: What an append waits with: (its token, its first row in the batch, how many rows; 0 for a single one).
Waiting = tuple[Any, int, int]
#: What the columns of a frame take for each record, beside its key and its value.
COLUMN_BYTES = 24


class Waker(Protocol):
    """Tells the waiters of one loop (or thread) how their batch ended: once per batch, by the writer."""

    def wake(self, waiting: list[Waiting], first_sequence: int, error: LogError | None) -> None: ...


class AppendWaker(Waker, Protocol):
    """A waker whose waiters append."""

    def soon(self, ring: Callable[[], None]) -> None:
        """Wake the writer, at the latest before the caller's thread waits."""
        ...


class DirectWaker:
    """For threads: each token is a `concurrent.futures.Future`."""

    def wake(self, waiting: list[Waiting], first_sequence: int, error: LogError | None) -> None:
        for token, start, count in waiting:
            if error is not None:
                token.set_exception(error)
            else:
                token.set_result(range(first_sequence + start, first_sequence + start + count))

    def soon(self, ring: Callable[[], None]) -> None:
        ring()


class PendingFrame:
    """Records that will be one frame."""

    __slots__ = ("distinct", "key_sizes", "keys", "size", "times", "value_sizes", "values", "waiters")

    def __init__(self) -> None:
        self.distinct: set[bytes] = set()
        self.key_sizes: list[int] = []
        self.value_sizes: list[int] = []
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.times: list[int] = []
        self.size = 0
        self.waiters: dict[Waker, list[Waiting]] = {}

    def add(self, many: AppendedRecords) -> None:
        """These records too."""
        self.keys += many.keys
        self.values += many.values
        self.times += many.times
        self.key_sizes += many.key_sizes
        self.value_sizes += many.value_sizes
        self.distinct |= many.distinct
        self.size += many.size


class AppendedRecords:
    """Records of one append, and what frame and index must know of them: found by the caller's thread."""

    __slots__ = ("distinct", "key_sizes", "keys", "size", "times", "value_sizes", "values")

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes], times: Sequence[int]) -> None:
        self.keys, self.values, self.times = keys, values, times
        self.distinct = distinct_keys(keys)
        self.key_sizes = list(map(len, keys))
        self.value_sizes = list(map(len, values))
        self.size = sum(self.key_sizes) + sum(self.value_sizes) + COLUMN_BYTES * len(values)


@dataclass(slots=True)
class WriterCommand:
    """Something else than records for the writer to do, in its place in the queue."""

    run: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)

    def settle(self, value: Any, after: Future[None]) -> None:
        """Done with this value when something in the background is; or failed as that failed."""
        if (error := after.exception()) is None:
            self.done.set_result(value)
        else:
            self.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Tell whoever waits, unless they gave up before the order was begun."""
        if self.done.running() or self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Deferred:
    """What an order gives, once something in the background is done."""

    value: Any
    done: Future[None]
