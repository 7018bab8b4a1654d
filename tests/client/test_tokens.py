"""The app's door to tokens: every way to give a key and a time, and what is wrong with the others."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import lorogo_client
from lorogo_client import tokens
from lorogo_protocol.access import tokens as protocol
from lorogo_protocol.access.grants import Access
from lorogo_protocol.access.tokens import Keys

DOCUMENTS = {"minutes-*": "write", "plans-7": "read"}
KEY = tokens.new_key()


def key_file(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "tokens.jwk"
    path.write_text(json.dumps(KEY.private()))
    path.chmod(mode)
    return path


def verified(text: str, key: tokens.Key = KEY) -> protocol.Token:
    return Keys([protocol.key_of(key.public())]).verify(text, now=time.time())


@pytest.mark.parametrize("kind", ["EdDSA", "HS256"])
def test_a_new_key_mints(kind: Any) -> None:
    """And its public part verifies; two keys are never the same, by name or by value."""
    key, other = tokens.new_key(kind, key_id="mine"), tokens.new_key(kind)
    assert (key.key_id, key.algorithm) == ("mine", kind)
    assert other.key_id not in ("mine", tokens.new_key(kind).key_id) and other.print != key.print
    text = tokens.mint(key, subject="ana", documents=DOCUMENTS, expires=60)
    token = verified(text, key)
    assert token.subject == "ana" and token.grants.access("minutes-1") is Access.WRITE
    with pytest.raises(protocol.TokenRefused):
        verified(text, tokens.new_key(kind, key_id="mine"))


@pytest.mark.parametrize(("kind", "key_id"), [("RS256", None), ("", None), ("EdDSA", ""), ("HS256", "a b")])
def test_keys_that_cannot_be_made(kind: Any, key_id: str | None) -> None:
    """A kind that we do not take, a name that no key may have."""
    with pytest.raises(tokens.InvalidKey):
        tokens.new_key(kind, key_id)


def test_a_key_comes_in_many_ways(tmp_path: Path) -> None:
    """As a key, a map, its text, or the path of its file."""
    path = key_file(tmp_path)
    for key in (
        KEY,
        KEY.private(),
        json.dumps(KEY.private()),
        path,
        tokens.load_key(path),
        tokens.load_key(str(path)),
    ):
        text = tokens.mint(key, subject="ana", documents=DOCUMENTS, expires=60)
        assert verified(text).key_id == KEY.key_id


def test_a_key_file_must_be_private(tmp_path: Path) -> None:
    """Others could mint with it."""
    path = key_file(tmp_path, mode=0o644)
    for load in (lambda: tokens.load_key(path), lambda: mint_with(path)):
        with pytest.raises(tokens.SecretUnusable, match="chmod 600"):
            load()


def mint_with(key: Any) -> str:
    return tokens.mint(key, subject="ana", documents=DOCUMENTS, expires=60)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("tokens.jwk", "for a file give pathlib.Path"),
        ("", "for a file give pathlib.Path"),
        ("{", "not JSON"),
        ({}, "needs a `kid`"),
        (None, "a key is a JWK"),
        (KEY.public(), "only verifies"),
        (Path("/nonexistent/key"), "there is no"),
    ],
)
def test_what_is_no_key_to_mint_with(key: object, problem: str) -> None:
    """The sentence says what would be one."""
    with pytest.raises((tokens.InvalidKey, tokens.SecretUnusable), match=problem):
        mint_with(key)


def test_a_file_that_is_no_key_is_named(tmp_path: Path) -> None:
    """And nothing of what is in it."""
    path = tmp_path / "f"
    path.write_text("my password")
    path.chmod(0o600)
    with pytest.raises(tokens.InvalidKey, match=r"the key in .*f' cannot be used: it is not JSON") as caught:
        tokens.load_key(path)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [(timedelta(hours=8), 28_800), (90, 90), (0.5, 0.5)],
    ids=["timedelta", "int", "float"],
)
def test_a_span_counts_from_now(expires: Any, seconds: float) -> None:
    """As a timedelta or as seconds; never shorter than asked for."""
    before = time.time()
    token = verified(tokens.mint(KEY, subject="ana", documents=DOCUMENTS, expires=expires))
    assert before + seconds <= token.expires <= time.time() + seconds + 1
    assert token.issued is not None and token.issued <= before


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=9))], ids=["UTC", "elsewhere"])
def test_a_moment_is_taken_as_it_is(zone: timezone) -> None:
    """With its time zone."""
    expires = datetime(2090, 1, 1, tzinfo=zone)
    token = verified(tokens.mint(KEY, subject="ana", documents=DOCUMENTS, expires=expires))
    assert token.expires == expires.timestamp()


@pytest.mark.parametrize(
    ("expires", "problem"),
    [
        (0, "in the future"),
        (-5, "in the future"),
        (timedelta(), "in the future"),
        (datetime(2020, 1, 1, tzinfo=UTC), "in the future"),
        (datetime(2090, 1, 1), "needs a time zone"),  # noqa: DTZ001  # that is the mistake
        (1_800_000_000, "seconds from now, not since 1970"),
        (float("inf"), "seconds from now"),
        (float("nan"), "in the future"),
        (True, "is a timedelta"),
        ("8h", "is a timedelta"),
        (None, "is a timedelta"),
    ],
)
def test_what_is_no_time(expires: Any, problem: str) -> None:
    """A Unix time given as seconds would make a token for decades: it is refused."""
    with pytest.raises(ValueError, match=problem):
        tokens.mint(KEY, subject="ana", documents=DOCUMENTS, expires=expires)


def test_every_token_has_an_id_of_its_own() -> None:
    """By which it can be revoked; an app may choose it."""
    ids = {verified(mint_with(KEY)).token_id for _ in range(10)}
    assert len(ids) == 10 and all(one.startswith("t") for one in ids)
    text = tokens.mint(KEY, subject="ana", documents=DOCUMENTS, expires=60, token_id="session-5")
    assert verified(text).token_id == "session-5"
    with pytest.raises(ValueError, match="jti"):
        tokens.mint(KEY, subject="ana", documents=DOCUMENTS, expires=60, token_id="")


def test_what_cannot_be_granted() -> None:
    """The same sentence as everywhere."""
    with pytest.raises(tokens.InvalidGrants, match="read, write or admin"):
        tokens.mint(KEY, subject="ana", documents={"a": "own"}, expires=60)


def test_the_door_is_there_after_one_import() -> None:
    """`import lorogo_client` is enough."""
    assert lorogo_client.tokens is tokens


def test_without_cryptography_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain client does not bring it."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(tokens.InvalidKey, match=r"pip install 'lorogo\[tokens\]'"):
        tokens.new_key()
    assert tokens.new_key("HS256").algorithm == "HS256"
