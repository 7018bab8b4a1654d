"""What can go wrong with a log, as one tree.

    LogError
    ├── End                    nothing more to read now (not a fault)
    ├── DamageError            path, offset, reason
    │   ├── TornError          a record was being written when the machine stopped: never acknowledged
    │   └── CorruptionError    bytes that had been good are not: ask a replica
    ├── FormatError            not a log, a foreign file, or a version newer than this code
    ├── NotFoundError          no record with that sequence, no bytes at that offset
    ├── LockedError            another process holds the lock (retriable)
    ├── QueueFullError         `append_nowait` found no room (retriable)
    ├── DiskFullError          the disk is full: the append is not in the log (retriable)
    ├── TooLargeError          a record or batch above the limits
    ├── StaleEpochError        a newer writer has taken over
    ├── ReplicaError           an append to a replica
    ├── LogClosedError         used after close
    └── LogFailedError         a write or sync failed: the log has stopped, waiting appends are unsure

`SkipSegment` is not an error: a cleaning function raises it to leave a segment as it is.
"""

from typing import ClassVar


class LogError(Exception):
    """Anything that this package raises on purpose."""

    retriable: ClassVar[bool] = False


class End(LogError):
    """The cursor has given everything that is there now."""


class DamageError(LogError):
    """Bytes that do not check, with the place and the reason."""

    def __init__(self, path: str, offset: int, reason: str, resume: int | None = None) -> None:
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason
        #: file position of the next good frame behind the damage, if there is one
        self.resume = resume


class TornError(DamageError):
    """A half-written tail: it was never acknowledged."""


class CorruptionError(DamageError):
    """Bytes that had been written whole and do not check any more."""


class FormatError(LogError):
    """The path is not a log that this version can read."""


class NotFoundError(LogError):
    """There is no such record (or it was cleaned, or expired)."""


class LockedError(LogError):
    """Another process holds the lock."""

    retriable = True


class QueueFullError(LogError):
    """There is no room in the queue now."""

    retriable = True


class DiskFullError(LogError):
    """The disk is full. The append is not in the log; the log takes appends again when there is room."""

    retriable = True


class TooLargeError(LogError):
    """One record or one batch is above the limits."""


class StaleEpochError(LogError):
    """A writer with a newer epoch was here: this one must stop."""


class ReplicaError(LogError):
    """Records are appended at the coordinator, never at a replica."""


class LogClosedError(LogError):
    """The log was closed."""


class LogFailedError(LogError):
    """A write or sync failed. The log has stopped; what was waiting may or may not be on disk."""


class SkipSegment(Exception):
    """Raised by a cleaning function: leave this segment as it is."""
