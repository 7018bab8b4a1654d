"""The newest changes of an in-memory stream, for lagging replicas and an observer."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lorogo_transport.ports import StoredMessage

if TYPE_CHECKING:
    from lorogo_testing.memory_nats import MemoryNats  # which has streams

_CHANGES_MAX: Final = 64
_BY_APPEND: Final = ("rollup", "limit")  # a removal that is part of an append


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """The difference of a lagging replica: messages that it lacks, and removed ones that it still has."""

    hidden: frozenset[int]
    kept: dict[str, dict[int, StoredMessage]]


class StreamChangeLog:
    """The newest changes of one stream."""

    def __init__(self, stream: str, world: "MemoryNats") -> None:
        self._stream = stream
        self._world = world
        self._changes: deque[tuple[StoredMessage | None, list[StoredMessage]]] = deque(maxlen=_CHANGES_MAX)

    def stored(self, stored: StoredMessage, previous: int) -> None:
        self._changes.append((stored, []))
        if self._world.observer is not None:
            self._world.observer.stored(self._stream, stored, previous, self._world.acting)

    def removed(self, gone: Sequence[StoredMessage], how: str) -> None:
        if how == "loss":
            self.forget()
        elif how in _BY_APPEND and self._changes:
            self._changes[-1][1].extend(gone)
        elif how != "age":  # every replica expires messages by itself
            self._changes.append((None, list(gone)))
        if self._world.observer is not None:
            self._world.observer.removed(self._stream, gone, how, self._world.acting)

    def forget(self) -> None:
        """Clear the log after a data loss, which affects every replica."""
        self._changes.clear()

    def behind(self, lag: int) -> ReplicaLag:
        """Return the difference of a replica without the newest `lag` changes."""
        hidden: set[int] = set()
        kept: dict[int, StoredMessage] = {}
        for added, gone in list(self._changes)[-lag:][::-1] if lag > 0 else ():
            kept.update((stored.sequence, stored) for stored in gone)
            if added is not None:
                hidden.add(added.sequence)
                kept.pop(added.sequence, None)
        by_subject: dict[str, dict[int, StoredMessage]] = {}
        for sequence, stored in kept.items():
            by_subject.setdefault(stored.subject, {})[sequence] = stored
        return ReplicaLag(frozenset(hidden), by_subject)
