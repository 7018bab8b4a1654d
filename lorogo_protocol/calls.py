"""The bodies of calls to a document's owner: msgpack maps, checked on the way in.

`arguments(...)` and `facts(...)` decode; anything that is not a map with text keys, or is nested too
deep or too long, is MalformedMessage, never a crash.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgpack

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.reasons import Reason

VERBS = (
    "sync",
    "version",
    "status",
    "get",
    "patch",
    "history",
    "revert",
    "fork",
    "export",
    "import",
    "delete",
    "restore",
    "compact",
)
CALL_BYTES_MAX = UPDATE_BYTES_MAX + 64 * 1024
REPLY_BYTES_MAX = 512 * 1024 * 1024

Body = Mapping[str, object]
T = TypeVar("T")


class Refused(LorogoError):
    """The owner answered a call with a reason."""

    code = "refused"

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message or reason.value)
        self.reason = reason
        self.code = reason.value


class EncodedBody(Mapping[str, object]):
    """A body that is bytes already: a large value is packed where it was read. Members decode it."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __getitem__(self, name: str) -> object:
        return decode(self.packed)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(decode(self.packed))

    def __len__(self) -> int:
        return len(decode(self.packed))


def encode(body: Body) -> bytes:
    """The body as bytes; InvalidRequest-like Refused if a value cannot travel."""
    if isinstance(body, EncodedBody):
        return body.packed
    try:
        packed: bytes = msgpack.packb(dict(body), use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(Reason.INVALID_REQUEST, f"a value cannot be sent: {error}") from None
    return packed


def decode(data: bytes) -> dict[str, object]:
    """The body, or MalformedMessage; no bytes at all is an empty body."""
    if not data:
        return {}
    try:
        body = msgpack.unpackb(data, raw=False, strict_map_key=True)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"the body is not msgpack: {error}") from None
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise MalformedMessage("the body is not a map with text keys")
    return body


def need(body: Body, name: str, kind: type[T]) -> T:
    """A member of that type, or Refused(invalid-request) that says what is wrong."""
    value = maybe(body, name, kind)
    if value is None:
        raise Refused(Reason.INVALID_REQUEST, f"{name!r} is missing")
    return value


def maybe(body: Body, name: str, kind: type[T]) -> T | None:
    """A member of that type, or None if it is absent; Refused if it is of another type."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused(Reason.INVALID_REQUEST, f"{name!r} must be {kind.__name__}, not {type(value).__name__}")
    return value
