"""Entries of the writer's queue: records of the next frame, commands, and the wakers of their callers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from lorogo_log.checks import distinct_keys
from lorogo_log.errors import LogError

#: An append's waiter: (its token, its first row in the batch, number of rows; 0 for a single record).
Waiting = tuple[Any, int, int]
#: Bytes of a frame's columns for each record, beside its key and its value.
COLUMN_BYTES = 24


class Waker(Protocol):
    """Resolves the waiters of one loop (or thread) when their batch ends: once per batch, by the writer."""

    def wake(self, waiting: list[Waiting], first_sequence: int, error: LogError | None) -> None: ...


class AppendWaker(Waker, Protocol):
    """A waker whose waiters append."""

    def wake_soon(self, wake: Callable[[], None]) -> None:
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

    def wake_soon(self, wake: Callable[[], None]) -> None:
        wake()


class PendingFrame:
    """Records of the next frame."""

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
        """Add records."""
        self.keys += many.keys
        self.values += many.values
        self.times += many.times
        self.key_sizes += many.key_sizes
        self.value_sizes += many.value_sizes
        self.distinct |= many.distinct
        self.size += many.size


class AppendedRecords:
    """Records of one append, with the facts for frame and index, computed in the caller's thread."""

    __slots__ = ("distinct", "key_sizes", "keys", "size", "times", "value_sizes", "values")

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes], times: Sequence[int]) -> None:
        self.keys, self.values, self.times = keys, values, times
        self.distinct = distinct_keys(keys)
        self.key_sizes = list(map(len, keys))
        self.value_sizes = list(map(len, values))
        self.size = sum(self.key_sizes) + sum(self.value_sizes) + COLUMN_BYTES * len(values)


@dataclass(slots=True)
class WriterCommand:
    """A command for the writer, in order with the records of the queue."""

    run: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)

    def resolve(self, value: Any, after: Future[None]) -> None:
        """Resolve with this value once the background work is done; or fail with its error."""
        if (error := after.exception()) is None:
            self.done.set_result(value)
        else:
            self.done.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Fail the caller's future, unless it was cancelled before the command began."""
        if self.done.running() or self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result of a command, once background work is done."""

    value: Any
    done: Future[None]
