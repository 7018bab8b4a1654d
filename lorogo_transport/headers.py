"""NATS headers as bytes and back: checked on the way out, inline status told apart on the way in.

A block on the wire is `NATS/1.0[ status[ description]]`, then `Name: value` lines. The inline
status comes from the NATS server; a header that merely is called `Status` comes from whoever sent
the message. They must not be mixed up (a stored message with a `Status: 204` header would end a
batch), so the inline one is kept under names that no header can have.

nats-server checks nothing of the block that a sender gives it: not the first line, not the line ends.
To what it stored it adds its own headers in the place of the last two bytes, whatever these were. So
a sender can spoil the first line and the first of those headers (`Nats-Stream`), and none after it.
"""

import re

from lorogo_transport.ports import Headers

STATUS = ":status"
DESCRIPTION = ":description"

_LINE = "NATS/1.0"
_RECORD_BYTES = 64  # at most what NATS adds to each message on disk
_STATUS_LINE = re.compile(rf"{re.escape(_LINE)} ([0-9]{{3}})(?: (.*))?")
_SUBJECT = "Nats-Subject"
_SEQUENCE = "Nats-Sequence"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_KNOWN_NAMES_MAX = 1024
#: names are few and checked often: remember the good ones; these come with every copy from a stream
_known_names = {"Nats-Stream", _SUBJECT, _SEQUENCE, "Nats-Last-Sequence", "Nats-Time-Stamp"}


def encode_headers(headers: Headers) -> bytes:
    """The block for the wire. Raises ValueError for a name or value that would break it."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    block = "".join(lines)
    if block.count("\n") != len(lines) or block.count("\r") != len(lines):
        raise ValueError("a header must not contain a line break")
    if not headers.keys() <= _known_names:
        for name in headers:
            _check_name(name)
    return f"{_LINE}\r\n{block}\r\n".encode()


def parse_headers(raw: bytes) -> dict[str, str]:
    """What a block says; of headers with the same name the last wins.

    NATS appends its own `Nats-*` headers after the sender's, so nobody can forge them. What
    `encode_headers` could not write again is left out: it is not a header.
    """
    first, end, rest = raw.decode("utf-8", "replace").partition("\r\n")
    parsed: dict[str, str] = {}
    lines = rest.split("\r\n")
    breaks = len(lines) - 1
    spoilt = rest.count("\n") != breaks or rest.count("\r") != breaks  # one is alone within a line
    for line in lines:
        name, colon, value = line.partition(":")
        if spoilt and ("\n" in value or "\r" in value):
            continue
        if colon and (name in _known_names or _NAME.fullmatch(name)):
            parsed[name] = value.strip()
    if first != _LINE and end and (status := _STATUS_LINE.fullmatch(first)):
        parsed[STATUS] = status[1]
        if status[2]:
            parsed[DESCRIPTION] = status[2]
    return parsed


def is_stored(headers: Headers) -> bool:
    """Whether a stream sent it as one of its messages: its end markers and errors say neither of these.

    The first line does not tell: `NATS/1.0 204` may be the sender's own.
    """
    return _SEQUENCE in headers and _SUBJECT in headers


def own_headers(headers: Headers) -> dict[str, str]:
    """The sender's headers: without those of NATS."""
    return {name: value for name, value in headers.items() if not name.startswith(("Nats-", ":"))}


def record_bytes(subject: str, data: bytes, headers: Headers) -> int:
    """What a message takes of a stream's `max_bytes`, or a few bytes more."""
    return _RECORD_BYTES + len(subject) + len(data) + len(encode_headers(headers))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot be a header name")
    if len(_known_names) < _KNOWN_NAMES_MAX:
        _known_names.add(name)
