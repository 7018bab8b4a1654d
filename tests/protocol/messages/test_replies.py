"""ACK and NACK."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import replies
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import DURABILITIES, Ack, Nack, Reply

ids = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
digests = st.integers(0, 2**64 - 1).map(str)
numbers = st.integers(0, 2**64 - 1)
sentences = st.text(max_size=100).map(replies.sentence)
every_reply = st.builds(Ack, ids, digests, numbers, st.sampled_from(DURABILITIES), numbers) | st.builds(
    Nack, ids, digests, st.sampled_from(Reason), sentences
)
ACK = {h.LOG_ID: "id", h.DIGEST: "1", h.SEQUENCE: "7", h.DURABILITY: "stream", h.LEASE: "3"}
NACK = {h.LOG_ID: "id", h.DIGEST: "1", h.REASON: "too-large", h.MESSAGE: "it is"}


@given(every_reply)
def test_what_is_answered_is_understood(reply: Reply) -> None:
    """Every reply survives the wire, and its body is exactly ACK or NACK."""
    body, headers = replies.encode(reply)
    assert body == (b"ACK" if isinstance(reply, Ack) else b"NACK")
    assert replies.decode(body, headers) == reply


@given(
    st.sampled_from([b"ACK", b"NACK"]) | st.binary(max_size=8),
    st.dictionaries(st.sampled_from([*ACK, *NACK]), st.text(max_size=30)),
)
def test_any_reply_is_understood_or_malformed(body: bytes, headers: dict[str, str]) -> None:
    """Whatever comes to the inbox, reading it never crashes."""
    try:
        reply = replies.decode(body, headers)
    except MalformedMessage:
        return
    assert isinstance(reply, Ack | Nack)


@pytest.mark.parametrize(
    ("body", "headers", "problem"),
    [
        (b"", ACK, "neither ACK nor NACK"),
        (b"ack", ACK, "neither ACK nor NACK"),
        (b"ACK\n", ACK, "neither ACK nor NACK"),
        (b"NAK", NACK, "neither ACK nor NACK"),
        (b"ACK", {}, h.DURABILITY),
        (b"ACK", ACK | {h.DURABILITY: "disk"}, h.DURABILITY),
        (b"ACK", {key: value for key, value in ACK.items() if key != h.SEQUENCE}, h.SEQUENCE),
        (b"ACK", ACK | {h.SEQUENCE: "-1"}, h.SEQUENCE),
        (b"ACK", ACK | {h.SEQUENCE: ""}, h.SEQUENCE),
        (b"ACK", ACK | {h.SEQUENCE: "1" * 21}, h.SEQUENCE),
        (b"ACK", ACK | {h.LEASE: "٣"}, h.LEASE),
        (b"ACK", ACK | {h.LEASE: "3.0"}, h.LEASE),
        (b"NACK", {}, h.REASON),
        (b"NACK", NACK | {h.REASON: "because"}, h.REASON),
    ],
)
def test_what_is_no_reply(body: bytes, headers: dict[str, str], problem: str) -> None:
    """A reply that the protocol does not allow is named with the header that is wrong."""
    with pytest.raises(MalformedMessage, match=problem):
        replies.decode(body, headers)


def test_a_nack_needs_no_sentence() -> None:
    """Programs read the reason; the sentence for people may be missing."""
    headers = {key: value for key, value in NACK.items() if key != h.MESSAGE}
    assert replies.decode(b"NACK", headers) == Nack("id", "1", Reason.TOO_LARGE, "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("two\r\nlines: x", "two lines: x"),
        ("  tab\tand\x00null ", "tab and null"),
        ("Zürich\u2028", "Zürich"),
        ("\ud800", ""),
        ("x" * 600, "x" * 500),
    ],
)
def test_a_sentence_fits_into_a_header(text: str, line: str) -> None:
    """A message that came from elsewhere can neither break a header nor fill one."""
    assert replies.sentence(text) == line


@given(st.text())
def test_no_sentence_can_add_a_header(text: str) -> None:
    """One line, printable, bounded, and stable."""
    line = replies.sentence(text)
    assert line.isprintable()
    assert len(line) <= 500
    assert line.encode().decode() == line
    assert replies.sentence(line) in (line, line.rstrip())


@pytest.mark.parametrize(("default", "expected"), [(0, 0), (5, 5)])
def test_a_number_may_be_absent_where_that_has_a_meaning(default: int, expected: int) -> None:
    """With a default, a missing header is the default; a wrong one is still wrong."""
    assert replies.number({}, h.LEASE, default) == expected
    assert replies.number({h.LEASE: "9"}, h.LEASE, default) == 9
    with pytest.raises(MalformedMessage):
        replies.number({h.LEASE: "x"}, h.LEASE, default)
