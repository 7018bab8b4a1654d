"""Exceptions of the log.

    LogError
    ├── End                    no more records to read now (not a fault).
    ├── DamageError            path, offset, reason.
    │   ├── TornError          a commit that a crash interrupted: never acknowledged.
    │   └── CorruptionError    bytes that were good do not check any more: fetch a good copy from a replica.
    ├── FormatError            not a log, a foreign file, or a version newer than this code.
    ├── NotFoundError          no record with that sequence, no bytes at that offset.
    ├── LockedError            another process holds the lock (retriable).
    ├── QueueFullError         `append_nowait` found the queue full (retriable).
    ├── DiskFullError          the disk is full: the append is not in the log (retriable).
    ├── TooLargeError          a record or batch above the limits.
    ├── StaleEpochError        a newer writer has taken over.
    ├── ReplicaError           an append to a replica.
    ├── LogClosedError         used after close.
    └── LogFailedError         a write or sync failed: the log has stopped, waiting appends are uncertain.

`SkipSegment` is not an error: a cleaning function raises it to leave a segment as it is.
"""

from typing import ClassVar


class LogError(Exception):
    """Base of all errors that this package raises on purpose."""

    retriable: ClassVar[bool] = False


class End(LogError):
    """The cursor is at the end of the log."""


class DamageError(LogError):
    """Bytes that do not check, with path, offset and reason."""

    def __init__(self, path: str, offset: int, reason: str, resume: int | None = None) -> None:
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
        #: file position of the next good frame behind the damage, if there is one
        self.resume = resume


class TornError(DamageError):
    """A partially written tail: it was never acknowledged."""


class CorruptionError(DamageError):
    """Bytes that were written completely and do not check any more."""


class FormatError(LogError):
    """The path is not a log that this version can read."""


class NotFoundError(LogError):
    """No such record, or it was cleaned or expired."""


class LockedError(LogError):
    """Another process holds the lock."""

    retriable = True


class QueueFullError(LogError):
    """The queue is full."""

    retriable = True


class DiskFullError(LogError):
    """The disk is full. The append is not in the log; appends work again once there is space."""

    retriable = True


class TooLargeError(LogError):
    """One record or one batch is above the limits."""


class StaleEpochError(LogError):
    """A writer with a newer epoch has written: this one must stop."""


class ReplicaError(LogError):
    """The log is a replica: append at its coordinator."""


class LogClosedError(LogError):
    """The log was closed."""


class LogFailedError(LogError):
    """A write or sync failed. The log has stopped; waiting appends may or may not be on disk."""


class SkipSegment(Exception):
    """Raised by a cleaning function to leave a segment as it is."""
