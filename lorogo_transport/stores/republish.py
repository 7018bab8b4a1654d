"""Republished copies: what a stream sends to everyone once it has stored a message."""

from typing import NamedTuple

from lorogo_protocol.errors import MalformedMessage
from lorogo_transport.headers import own_headers
from lorogo_transport.ports import Message, StoredMessage
from lorogo_transport.timestamps import parse_time_ns


class Republished(NamedTuple):
    """A stored message, and the sequence that was its subject's last before it (0: none)."""

    stored: StoredMessage
    previous: int


def sequence_of(message: Message) -> int:
    """The sequence of the stored message that this is a copy of, as it says; 0 if it says none."""
    digits = message.headers.get("Nats-Sequence", "")
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) <= 20 else 0


def republished(message: Message) -> Republished:
    """What a republished copy says of the stored message.

    Anyone may publish on the destination subject: without the stream's headers it is not a copy,
    and MalformedMessage is raised.
    """
    headers = message.headers
    try:
        sequence = int(headers["Nats-Sequence"])
        previous = int(headers["Nats-Last-Sequence"])
        time_ns = parse_time_ns(headers["Nats-Time-Stamp"])
        subject = headers["Nats-Subject"]
    except (KeyError, ValueError) as error:
        raise MalformedMessage(f"a message on {message.subject!r} is no republished copy: {error}") from None
    if not 0 <= previous < sequence:
        raise MalformedMessage(f"a message on {message.subject!r} has sequence {sequence} after {previous}")
    return Republished(
        StoredMessage(subject, sequence, time_ns, message.data, own_headers(headers)), previous
    )
