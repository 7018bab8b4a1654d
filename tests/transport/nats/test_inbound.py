"""The parser cuts NATS input into messages and control lines, however the bytes are split."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_transport.headers import encode_headers, parse_headers
from lorogo_transport.nats.inbound import NatsProtocolError, ProtocolParser

_HEAD = b"NATS/1.0\r\na: b\r\n\r\n"
_MANY = (
    b"MSG s.1 7 3\r\nabc\r\n"
    b"PING\r\n"
    b"MSG s.2 8 _INBOX.x 0\r\n\r\n"
    b"HMSG s.3 9 %d %d\r\n%s\r\n"
    b"-ERR 'Permissions Violation'\r\n"
    b"HMSG s.4 10 _INBOX.y %d %d\r\n%sMSG x 1 1\r\n\r\n"
    b"PONG\r\n"
) % (len(_HEAD), len(_HEAD), _HEAD, len(_HEAD), len(_HEAD) + 11, _HEAD)
_CUT: list[object] = [
    (7, "s.1", "", b"", b"abc"),
    b"PING\r\n",
    (8, "s.2", "_INBOX.x", b"", b""),
    (9, "s.3", "", _HEAD, b""),
    b"-ERR 'Permissions Violation'\r\n",
    (10, "s.4", "_INBOX.y", _HEAD, b"MSG x 1 1\r\n"),
    b"PONG\r\n",
]


def cut(*pieces: bytes) -> list[object]:
    """Messages and lines, in order."""
    found: list[object] = []
    inbound = ProtocolParser(lambda *message: found.append(message))
    for piece in pieces:
        for line in inbound.feed(piece):
            found.append(line)  # noqa: PERF402  # messages are added meanwhile
    return found


def test_messages_and_lines_come_in_their_order() -> None:
    """With headers or without, with a reply or without; data may look like anything."""
    assert cut(_MANY) == _CUT


@given(st.lists(st.integers(0, len(_MANY)), max_size=12))
def test_pieces_do_not_matter(places: list[int]) -> None:
    """However the bytes are cut on their way, the same comes out."""
    bounds = [0, *sorted(places), len(_MANY)]
    assert cut(*(_MANY[a:b] for a, b in pairwise(bounds))) == _CUT


def test_each_byte_alone() -> None:
    """The parser parses a large message once it is complete, not at each piece."""
    assert cut(*(_MANY[at : at + 1] for at in range(len(_MANY)))) == _CUT
    data = bytes(300_000)
    whole = b"MSG s 1 %d\r\n%s\r\n" % (len(data), data)
    assert cut(*(whole[at : at + 4096] for at in range(0, len(whole), 4096))) == [(1, "s", "", b"", data)]


def test_a_subject_that_is_no_text_is_handed_on() -> None:
    """Any client may publish on such a subject: the connection must survive it."""
    assert cut(b"MSG loro.init.\xff 1 \xfe 0\r\n\r\nPING\r\n") == [
        (1, "loro.init.\ufffd", "\ufffd", b"", b""),
        b"PING\r\n",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"MSG s 1\r\n",
        b"MSG s x 1\r\n",
        b"MSG s 1 r 1 1 1\r\n",
        b"MSG s 1 -1\r\n",
        b"HMSG s 1 9 3\r\nabc\r\n",
        b"HMSG s 1 -2 3\r\nabc\r\n",
        b"HMSG s 1 3\r\nabc\r\n",
        b"x" * 1024 * 1024,
    ],
)
def test_what_nats_does_not_send(data: bytes) -> None:
    """The parser raises an error, and the connection ends."""
    with pytest.raises(NatsProtocolError):
        cut(data)


def by_lines(raw: bytes) -> dict[str, str]:
    """The headers of a block, parsed line by line without optimisation."""
    found = {}
    for line in raw.decode("utf-8", "replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        try:
            encode_headers({name: value})
        except ValueError:
            continue
        if colon:
            found[name] = value.strip()
    return found


@given(st.lists(st.sampled_from(["a", "LORO_FINAL", ":", " ", "\r\n", "\r", "\n", "é", "b-c: d\r\n"])))
def test_headers_are_read_line_by_line(words: list[str]) -> None:
    """A line break that is none spoils its line and no other; a line without a colon is no header."""
    encode_headers({"LORO_FINAL": "true"})  # one name is known
    raw = "".join(["NATS/1.0\r\n", *words]).encode()
    assert parse_headers(raw) == by_lines(raw)


@pytest.mark.parametrize("white", ["\x0b", "\x0c", "\r", "\t", "\x85", "\x1c"])
def test_only_a_space_parts_the_words_of_a_head(white: str) -> None:
    """NATS takes other white space in subjects: read as a gap, it would address another subscription."""
    parsed: list[tuple[int, str, str]] = []
    inbound = ProtocolParser(
        lambda sid, subject, reply, _headers, _data: parsed.append((sid, subject, reply))
    )
    head = f"MSG open.x{white}7 1 5\r\nhello\r\nMSG open 2 in{white}box 0\r\n\r\n"
    assert list(inbound.feed(head.encode())) == []
    assert parsed == [(1, f"open.x{white}7", ""), (2, "open", f"in{white}box")]
