"""Republished copies: messages that a stream publishes after it has stored a message."""

from typing import NamedTuple

from lorogo_protocol.errors import MalformedMessage
from lorogo_transport.headers import own_headers
from lorogo_transport.ports import Message, StoredMessage
from lorogo_transport.timestamps import parse_time_ns


class Republished(NamedTuple):
    """A stored message, and its subject's previous sequence (0: none)."""

    stored: StoredMessage
    previous: int


def sequence_of(message: Message) -> int:
    """Return the sequence in a republished copy; 0 if it has none."""
    digits = message.headers.get("Nats-Sequence", "")
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) <= 20 else 0


def republished(message: Message) -> Republished:
    """Parse a republished copy.

    Any client may publish on the destination subject: a message without the stream's headers is not a copy.
    Raises MalformedMessage.
    """
    headers = message.headers
    try:
        sequence = int(headers["Nats-Sequence"])
        previous = int(headers["Nats-Last-Sequence"])
        time_ns = parse_time_ns(headers["Nats-Time-Stamp"])
        subject = headers["Nats-Subject"]
    except (KeyError, ValueError) as error:
        raise MalformedMessage(
            f"a message on {message.subject!r} is not a republished copy: {error}"
        ) from None
    if not 0 <= previous < sequence:
        raise MalformedMessage(f"a message on {message.subject!r} has sequence {sequence} after {previous}")
    return Republished(
        StoredMessage(subject, sequence, time_ns, message.data, own_headers(headers)), previous
    )
