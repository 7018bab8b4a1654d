"""The status of a document, as stored in the bucket `loro-document-status`.

    DOWN:{ts}   STARTING:{operation_id}:{retry_count}:{ts}   UP:{server_id}:{ts}   ERROR:{trace_id}:{ts}

`ts` is Unix seconds with nine decimals, for operators only: no decision depends on it (lease.py).
"""

import re
from dataclasses import dataclass
from typing import assert_never

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import is_token

_TIME = re.compile(r"([0-9]{1,12})\.([0-9]{9})")
_NANO = 1_000_000_000
_VALUE_BYTES_MAX = 256


@dataclass(frozen=True, slots=True)
class Down:
    """The document has no owner."""

    time_ns: int


@dataclass(frozen=True, slots=True)
class Starting:
    """A client requested the document; a server may be loading it."""

    operation_id: str
    retry_count: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Up:
    """A server owns the document."""

    server_id: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Too many loads of the document failed; an operator must reset it (`lorogo reset`)."""

    trace_id: str
    time_ns: int


Status = Down | Starting | Up | Failed


def encode(status: Status) -> bytes:
    """Return the stored value."""
    ts = f"{status.time_ns // _NANO}.{status.time_ns % _NANO:09d}"
    match status:
        case Down():
            return f"DOWN:{ts}".encode()
        case Starting():
            return f"STARTING:{status.operation_id}:{status.retry_count}:{ts}".encode()
        case Up():
            return f"UP:{status.server_id}:{ts}".encode()
        case Failed():
            return f"ERROR:{status.trace_id}:{ts}".encode()
        case _:
            assert_never(status)


def decode(value: bytes) -> Status:
    """Parse a stored value. Raises MalformedMessage."""
    if len(value) > _VALUE_BYTES_MAX:
        raise MalformedMessage("a status has at most 256 bytes")
    try:
        parts = value.decode("ascii").split(":")
    except UnicodeDecodeError:
        raise MalformedMessage("a status is ASCII") from None
    match parts:
        case ["DOWN", ts]:
            return Down(_time(ts))
        case ["STARTING", operation_id, count, ts]:
            if not (count.isdigit() and len(count) <= 9):
                raise MalformedMessage(f"retry count {count[:20]!r} is not a number")
            return Starting(_token(operation_id), int(count), _time(ts))
        case ["UP", server_id, ts]:
            return Up(_token(server_id), _time(ts))
        case ["ERROR", trace_id, ts]:
            return Failed(_token(trace_id), _time(ts))
        case _:
            raise MalformedMessage(f"{value[:40]!r} is not a status")


def _time(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise MalformedMessage(f"{text[:40]!r} is not Unix seconds with nine decimals")
    return int(match[1]) * _NANO + int(match[2])


def _token(text: str) -> str:
    if not is_token(text):
        raise MalformedMessage(f"{text[:40]!r} is not an id")
    return text
