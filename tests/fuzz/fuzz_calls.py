"""Bodies of calls and pages of the feed: msgpack of any client."""

from collections.abc import Iterable

import msgpack

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.journal import pages
from lorogo_protocol.journal.records import DeletedRecord, ErasedRecord, UpdateRecord
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Refused
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_KEYS = (
    "journal",
    "after",
    "epoch",
    "sequence",
    "time_ns",
    "documents",
    "bytes_max",
    "wait_seconds",
    "records",
    "next",
    "end",
)


def _members(body: dict[str, object]) -> None:
    for key in (*body, *_KEYS):
        for kind in (int, str, bytes, list, dict, bool, float):
            try:
                found = calls.need(body, key, kind)
            except Refused:
                continue
            assert isinstance(found, kind)
    packed = calls.encode(body)
    assert calls.encode(calls.decode(packed)) == packed
    try:
        ask = pages.parse_request(body)
    except Refused:
        pass
    else:
        assert 0 < ask.bytes_max <= pages.PAGE_BYTES_MAX
        assert 0 <= ask.wait_seconds <= pages.WAIT_SECONDS_MAX
        assert pages.parse_request(ask.body()) == ask
    try:
        page = pages.decode(body)
    except MalformedMessage:
        return
    assert pages.decode(pages.encode(page)) == page


def run(data: bytes) -> None:
    """The first byte chooses: the bytes as they are, or a body that is a map for sure."""
    source = Source(data)
    if source.byte() % 2 == 0:
        _members(calls.decode(source.rest()))
        return
    body = source.value(_KEYS)
    if not isinstance(body, dict):
        body = {"records": source.rest(), "next": "", "end": True}
    _members(calls.decode(calls.encode(body)))


def seeds() -> Iterable[bytes]:
    ask = pages.PageRequest("abc", "1:2:3", pages.FeedStart(1, 2, 3), frozenset({"doc"}), 100, 1.5)
    entries = (
        pages.PageEntry(1, 2, "doc", UpdateRecord(1, 2, "log", "3", 4, 5, ((1, 0, 2),), b"bytes")),
        pages.PageEntry(2, 3, "doc", DeletedRecord("tombstone", (), 1, 2, 3)),
        pages.PageEntry(3, 4, "doc", ErasedRecord("erasure", (), 0, 0, 1)),
    )
    yield b"\0" + calls.encode(ask.body())
    yield b"\0" + calls.encode(pages.encode(pages.FeedPage(entries, "next", end=True)))
    yield b"\0" + calls.encode({"a": [1, {"b": b"\0"}], "c": 1.5, "d": None})
    yield b"\0" + msgpack.packb({"t": msgpack.Timestamp(1, 2), "e": msgpack.ExtType(5, b"x")})
    yield b"\0" + b"\x81\xa1a" + b"\x91" * 600 + b"\xc0"
    yield b"\x01" + b"\x05\x00" + pages.pack(entries)
    yield b"\x01" + bytes([7, 4, 1, 0, 5, 0, 3, *b"abc", 1, 5, 9, 1, 5, 0, 1, *b"d", 1, 7, 4, 2])


TARGET = Target(run, seeds, (MalformedMessage, Refused))
