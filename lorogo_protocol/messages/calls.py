"""Bodies of calls to a document's owner: msgpack maps, validated when they are decoded.

`decode` raises MalformedMessage for bytes that are not a map with text keys, or that are nested too deep.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgpack

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.messages.reasons import Reason

CALL_BYTES_MAX = UPDATE_BYTES_MAX + 64 * 1024
REPLY_BYTES_MAX = 512 * 1024 * 1024

Body = Mapping[str, object]
T = TypeVar("T")


class Refused(LorogoError):
    """The owner refused a call, with a reason."""

    code = "refused"

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message or reason.value)
        self.reason = reason
        self.code = reason.value


class EncodedBody(Mapping[str, object]):
    """An encoded body, for a large value that a child process packed. Access to a member decodes it."""

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
    """Encode a body. Raises Refused with `invalid-request` if a value cannot be encoded."""
    if isinstance(body, EncodedBody):
        return body.packed
    try:
        packed: bytes = msgpack.packb(dict(body), use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(Reason.INVALID_REQUEST, f"a value cannot be sent: {error}") from None
    return packed


def decode(data: bytes) -> dict[str, object]:
    """Decode a body; no bytes are an empty body. Raises MalformedMessage."""
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
    """Return a member of that type. Raises Refused if it is missing or of another type."""
    value = maybe(body, name, kind)
    if value is None:
        raise Refused(Reason.INVALID_REQUEST, f"{name!r} is missing")
    return value


def maybe(body: Body, name: str, kind: type[T]) -> T | None:
    """Return a member of that type, or None if it is absent. Raises Refused if it is of another type."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refused(Reason.INVALID_REQUEST, f"{name!r} must be {kind.__name__}, not {type(value).__name__}")
    return value
