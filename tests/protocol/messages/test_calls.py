"""The bodies of calls."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.access import grants
from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=5))
def test_what_is_asked_is_understood(body: dict[str, object]) -> None:
    """Every body of plain values survives the wire, bytes as bytes and text as text."""
    assert calls.decode(calls.encode(body)) == body


@given(st.binary(max_size=200))
def test_any_bytes_are_a_body_or_malformed(data: bytes) -> None:
    """Whatever comes as a call, reading it never crashes."""
    try:
        body = calls.decode(data)
    except MalformedMessage:
        return
    assert all(isinstance(key, str) for key in body)


@given(st.binary(max_size=60))
def test_a_map_of_anything_is_a_body_or_malformed(data: bytes) -> None:
    """The same behind a byte that promises a map."""
    try:
        calls.decode(b"\x83" + data)
    except MalformedMessage:
        return


def test_no_bytes_are_no_arguments() -> None:
    assert calls.decode(b"") == {}


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\x81",
        b"\x01",
        b"\x90",
        b"\xc0",
        b"\x80\x80",
        b"\x81\x01\x01",
        b"\x81\xc4\x01a\x01",
        b"\x81\x90\x01",
        b"\x81\xa1\xff\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01",
        b"\x81\xa1a\xd6\xff\x00",
        b"\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12,
    ],
    ids=[
        "no msgpack",
        "short",
        "a number",
        "a list",
        "nothing",
        "two bodies",
        "number as key",
        "bytes as key",
        "list as key",
        "key is not text",
        "a map of 4 billion",
        "a list of 4 billion",
        "100,000 deep",
        "short time",
        "impossible time",
    ],
)
def test_what_is_no_body(data: bytes) -> None:
    """Bodies that are not a map with text keys are malformed, however they were made."""
    with pytest.raises(MalformedMessage):
        calls.decode(data)


def deep() -> object:
    value: object = 1
    for _ in range(2000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, Fraction(1, 3), 2**64, -(2**63) - 1, "\ud800", deep()],
    ids=["object", "set", "fraction", "too big", "too small", "half a character", "too deep"],
)
def test_what_cannot_be_sent(value: object) -> None:
    """A value that msgpack has no form for is refused before a byte is sent."""
    with pytest.raises(Refused) as caught:
        calls.encode({"value": value})
    assert caught.value.reason is Reason.INVALID_REQUEST


BODY = {"text": "x", "bytes": b"x", "number": 1, "flag": True, "list": [1], "map": {"a": 1}, "none": None}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("text", str), ("bytes", bytes), ("number", int), ("flag", bool), ("list", list), ("map", dict)],
)
def test_members_of_the_right_type(name: str, kind: type[object]) -> None:
    """A member comes back as it is."""
    assert calls.need(BODY, name, kind) == BODY[name]
    assert calls.maybe(BODY, name, kind) == BODY[name]


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("text", bytes, "'text' must be bytes, not str"),
        ("bytes", str, "'bytes' must be str, not bytes"),
        ("number", str, "'number' must be str, not int"),
        ("flag", int, "'flag' must be int, not bool"),
        ("list", dict, "'list' must be dict, not list"),
    ],
)
def test_members_of_the_wrong_type(name: str, kind: type[object], sentence: str) -> None:
    """A member of another type is refused with what was expected; true is not a number."""
    for ask in (calls.need, calls.maybe):
        with pytest.raises(Refused) as caught:
            ask(BODY, name, kind)
        assert (caught.value.reason, str(caught.value)) == (Reason.INVALID_REQUEST, sentence)


@pytest.mark.parametrize("name", ["absent", "none"])
def test_members_that_are_absent(name: str) -> None:
    """Absent and null are the same: fine where the member is optional, refused where it is not."""
    assert calls.maybe(BODY, name, str) is None
    with pytest.raises(Refused, match=f"'{name}' is missing"):
        calls.need(BODY, name, str)


def test_a_refusal_carries_its_reason() -> None:
    """Programs read the code, people the sentence; without a sentence the code has to do."""
    refused = Refused(Reason.NOT_FOUND, "there is no such document")
    assert (refused.code, str(refused)) == ("not-found", "there is no such document")
    assert str(Refused(Reason.BUSY, "")) == "busy"
    assert isinstance(refused, LorogoError)


def test_every_verb_is_one_subject_token() -> None:
    assert all(verb.isascii() and verb.isalpha() and verb.islower() for verb in grants.VERBS)


def test_a_packed_body_travels_as_it_is() -> None:
    """A body that was packed elsewhere is not packed again, and its members can be read."""
    packed = calls.encode({"value": [1, 2], "frontiers": b"f"})
    body = calls.EncodedBody(packed)
    assert calls.encode(body) is packed
    assert dict(body) == {"value": [1, 2], "frontiers": b"f"}
    assert (len(body), body["value"]) == (2, [1, 2])
