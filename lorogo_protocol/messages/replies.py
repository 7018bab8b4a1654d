"""Replies of the owner to an update: ACK with a receipt, or NACK with a reason.

The body is exactly `ACK` or `NACK`; the other data are headers. A client accepts a reply only if log id and
digest are those of the update that it sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from lorogo_protocol import limits
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.reasons import Reason

DURABILITIES = ("stream", "journal", "replicated")


@dataclass(frozen=True, slots=True)
class Ack:
    """Receipt of an update that is stored, applied and recoverable."""

    log_id: str
    digest: str
    sequence: int
    durability: str
    lease: int


@dataclass(frozen=True, slots=True)
class Nack:
    """The update was refused."""

    log_id: str
    digest: str
    reason: Reason
    message: str


Reply = Ack | Nack


def encode(reply: Reply) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a reply."""
    match reply:
        case Ack():
            return b"ACK", {
                h.LOG_ID: reply.log_id,
                h.DIGEST: reply.digest,
                h.SEQUENCE: str(reply.sequence),
                h.DURABILITY: reply.durability,
                h.LEASE: str(reply.lease),
            }
        case Nack():
            return b"NACK", {
                h.LOG_ID: reply.log_id,
                h.DIGEST: reply.digest,
                h.REASON: reply.reason.value,
                h.MESSAGE: sentence(reply.message),
            }
        case _:
            assert_never(reply)


def decode(body: bytes, headers: Mapping[str, str]) -> Reply:
    """Parse a reply. Raises MalformedMessage."""
    log_id, digest = headers.get(h.LOG_ID, ""), headers.get(h.DIGEST, "")
    if body == b"ACK":
        durability = headers.get(h.DURABILITY, "")
        if durability not in DURABILITIES:
            raise MalformedMessage(f"{h.DURABILITY} is {durability[:20]!r}")
        return Ack(log_id, digest, number(headers, h.SEQUENCE), durability, number(headers, h.LEASE))
    if body == b"NACK":
        try:
            reason = Reason(headers.get(h.REASON, ""))
        except ValueError:
            raise MalformedMessage(f"{h.REASON} is {headers.get(h.REASON, '')[:40]!r}") from None
        return Nack(log_id, digest, reason, headers.get(h.MESSAGE, ""))
    raise MalformedMessage(f"the reply is {body[:20]!r}, neither ACK nor NACK")


def sentence(text: str) -> str:
    """Return a text that fits into a header: one line of limited length."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line[: limits.MESSAGE_CHARS_MAX]


def number(headers: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Parse a sequence or token from a header. Raises MalformedMessage."""
    text = headers.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise MalformedMessage(f"{name} is {(text or '')[:20]!r}, not a number")
    return int(text)
