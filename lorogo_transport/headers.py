"""NATS headers as bytes and back: checked on the way out, inline status told apart on the way in.

A block on the wire is `NATS/1.0[ status[ description]]`, then `Name: value` lines. The inline
status comes from the NATS server; a header that merely is called `Status` comes from whoever sent
the message. They must not be mixed up (a stored message with a `Status: 204` header would end a
batch), so the inline one is kept under names that no header can have.
"""

import re

from lorogo_transport.ports import Headers

STATUS = ":status"
DESCRIPTION = ":description"

_LINE = "NATS/1.0"
_RECORD_BYTES = 64  # at most what NATS adds to each message on disk
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_KNOWN_NAMES_MAX = 1024
_known_names: set[str] = set()  # names are few and checked often: remember the good ones


def encode_headers(headers: Headers) -> bytes:
    """The block for the wire. Raises ValueError for a name or value that would break it."""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    block = "".join(lines)
    if block.count("\n") != len(lines) or block.count("\r") != len(lines):
        raise ValueError("a header must not contain a line break")
    for name in headers:
        if name not in _known_names:
            _check_name(name)
    return f"{_LINE}\r\n{block}\r\n".encode()


def parse_headers(raw: bytes) -> dict[str, str]:
    """What a block says; of headers with the same name the last wins.

    NATS appends its own `Nats-*` headers after the sender's, so nobody can forge them.
    """
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    parsed: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name:
            parsed[name] = value.strip()
    if len(first) > len(_LINE):
        status, _, description = first[len(_LINE) :].strip().partition(" ")
        parsed[STATUS] = status
        if description:
            parsed[DESCRIPTION] = description
    return parsed


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
