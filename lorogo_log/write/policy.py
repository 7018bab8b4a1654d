"""When an append is durable, and what happens when the disk fails: choices made once, at open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lorogo_log.errors import DiskFullError, LogFailedError


@dataclass(frozen=True, slots=True)
class Sync:
    """When the writer syncs. `Sync.group()` is the default and the only one that is both safe and fast."""

    kind: Literal["group", "always", "interval", "os"]
    seconds: float = 0.0

    @classmethod
    def group(cls) -> Sync:
        """One sync for all that waits; an append returns when it is on the disk."""
        return cls("group")

    @classmethod
    def always(cls) -> Sync:
        """One sync for each append."""
        return cls("always")

    @classmethod
    def interval(cls, seconds: float = 1.0) -> Sync:
        """A sync every so often; an append returns when written. A power cut loses the last interval."""
        if seconds <= 0:
            raise ValueError("the interval must be above zero")
        return cls("interval", seconds)

    @classmethod
    def os(cls) -> Sync:
        """The operating system decides; only rotation and closing sync."""
        return cls("os")

    @property
    def waits(self) -> bool:
        """Whether an append waits for the disk."""
        return self.kind in {"group", "always"}


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """What a write or sync error leads to. A sync error stops the log for good: nothing is tried twice."""

    callback: Callable[[LogFailedError], None] | None = None
    #: called with an error when a write finds the disk full, with None when the log goes on.
    #: None: a full disk stops the log for good, too
    full: Callable[[DiskFullError | None], None] | None = None

    @classmethod
    def stop(cls) -> WriteFailure:
        """Stop; appends raise LogFailedError."""
        return cls()

    @classmethod
    def call(
        cls,
        callback: Callable[[LogFailedError], None],
        *,
        full: Callable[[DiskFullError | None], None] | None = None,
    ) -> WriteFailure:
        """Stop, and tell the callback once, from the log's thread; with `full`, a full disk is waited out."""
        return cls(callback, full)
