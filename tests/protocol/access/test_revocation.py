"""The tokens that a revocation refuses, and its duration."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.access import grants, revocation
from lorogo_protocol.access.revocation import SUBJECT, TOKEN, Revocation
from lorogo_protocol.access.tokens import CLOCK_SECONDS, Token

NOW = 1_800_000_000.0


def token(issued: float | None = NOW) -> Token:
    return Token("ana", grants.EVERYTHING, NOW + 60, issued, "t", "k", "u")


@given(
    st.sampled_from(["tok_a", "sub_a"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_an_entry_reads_back(key: str, at: float, until: float | None) -> None:
    """A decoded entry equals the encoded one."""
    entry = Revocation(SUBJECT if key.startswith("sub_") else TOKEN, at, until)
    assert revocation.decode(key, revocation.encode(entry)) == entry


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"null", b"7", b'"at"', b"\xff", b"[" * 100_000, b'{"at": 1}',
     b'{"at": "1", "until": null}',
     b'{"at": true, "until": null}', b'{"at": NaN, "until": null}', b'{"at": 1, "until": Infinity}',
     b'{"at": 1, "until": []}', b'{"at": 1' + b"0" * 400 + b', "until": null}'],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_refuses(data: bytes) -> None:
    """An unreadable entry is a revocation of unknown content, so it refuses every token of its key."""
    for key in ("tok_t", "sub_x"):
        entry = revocation.decode(key, data)
        assert entry.refuses(token()) and not entry.over(math.inf)


def test_what_a_token_s_entry_refuses() -> None:
    """The token, whenever it was issued, until it has ended by every clock."""
    entry = revocation.of_token(NOW, NOW + 60)
    assert entry.refuses(token(NOW + 1000)) and entry.refuses(token(None))
    assert not entry.over(NOW + 60 + CLOCK_SECONDS) and entry.over(NOW + 60 + 2 * CLOCK_SECONDS)
    assert not revocation.of_token(NOW, None).over(math.inf)


def test_what_a_subject_s_entry_refuses() -> None:
    """The entry refuses tokens issued earlier, within the clock tolerance, or without an issue time."""
    entry = revocation.of_subject(NOW, None)
    assert (
        entry.refuses(token(NOW - 1))
        and entry.refuses(token(NOW + CLOCK_SECONDS))
        and entry.refuses(token(None))
    )
    assert not entry.refuses(token(NOW + CLOCK_SECONDS + 1))
    assert revocation.of_subject(NOW, NOW + 9).over(NOW + 9)


@given(st.none() | st.floats(0, 10), st.none() | st.floats(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_two_entries_joined_refuse_what_either_does(
    one_until: float | None, other_until: float | None, one_at: float, other_at: float
) -> None:
    """Revoking again never lets anything in that was revoked before."""
    one, other = Revocation(SUBJECT, one_at, one_until), Revocation(SUBJECT, other_at, other_until)
    both = one.joined(other)
    for now in (one_until, other_until, 0.0, 11.0):
        if now is not None:
            assert both.over(now) == (one.over(now) and other.over(now))
    for issued in (one_at, other_at):
        assert both.refuses(token(issued))


def test_a_token_is_never_taken_for_a_subject() -> None:
    """A `jti` may look like the key of a subject: its entry has another name."""
    key = revocation.subject_key("ana")
    assert revocation.token_key(key) == f"tok_{key}"
    assert len(key) == 36 and key != revocation.subject_key("Ana")
    assert revocation.subject_key("\ud800") != revocation.subject_key("?")
    for bad in ("", "a.b", "*", ">", "a b", "a" * 65, "é"):
        with pytest.raises(ValueError, match="1 to 64"):
            revocation.token_key(bad)
