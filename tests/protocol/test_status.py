"""Statuses as they stand in the bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol import status as codec
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.status import Down, Failed, Starting, Status, Up

tokens = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
times = st.integers(0, 10**21 - 1)
statuses = (
    st.builds(Down, times)
    | st.builds(Starting, tokens, st.integers(0, 999_999_999), times)
    | st.builds(Up, tokens, times)
    | st.builds(Failed, tokens, times)
)


@given(statuses)
def test_what_is_written_is_read(status: Status) -> None:
    """Every status survives the bucket, to the nanosecond."""
    assert codec.decode(codec.encode(status)) == status


@given(st.binary(max_size=300))
def test_any_bytes_are_a_status_or_malformed(value: bytes) -> None:
    """Whatever stands in the bucket, reading it never crashes."""
    try:
        status = codec.decode(value)
    except MalformedMessage:
        return
    assert codec.decode(codec.encode(status)) == status


@given(statuses, st.integers(0, 300), st.binary(max_size=3))
def test_a_damaged_status_is_read_or_malformed(status: Status, place: int, damage: bytes) -> None:
    """Damage near a real value is caught as well."""
    value = codec.encode(status)
    try:
        codec.decode(value[:place] + damage + value[place + 1 :])
    except MalformedMessage:
        return


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "is not a status"),
        (b"DOWN", "is not a status"),
        (b"down:1.000000000", "is not a status"),
        (b"DOWN:1.000000000:", "is not a status"),
        (b"STARTING:op:1.000000000", "is not a status"),
        (b"SLEEPING:1.000000000", "is not a status"),
        (b"DOWN:1", "nine decimals"),
        (b"DOWN:1.5", "nine decimals"),
        (b"DOWN:-1.000000000", "nine decimals"),
        (b"DOWN:1.000000000\n", "nine decimals"),
        (b"DOWN:2026-11-16T00", "nine decimals"),
        (b"DOWN:1234567890123.000000000", "nine decimals"),
        (b"STARTING:op:x:1.000000000", "retry count"),
        (b"STARTING:op::1.000000000", "retry count"),
        (b"STARTING:op:-1:1.000000000", "retry count"),
        (b"STARTING:op:1234567890:1.000000000", "retry count"),
        (b"STARTING::0:1.000000000", "is not an id"),
        (b"UP::1.000000000", "is not an id"),
        (b"UP:a.b:1.000000000", "is not an id"),
        (b"ERROR:" + b"x" * 65 + b":1.000000000", "is not an id"),
        ("UP:é:1.000000000".encode(), "ASCII"),
        (b"DOWN:" + b"0" * 252, "256 bytes"),
    ],
)
def test_what_is_no_status(value: bytes, problem: str) -> None:
    """A value that the protocol does not allow is named as such."""
    with pytest.raises(MalformedMessage, match=problem):
        codec.decode(value)
