"""Names: document ids, tokens and inboxes."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import InvalidDocumentId, MalformedMessage
from lorogo_protocol.ids import check_document_id, check_token, is_inbox, is_token, is_user_inbox
from lorogo_protocol.messages import subjects


@given(st.from_regex(r"(?!-|_kv)[A-Za-z0-9_=-]{1,128}", fullmatch=True))
def test_a_document_id_is_itself(value: str) -> None:
    """An allowed id is returned unchanged."""
    assert check_document_id(value) == value


@given(st.text(max_size=140) | st.text("ab-_=kv.", max_size=6))
def test_a_document_id_is_one_safe_word(value: str) -> None:
    """A valid id is one subject token, a KV key and an object name; any other text is an
    InvalidDocumentId.
    """
    safe = set(string.ascii_letters + string.digits + "_-=")
    if 1 <= len(value) <= 128 and set(value) <= safe and not value.startswith(("-", "_kv")):
        assert check_document_id(value) == value
    else:
        with pytest.raises(InvalidDocumentId):
            check_document_id(value)


@pytest.mark.parametrize("value", ["a", "A-Z_0=9", "minutes-2026-11", "=", "_", "_k", "_KV", "x" * 128])
def test_good_document_ids(value: str) -> None:
    assert check_document_id(value) == value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "it is empty"),
        ("x" * 129, "it has 129 characters, at most 128 are allowed"),
        ("x" * 100_000, "it has 100000 characters, at most 128 are allowed"),
        ("a.b", "'.' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("*", "'*' is not allowed; use A-Z a-z 0-9 _ - ="),
        (">", "'>' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("a b", "' ' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("a/b", "'/' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("a\n", "'\\n' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("é", "'é' is not allowed; use A-Z a-z 0-9 _ - ="),
        ("-a", "it must not begin with '-'"),
        ("_kv", "it must not begin with '_kv'"),
        ("_kv_epoch", "it must not begin with '_kv'"),
    ],
)
def test_bad_document_ids(value: str, problem: str) -> None:
    """Each mistake has its own sentence, which names the allowed values."""
    with pytest.raises(InvalidDocumentId) as caught:
        check_document_id(value)
    assert caught.value.problem == problem
    assert caught.value.code == "invalid-document-id"


@pytest.mark.parametrize("value", ["a", "x" * 64, "V1StGXR8_Z5jdHi6B-myT"])
def test_good_tokens(value: str) -> None:
    assert is_token(value)
    assert check_token(value, "LORO_LOG_ID") == value


@pytest.mark.parametrize("value", ["", "x" * 65, "a=b", "a.b", "a b", "a\n", "é"])
def test_bad_tokens(value: str) -> None:
    """The error names what should have been a token."""
    assert not is_token(value)
    with pytest.raises(MalformedMessage, match="LORO_LOG_ID must be 1 to 64 characters"):
        check_token(value, "LORO_LOG_ID")


@pytest.mark.parametrize("value", ["_INBOX.a.b", "_INBOX_alice.x1", "replies", "a" * 256, "lorox.a"])
def test_answers_go_to_an_inbox(value: str) -> None:
    assert is_inbox(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a" * 257,
        "$JS.API.STREAM.DELETE.loro-wal",
        "$KV.loro-document-status.a",
        "loro.wal.a",
        "loro.accepted.a",
        "_INBOX.*",
        "_INBOX.>",
        "_INBOX. a",
        "_INBOX.a\r\nPUB x 0",
        "_INBOX..a",
        ".a",
        "a.",
        "é",
        "a\x00",
    ],
)
def test_answers_go_nowhere_else(value: str) -> None:
    """A sender cannot make the server publish on NATS's own subjects or on ours, nor on no subject at all."""
    assert not is_inbox(value)


@pytest.mark.parametrize("value", [None, 5, b"minutes"])
def test_what_is_no_text_is_no_document_id(value: Any) -> None:
    """The sentence names the type."""
    with pytest.raises(InvalidDocumentId, match=f"it is {type(value).__name__}, not text"):
        check_document_id(value)


def test_the_inbox_of_a_user() -> None:
    """A server with keys answers to inboxes of users only."""
    assert is_user_inbox(f"{subjects.user_inbox('abc')}.x")
    assert not is_user_inbox("_INBOX.a.b")
