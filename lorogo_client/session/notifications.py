"""Notifications of a session: states, changes, presence; each reader has its own bounded queue."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from loro import DiffEvent

from lorogo_protocol.errors import LorogoError

T = TypeVar("T")


class State(StrEnum):
    """The state of this replica relative to the owner."""

    OFFLINE = "offline"  # no connection; edits are kept
    UNAUTHORIZED = "unauthorized"  # NATS refuses the token (see `Session.problem`); edits are kept
    CONNECTING = "connecting"  # finding the owner, or syncing with it
    SAVING = "saving"  # an edit is not ACKed, or cannot be (see `Session.problem`)
    SAVED = "saved"  # every commit is ACKed


@dataclass(frozen=True, slots=True)
class Change:
    """A remote edit, as a Loro event."""

    events: DiffEvent
    sequence: int  # of the update in the WAL; after a sync, of the newest update in it


@dataclass(frozen=True, slots=True)
class Lagged:
    """The reader was too slow and changes were dropped: read the document again."""

    missed: int


@dataclass(frozen=True, slots=True)
class Rebased:
    """`session.doc` was replaced by another LoroDoc: the current state with the unsaved edits on top."""


Item = Change | Lagged | Rebased


class NotificationQueue(Generic[T]):
    """An async iterator over pushed items; if its queue is full, `overflow(dropped)` replaces all items."""

    def __init__(self, length_max: int, overflow: Callable[[int, T], T]) -> None:
        self._items: deque[T] = deque()
        self._length_max = length_max
        self._overflow = overflow
        self._arrived = asyncio.Event()
        self._missed = 0
        self._closed = False
        self._error: LorogoError | None = None

    def push(self, item: T) -> None:
        """Add an item; never waits."""
        if self._closed:
            return
        if len(self._items) >= self._length_max:
            # an earlier overflow marker may be among the dropped items: the count continues
            self._missed += len(self._items)
            self._items.clear()
            self._items.append(self._overflow(self._missed, item))
        else:
            self._items.append(item)
        self._arrived.set()

    def close(self, error: LorogoError | None = None) -> None:
        """End the iteration after the queued items, with an error if given."""
        if not self._closed:
            self._closed, self._error = True, error
            self._arrived.set()

    def __aiter__(self) -> "NotificationQueue[T]":
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        self._missed = 0
        return self._items.popleft()


def latest(first: T) -> "NotificationQueue[T]":
    """Return a feed that starts with `first`; a new item replaces an unread one."""
    feed: NotificationQueue[T] = NotificationQueue(1, lambda _, newest: newest)
    feed.push(first)
    return feed


def changes(length_max: int) -> "NotificationQueue[Item]":
    """Return a feed of changes that yields Lagged after it dropped some."""
    return NotificationQueue(length_max, lambda missed, _: Lagged(missed + 1))
