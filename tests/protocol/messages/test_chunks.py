"""Splitting an update, and reading a chunk off a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol import limits
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Chunk, chunk_bytes, parse, split
from lorogo_protocol.messages.digest import digest

GOOD = {h.LOG_ID: "id", h.CHUNK_INDEX: "2"}
FINAL = GOOD | {h.FINAL: "true", h.CHUNK_COUNT: "3", h.DIGEST: "42", h.RESPONSE_INBOX: "_INBOX.x"}


@given(st.binary(max_size=300), st.integers(1, 64), st.sampled_from(["", "_INBOX.x"]))
def test_chunks_are_the_payload_cut(payload: bytes, size: int, inbox: str) -> None:
    """The chunks, in order, are the payload; all but the last are full; only the last has the facts."""
    chunks = list(split(payload, "id", chunk_bytes_max=size, inbox=inbox))
    *others, last = chunks
    assert b"".join(chunk.data for chunk in chunks) == payload
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert all(len(chunk.data) == size and chunk.headers().keys() == GOOD.keys() for chunk in others)
    assert len(last.data) <= size
    assert (last.final, last.count, last.digest, last.inbox) == (True, len(chunks), digest(payload), inbox)
    assert len(last.data) > 0 or not payload


@given(st.binary(max_size=300), st.integers(1, 64), st.sampled_from(["", "_INBOX.x"]))
def test_a_chunk_survives_the_wire(payload: bytes, size: int, inbox: str) -> None:
    """The parsed chunk equals the sent one."""
    for chunk in split(payload, "id", chunk_bytes_max=size, inbox=inbox):
        assert parse(chunk.headers(), chunk.data) == chunk


def test_an_empty_update_is_one_empty_chunk() -> None:
    (only,) = split(b"", "id", chunk_bytes_max=1)
    assert only == Chunk("id", 0, b"", final=True, count=1, digest=digest(b""))


def test_an_absent_count_is_the_last_index_and_one() -> None:
    """A sender may leave the count out."""
    headers = {key: value for key, value in FINAL.items() if key != h.CHUNK_COUNT}
    assert parse(headers, b"x").count == 3


def test_an_absent_digest_is_read_as_none() -> None:
    """It is answered as a digest that does not match, so its sender hears of it."""
    headers = {key: value for key, value in FINAL.items() if key != h.DIGEST}
    assert parse(headers, b"x").digest == ""


def test_facts_on_a_chunk_that_is_not_the_last_mean_nothing() -> None:
    assert parse(GOOD | {h.DIGEST: "no number", h.CHUNK_COUNT: "x"}, b"x") == Chunk("id", 2, b"x")


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({}, "no LORO_LOG_ID"),
        ({h.LOG_ID: "", h.CHUNK_INDEX: "0"}, "no LORO_LOG_ID"),
        (GOOD | {h.LOG_ID: "a b"}, "LORO_LOG_ID must be"),
        (GOOD | {h.LOG_ID: "x" * 65}, "LORO_LOG_ID must be"),
        ({h.LOG_ID: "id"}, "LORO_CHUNK_INDEX is ''"),
        (GOOD | {h.CHUNK_INDEX: "-1"}, "LORO_CHUNK_INDEX is '-1'"),
        (GOOD | {h.CHUNK_INDEX: "1.0"}, "LORO_CHUNK_INDEX is '1.0'"),
        (GOOD | {h.CHUNK_INDEX: "²"}, "LORO_CHUNK_INDEX is '²'"),
        (GOOD | {h.CHUNK_INDEX: "1" * 10}, "not a number from 0 to 999999999"),
        (GOOD | {h.CHUNK_INDEX: "1" * 100_000}, "LORO_CHUNK_INDEX is '11111111111111111111'"),
        (FINAL | {h.FINAL: "True"}, "LORO_FINAL is 'True', only 'true' is allowed"),
        (FINAL | {h.FINAL: ""}, "LORO_FINAL is ''"),
        (FINAL | {h.CHUNK_COUNT: "many"}, "LORO_CHUNK_COUNT is 'many'"),
        (FINAL | {h.DIGEST: "0xff"}, "LORO_DIGEST is '0xff', not a number"),
        (FINAL | {h.DIGEST: "1" * 21}, "LORO_DIGEST"),
        (FINAL | {h.DIGEST: "1\r\n x: y"}, "LORO_DIGEST"),
        (FINAL | {h.RESPONSE_INBOX: "$JS.API.STREAM.DELETE.loro-wal"}, "which is not a valid inbox"),
        (FINAL | {h.RESPONSE_INBOX: "loro.wal.other"}, "which is not a valid inbox"),
        (FINAL | {h.RESPONSE_INBOX: "_INBOX.>"}, "which is not a valid inbox"),
    ],
)
def test_what_is_no_chunk(headers: dict[str, str], problem: str) -> None:
    """A message that the protocol does not allow is named with the header that is wrong."""
    with pytest.raises(MalformedMessage) as caught:
        parse(headers, b"x")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@given(
    st.dictionaries(st.sampled_from(list(FINAL)), st.text(max_size=30) | st.sampled_from(["true", "0", "7"]))
)
def test_hostile_headers_are_read_or_malformed(headers: dict[str, str]) -> None:
    """Whatever is in the headers, reading them never crashes, and what is read can be answered."""
    try:
        chunk = parse(headers, b"x")
    except MalformedMessage:
        return
    assert 0 <= chunk.index <= 999_999_999
    assert 0 <= chunk.count <= 1_000_000_000
    assert (chunk.digest + chunk.inbox).isascii()
    assert (chunk.digest + chunk.inbox).isprintable()


@pytest.mark.parametrize(
    ("max_payload", "wanted", "expected"),
    [
        (1024 * 1024, limits.CHUNK_BYTES_MAX, 128 * 1024),
        (64 * 1024, limits.CHUNK_BYTES_MAX, 62 * 1024),
        (2049, limits.CHUNK_BYTES_MAX, 1),
        (1024 * 1024, 10, 10),
    ],
)
def test_a_chunk_fits_into_a_message(max_payload: int, wanted: int, expected: int) -> None:
    """The server's max_payload less the headers, or less if less is wanted."""
    assert chunk_bytes(max_payload, wanted) == expected


def test_a_server_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_payload 2048 leaves no room"):
        chunk_bytes(2048)
