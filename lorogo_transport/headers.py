"""Encoding and parsing of NATS headers; the inline status is separated from sender headers.

A block on the wire is `NATS/1.0[ status[ description]]`, then `Name: value` lines. The inline
status comes from the NATS server; a header with the name `Status` comes from the sender of
the message. They must not be confused (a stored message with a `Status: 204` header would end a
batch), so the inline status is stored under names that no header can have.

nats-server does not validate the block of a sender: neither the first line nor the line ends.
It adds its own headers to a stored message by replacing the last two bytes, whatever they are. So
a sender can corrupt the first line and the first of those headers (`Nats-Stream`), but no later one.
"""

import re

from lorogo_transport.ports import Headers

EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
STATUS = ":status"
DESCRIPTION = ":description"

_LINE = "NATS/1.0"
_RECORD_BYTES = 64  # upper bound of what NATS adds to each message on disk
_STATUS_LINE = re.compile(rf"{re.escape(_LINE)} ([0-9]{{3}})(?: (.*))?")
_SUBJECT = "Nats-Subject"
_SEQUENCE = "Nats-Sequence"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_KNOWN_NAMES_MAX = 1024
#: valid names, cached because few names are checked often; these are on every republished copy
_known_names = {"Nats-Stream", _SUBJECT, _SEQUENCE, "Nats-Last-Sequence", "Nats-Time-Stamp"}


def encode_headers(headers: Headers) -> bytes:
    """Encode a block. Raises ValueError for a name or value that would corrupt it."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    block = "".join(lines)
    if block.count("\n") != len(lines) or block.count("\r") != len(lines):
        raise ValueError("a header must not contain a line break")
    if not headers.keys() <= _known_names:
        for name in headers:
            _check_name(name)
    return f"{_LINE}\r\n{block}\r\n".encode()


def parse_headers(raw: bytes) -> dict[str, str]:
    """Parse a block; of headers with the same name the last wins.

    NATS appends its own `Nats-*` headers after the sender's, so senders cannot forge them. Lines that
    `encode_headers` could not produce are skipped.
    """
    first, end, rest = raw.decode("utf-8", "replace").partition("\r\n")
    parsed: dict[str, str] = {}
    lines = rest.split("\r\n")
    breaks = len(lines) - 1
    spoilt = rest.count("\n") != breaks or rest.count("\r") != breaks  # a line contains a single CR or LF
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
    """True for a message of a stream; end markers and errors have neither of these headers.

    The first line is not evidence: the sender may have written `NATS/1.0 204`.
    """
    return _SEQUENCE in headers and _SUBJECT in headers


def own_headers(headers: Headers) -> dict[str, str]:
    """Return the sender's headers, without those of NATS."""
    return {name: value for name, value in headers.items() if not name.startswith(("Nats-", ":"))}


def expecting(headers: Headers | None, last: int | None) -> Headers | None:
    """Add the compare-and-swap of an append: the subject's last sequence; None: any."""
    return headers if last is None else {**(headers or {}), EXPECTED_LAST: str(last)}


def record_bytes(subject: str, data: bytes, headers: Headers) -> int:
    """Return an upper bound of the message's size in a stream's `max_bytes`."""
    return _RECORD_BYTES + len(subject) + len(data) + len(encode_headers(headers))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid header name")
    if len(_known_names) < _KNOWN_NAMES_MAX:
        _known_names.add(name)
