"""Sync policy and disk failure policy of a log, chosen at open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lorogo_log.errors import DiskFullError, LogFailedError


@dataclass(frozen=True, slots=True)
class Sync:
    """The time of syncs. `Sync.group()` is the default and the only policy that is both safe and fast."""

    kind: Literal["group", "always", "interval", "os"]
    seconds: float = 0.0

    @classmethod
    def group(cls) -> Sync:
        """One sync for all waiting appends; an append returns when it is durable."""
        return cls("group")

    @classmethod
    def always(cls) -> Sync:
        """One sync for each append."""
        return cls("always")

    @classmethod
    def interval(cls, seconds: float = 1.0) -> Sync:
        """A sync per interval; an append returns when written. A power cut loses the last interval."""
        if seconds <= 0:
            raise ValueError("the interval must be above zero")
        return cls("interval", seconds)

    @classmethod
    def os(cls) -> Sync:
        """The operating system decides; only rotation and closing sync."""
        return cls("os")

    @property
    def waits(self) -> bool:
        """True if an append waits for the disk."""
        return self.kind in {"group", "always"}


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """The reaction to a write or sync error. A sync error stops the log for good: no sync is repeated."""

    callback: Callable[[LogFailedError], None] | None = None
    #: called with an error when a write finds the disk full, with None when the log continues
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
        """Stop, and call the callback once, from the log's thread; with `full`, wait on a full disk."""
        return cls(callback, full)
