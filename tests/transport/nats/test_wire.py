"""Small pure parts: headers, timestamps, subjects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_transport.headers import (
    DESCRIPTION,
    STATUS,
    encode_headers,
    is_stored,
    own_headers,
    parse_headers,
)
from lorogo_transport.rpc.subject_patterns import matches, transform
from lorogo_transport.timestamps import format_time_ns, parse_time_ns

names = st.from_regex(r"[A-Za-z0-9_\-]{1,20}", fullmatch=True)
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])).map(str.strip)


@given(st.dictionaries(names, values, max_size=5))
def test_headers_come_back(headers: dict[str, str]) -> None:
    """Parsed headers equal the encoded ones, except for spaces around a value."""
    assert parse_headers(encode_headers(headers)) == headers


@given(st.binary(max_size=200))
def test_any_bytes_parse(raw: bytes) -> None:
    """Whatever comes as a header block is parsed without an error."""
    parse_headers(raw)


@given(names, st.text())
def test_no_value_can_forge_a_line(name: str, value: str) -> None:
    """A value is refused, or ends up in its own header alone."""
    try:
        raw = encode_headers({name: value})
    except (ValueError, UnicodeEncodeError):
        return
    assert list(parse_headers(raw)) == [name]


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (b"NATS/1.0\r\n\r\n", {}),
        (b"NATS/1.0 503\r\n\r\n", {STATUS: "503"}),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", {STATUS: "404", DESCRIPTION: "Message Not Found"}),
        (
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\n\r\n",
            {STATUS: "204", DESCRIPTION: "EOB", "Nats-Num-Pending": "3"},
        ),
        (b"NATS/1.0\r\nStatus: 204\r\n:status: 204\r\n\r\n", {"Status": "204"}),
        (b"NATS/1.0\r\nA:b\r\nA: c\r\nno colon\r\n\r\n", {"A": "c"}),
        # Blocks of a sender that ends no line, as nats-server passes them on.
        (b"NATS/1Nats-Stream: s\r\nNats-Sequence: 2\r\n\r\n", {"Nats-Sequence": "2"}),
        (b"NATS/1.0Nats-Stream: s\r\nNats-Sequence: 2\r\n\r\n", {"Nats-Sequence": "2"}),
        (b"NATS/1.0\rNats-Stream: s\r\nNats-Sequence: 2\r\n\r\n", {"Nats-Sequence": "2"}),
        (b"NATS/1.0\nA: bNats-Stream: s\r\nNats-Sequence: 2\r\n\r\n", {"Nats-Sequence": "2"}),
        (b"Nats-Stream: s\r\nNats-Sequence: 2\r\n\r\n", {"Nats-Sequence": "2"}),
        # Not quite a status.
        (b"NATS/1.0 204", {}),
        (b"NATS/1.0 204 EOB", {}),
        (b"NATS/1.0 204 E\nOB\r\n\r\n", {}),
        (b"NATS/1.0  204\r\n\r\n", {}),
        (b"NATS/1.0 20\r\n\r\n", {}),
        (b"NATS/1.0 2040\r\n\r\n", {}),
        (b"NATS/1.0 204\tEOB\r\n\r\n", {}),
        ("NATS/1.0 \u0662\u0660\u0664\r\n\r\n".encode(), {}),
        (b"nats/1.0 204\r\n\r\n", {}),
        (b" NATS/1.0 204\r\n\r\n", {}),
        (b"HTTP/1.1 204\r\n\r\n", {}),
        (b"", {}),
        # Nothing that we could not write again, as quarantine must.
        (
            b"NATS/1.0\r\na b: c\r\nd: e\nf: g\r\nh: i\rj\r\n: k\r\nl\xff: m\r\nn: \xff\r\n\r\n",
            {"n": "\ufffd"},
        ),
    ],
)
def test_header_blocks(raw: bytes, parsed: dict[str, str]) -> None:
    """An inline status is never mixed up with a header of that name; the last of a name wins."""
    assert parse_headers(raw) == parsed


@given(st.binary(max_size=200))
def test_what_is_read_can_be_written(block: bytes) -> None:
    """Whatever a sender made of its headers, what we read of them can be sent on."""
    read = own_headers(parse_headers(b"NATS/1.0\r\n" + block))
    assert parse_headers(encode_headers(read)) == read


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        (b"NATS/1.0\r\nNats-Stream: s\r\nNats-Subject: a\r\nNats-Sequence: 1\r\n\r\n", True),
        (b"NATS/1.0 204 ENats-Stream: s\r\nNats-Subject: a\r\nNats-Sequence: 1\r\n\r\n", True),
        (b"NATS/1Nats-Stream: s\r\nNats-Subject: a\r\nNats-Sequence: 1\r\n\r\n", True),
        (b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\n\r\n", False),
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", False),
    ],
)
def test_a_stored_message_is_known_by_its_sequence(raw: bytes, stored: bool) -> None:
    """Whatever its sender made of the first line; end markers and errors have none."""
    assert is_stored(parse_headers(raw)) is stored


def test_the_senders_own_headers() -> None:
    """Without those of NATS."""
    assert own_headers({"A": "b", "Nats-Sequence": "1", STATUS: "100"}) == {"A": "b"}


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_timestamps_come_back(time_ns: int) -> None:
    """Nanoseconds survive the text form."""
    assert parse_time_ns(format_time_ns(time_ns)) == time_ns


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T01:00:00.25+01:00", 250_000_000),
        ("1970-01-01T00:00:00-01:00", 3600 * 10**9),
    ],
)
def test_timestamps(text: str, time_ns: int) -> None:
    """UTC or with an offset, with or without a fraction."""
    assert parse_time_ns(text) == time_ns


@pytest.mark.parametrize("text", ["", "yesterday", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00.xZ", "1970-01-01T00:00:00.Z"])  # fmt: skip # noqa: E501
def test_what_is_no_timestamp(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"not a time|isoformat|must be"):
        parse_time_ns(text)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("*.b", "a.b", True),
        ("a.*.c", "a.b.d", False),
    ],
)
def test_patterns(pattern: str, subject: str, expected: bool) -> None:
    """`*` is one token, `>` one or more."""
    assert matches(pattern, subject) is expected


def test_subject_transforms() -> None:
    """The n-th wildcard's token goes where the destination names it."""
    assert transform("a.*.b.*", "c.{{wildcard(2)}}.{{wildcard(1)}}", "a.x.b.y") == "c.y.x"
