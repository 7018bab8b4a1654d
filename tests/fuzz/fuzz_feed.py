"""Positions of a feed, as an app or a program behind the gateway gives them back."""

import base64
import zlib
from collections.abc import Iterable

import msgpack

from lorogo_client.feed.memory import FeedMemory
from lorogo_client.feed.position import FeedPosition, FeedState, InvalidPosition
from lorogo_protocol.journal.pages import FeedStart
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_BYTES_MAX = 1 << 16


def _text(packed: bytes) -> str:
    return "lf1-" + base64.urlsafe_b64encode(zlib.compress(packed, 1)).rstrip(b"=").decode()


def _value(source: Source) -> object:
    rows = [
        [
            source.text(),
            *(source.value() for _ in range(3)),
            {source.number(): source.value()},
            [source.value()],
        ]
        for _ in range(source.below(3))
    ]
    start: object = [source.value() for _ in range(3)] if source.byte() % 2 else [1, 2, 3]
    documents = source.value() if source.byte() % 2 else None
    positions = source.value() if source.byte() % 4 == 0 else {"abc": "1:2:3"}
    return [start, documents, positions, [source.value(), rows]]


def run(data: bytes) -> None:
    """The first byte chooses: text, what is packed in it, or values that are."""
    source = Source(data)
    match source.byte() % 3:
        case 0:
            text = source.rest().decode("utf-8", "surrogateescape")
        case 1:
            text = _text(source.rest())
        case _:
            try:
                text = _text(msgpack.packb(_value(source), use_bin_type=True))
            except (OverflowError, UnicodeEncodeError):
                return  # numbers and texts that msgpack does not have
    position = FeedPosition.parse(text, bytes_max=_BYTES_MAX)
    state = position.state(bytes_max=_BYTES_MAX)
    again = FeedPosition.of(state).state(bytes_max=1 << 20)
    assert (again.start, again.documents, again.positions) == (state.start, state.documents, state.positions)
    assert again.memory.encode() == state.memory.encode()


def seeds() -> Iterable[bytes]:
    start = FeedStart(1, 2, 3)
    rows = [["doc", True, 0, 0, {7: 3}, [12345]], ["other", False, 2, 5, {}, []]]
    state = FeedState(start, frozenset({"doc"}), {"ab": "17:1:4096"}, FeedMemory.decode([False, rows], start))
    yield b"\0" + str(FeedPosition.of(state)).encode()
    yield b"\0lf1-"
    packed = msgpack.packb([[1, 2, 3], None, {"ab": "17:1:4096"}, [False, rows]], use_bin_type=True)
    yield b"\x01" + packed
    yield b"\x01" + b"\x94" + b"\x91" * 600
    yield b"\x02" + bytes([1, 1, *b"d", 1, 1, 2, 0, 3, 0, 2, 0, 5, 0, 2, 0, 1, 0, 0, 0, 1, 0])


TARGET = Target(run, seeds, (InvalidPosition,))
