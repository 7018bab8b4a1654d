"""The records of a client's store, and their bytes: msgpack arrays `[version, kind, number, ...]`.

Pure. docs/decisions/0009 describes each kind. `number` counts the records of one document, so that a
lost record is detected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lorogo_protocol.errors import LorogoError

VERSION = 1


class UnreadableRecord(LorogoError):
    """A record that this version cannot read."""

    code = "unreadable-record"


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """An update without an ACK: its commits, its log id ("": never sent), its bytes."""

    first: int
    last: int
    log_id: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The whole document: replaces all earlier records."""

    number: int
    generation: int | None  # None: never synced
    replica: bytes  # a Loro snapshot
    outbox: tuple[PendingUpdate, ...]
    commits: int  # the newest commit's number


@dataclass(frozen=True, slots=True)
class LocalCommit:
    """A local commit. With a log id it may have been sent."""

    number: int
    commit: int
    log_id: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class AssignedLogId:
    """Commits `first` to `last` are sent under this id; without a payload, their bytes are unchanged."""

    number: int
    log_id: str
    first: int
    last: int
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class RemoteUpdate:
    """An update from the owner."""

    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class AckedUpdate:
    """An update was ACKed."""

    number: int
    log_id: str


@dataclass(frozen=True, slots=True)
class DeletionMark:
    """The owner reported that the document is deleted."""

    number: int


@dataclass(frozen=True, slots=True)
class ForgottenMark:
    """The app deleted the copy: earlier records are void."""

    number: int


Record = (
    StoreSnapshot | LocalCommit | AssignedLogId | RemoteUpdate | AckedUpdate | DeletionMark | ForgottenMark
)


def encode(record: Record) -> list[object]:
    """Return the value that the log packs."""
    match record:
        case StoreSnapshot(number, generation, replica, outbox, commits):
            entries = [[entry.first, entry.last, entry.log_id, entry.payload] for entry in outbox]
            return [VERSION, "snapshot", number, generation, replica, entries, commits]
        case LocalCommit(number, commit, log_id, payload):
            return [VERSION, "local", number, commit, log_id, payload]
        case AssignedLogId(number, log_id, first, last, payload):
            return [VERSION, "assigned", number, log_id, first, last, payload]
        case RemoteUpdate(number, payload):
            return [VERSION, "remote", number, payload]
        case AckedUpdate(number, log_id):
            return [VERSION, "settled", number, log_id]
        case DeletionMark(number):
            return [VERSION, "deleted", number]
        case ForgottenMark(number):
            return [VERSION, "forgotten", number]


def decode(value: object) -> Record:
    """Parse a record. Raises UnreadableRecord."""
    match value:
        case [int(version), *_] if version != VERSION:
            raise UnreadableRecord(
                f"a record has version {version}, and this program reads version {VERSION}:"
                " use a program that reads the store's version"
            )
        case [
            _,
            "snapshot",
            int(number),
            None | int() as generation,
            bytes(replica),
            list(outbox),
            int(commits),
        ]:
            return StoreSnapshot(number, generation, replica, tuple(map(_pending, outbox)), commits)
        case [_, "local", int(number), int(commit), str(log_id), bytes(payload)]:
            return LocalCommit(number, commit, log_id, payload)
        case [_, "assigned", int(number), str(log_id), int(first), int(last), None | bytes() as payload]:
            return AssignedLogId(number, log_id, first, last, payload)
        case [_, "remote", int(number), bytes(payload)]:
            return RemoteUpdate(number, payload)
        case [_, "settled", int(number), str(log_id)]:
            return AckedUpdate(number, log_id)
        case [_, "deleted", int(number)]:
            return DeletionMark(number)
        case [_, "forgotten", int(number)]:
            return ForgottenMark(number)
        case _:
            raise UnreadableRecord(f"not a store record: {_brief(value)}")


def size_of(record: Record) -> int:
    """Return the approximate size in the log, in bytes."""
    match record:
        case StoreSnapshot(replica=replica, outbox=outbox):
            return 64 + len(replica) + sum(48 + len(entry.payload) for entry in outbox)
        case LocalCommit(payload=payload) | RemoteUpdate(payload=payload):
            return 64 + len(payload)
        case AssignedLogId(payload=payload):
            return 64 + len(payload or b"")
        case _:
            return 64


def _pending(value: object) -> PendingUpdate:
    match value:
        case [int(first), int(last), str(log_id), bytes(payload)]:
            return PendingUpdate(first, last, log_id, payload)
        case _:
            raise UnreadableRecord(f"not an outbox update: {_brief(value)}")


def _brief(value: Any) -> str:
    if isinstance(value, Sequence) and len(value) > 1:
        return f"{type(value).__name__} of {len(value)}, {value[1]!r:.20}"
    return f"{value!r:.40}"
