"""The token authority: keys that it rereads, tokens that it caches, and a revocation list that it must have
read.
"""

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import InvalidKey, Key, TokenRefused
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.auth.revocations import AGE_SECONDS_MAX
from lorogo_transport.secret_files import SecretUnusable
from lorogo_transport.stores import topology
from tests.revoking import list_of
from tests.transport.auth.test_revocations import NOW, SPEC, HandClock
from tests.transport.support import AnyTransport, make_list, until


def secret(kid: str, letter: bytes = b"x") -> Key:
    k = base64.urlsafe_b64encode(letter * 32).rstrip(b"=").decode()
    return tokens.key_of({"kty": "oct", "kid": kid, "k": k})


ONE, TWO, ONE_REPLACED = secret("one"), secret("two", b"y"), secret("one", b"z")
ED = tokens.key_of(
    {
        "kty": "OKP", "crv": "Ed25519", "kid": "ed",
        "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    }
)  # fmt: skip  # of RFC 8037


def put(path: Path, *keys: Key, mode: int = 0o600) -> Path:
    """Replace the file as one should: whole, by a rename."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"keys": [key.private() for key in keys]}))
    beside.chmod(mode)
    beside.replace(path)
    return path


def mint(
    key: Key, token_id: str = "t1", subject: str = "ana", expires: float = NOW + 60, now: float = NOW
) -> str:
    return tokens.mint(
        key, subject=subject, documents={"a": "read"}, expires=expires, now=now, token_id=token_id
    )


def refused(authority: Authority, text: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        authority.verify(text)
    assert text not in str(caught.value) or not text
    return caught.value.code


def test_a_file_s_keys_are_read_when_it_changes(tmp_path: Path) -> None:
    """A new key is known after the next look, and one that is gone is not."""
    source = KeySource.from_file(put(tmp_path / "keys", ONE))
    assert not source.refresh()
    put(tmp_path / "keys", ONE, TWO)
    assert source.refresh() and not source.refresh()
    assert [key.key_id for key in source.keys.all] == ["one", "two"]
    assert source.path == tmp_path / "keys"


def test_a_change_within_the_same_moment_is_seen(tmp_path: Path) -> None:
    """Of the same size and with the same time of change, a file that was put in its place is another."""
    path = put(tmp_path / "keys", ONE)
    source, before = KeySource.from_file(path), path.stat()
    put(path, ONE_REPLACED)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert source.refresh() and source.keys.all == (ONE_REPLACED,)


BAD_FILES: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b"{", "not JSON"),
    (b'{"keys": []}', "no key in it"),
    (b'{"keys": [{"kty": "oct", "kid": "a", "k": "c2hvcnQ"}]}', "too short"),
    (b"\xff", "not text"),
    (b"x" * 100_000, "more than 65536 bytes"),
]


@pytest.mark.parametrize(("content", "problem"), BAD_FILES)
def test_a_bad_new_file_changes_nothing(
    content: bytes, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old keys stay in use, the problem is logged once, and the next good file is loaded."""
    path = put(tmp_path / "keys", ONE)
    source = KeySource.from_file(path)
    path.write_bytes(content)
    assert not source.refresh() and not source.refresh()
    assert source.keys.all == (ONE,)
    assert len(caplog.records) == 1 and problem in caplog.text and "c2hvcnQ" not in caplog.text
    path.unlink()
    assert not source.refresh() and source.keys.all == (ONE,)
    put(path, TWO)
    assert source.refresh() and source.keys.all == (TWO,)
    path.write_bytes(content)
    with pytest.raises((SecretUnusable, InvalidKey), match=problem):
        KeySource.from_file(path)


def test_secrets_among_the_keys_must_be_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Public keys may be world-readable; a file with a secret key may not, also after a later change."""
    path = tmp_path / "keys"
    path.write_text(json.dumps({"keys": [ED.public()]}))
    path.chmod(0o644)
    source = KeySource.from_file(path)
    for key in (ONE, ED):
        put(path, key, mode=0o644)
        assert not source.refresh() and "chmod 600" in caplog.text
        with pytest.raises(SecretUnusable, match="chmod 600"):
            KeySource.from_file(path)
        put(path, key, mode=0o600)
        assert source.refresh()


def test_keys_from_text_never_change() -> None:
    """As from a variable of the environment."""
    source = KeySource.from_text(json.dumps(ONE.private()))
    assert not source.refresh() and source.keys.all == (ONE,) and source.path is None
    with pytest.raises(InvalidKey):
        KeySource.from_text("")


async def test_without_a_list_a_token_lasts_until_it_ends() -> None:
    """Verified once, remembered, and refused from its end on."""
    clock = HandClock()
    async with Authority(KeySource.from_text(json.dumps(ONE.private())), None, clock) as authority:
        text = mint(ONE)
        token = authority.verify(text)
        assert authority.ready and authority.is_valid(token)
        assert authority.verify(text) is token  # no second verification
        clock.seconds = NOW + 64.9
        assert authority.verify(text) is token and authority.is_valid(token)
        clock.seconds = NOW + 65
        assert refused(authority, text) == "token-expired" and not authority.is_valid(token)
        clock.seconds = NOW
        assert refused(authority, mint(TWO)) == "token-invalid"
        for bad in ("", "\ud800", "a.b.c", "x" * 100_000):
            assert refused(authority, bad) == "token-invalid"


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens that were used last are remembered, refused ones are not."""
    verified: list[str] = []
    original = tokens.Keys.verify

    def counted(self: tokens.Keys, text: str, *, now: float) -> tokens.Token:
        verified.append(text)
        return original(self, text, now=now)

    monkeypatch.setattr(tokens.Keys, "verify", counted)
    monkeypatch.setattr("lorogo_transport.auth.authority.REMEMBERED_MAX", 2)
    authority = Authority(KeySource.from_text(json.dumps(ONE.private())), None, HandClock())
    one, two, three = (mint(ONE, name) for name in ("1", "2", "3"))
    for text in (one, two, one, three, one, two):
        authority.verify(text)
    assert verified == [one, two, three, two]
    for _ in range(3):
        refused(authority, mint(TWO))
    verified.clear()
    authority.verify(two)
    assert verified == []


async def test_changed_keys_are_loaded_and_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed or replaced key invalidates its tokens, and the authority notifies its listener."""
    path = put(tmp_path / "keys", ONE, TWO)
    monkeypatch.setattr("lorogo_transport.auth.authority.REFRESH_SECONDS", 0.01)
    async with Authority(KeySource.from_file(path), None, HandClock()) as authority:
        changed = asyncio.Event()
        stop = authority.watch(changed.set)
        first, second = mint(ONE), mint(TWO)
        one, two = authority.verify(first), authority.verify(second)
        put(path, ONE_REPLACED, TWO)
        async with asyncio.timeout(10):
            await changed.wait()
        assert not authority.is_valid(one) and authority.is_valid(two)
        assert refused(authority, first) == "token-invalid"
        assert authority.verify(second) == two
        assert authority.is_valid(authority.verify(mint(ONE_REPLACED)))
        stop()
        changed.clear()
        put(path, ONE)
        await until(lambda: authority.keys.all == (ONE,))
        assert not changed.is_set() and not authority.is_valid(two)


async def test_a_look_that_fails_does_not_end_the_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority reads the keys again after any exception of a refresh."""
    path = put(tmp_path / "keys", ONE)
    source, looks = KeySource.from_file(path), 0
    refresh = source.refresh

    def broken() -> bool:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise RuntimeError("broken")
        return refresh()

    monkeypatch.setattr(source, "refresh", broken)
    monkeypatch.setattr("lorogo_transport.auth.authority.REFRESH_SECONDS", 0.01)
    async with Authority(source, None, HandClock()) as authority:
        put(path, TWO)
        await until(lambda: authority.keys.all == (TWO,))


async def test_a_token_that_only_was_peeked_at_is_not_good() -> None:
    """`still` is for tokens that were verified."""
    authority = Authority(KeySource.from_text(json.dumps(ONE.private())), None, HandClock())
    assert not authority.is_valid(tokens.peek(mint(ONE)))


async def test_revoked_tokens_are_refused(transport: AnyTransport) -> None:
    """The authority refuses tokens revoked by id or by subject, cached or not, and notifies its listeners."""
    await transport.ensure(SPEC)
    await transport.stream(SPEC.name).purge(subjects.revoked_key("*"))
    await make_list(transport)
    async with Authority(KeySource.from_text(json.dumps(ONE.private())), transport, HandClock()) as authority:
        notices: list[Any] = []
        authority.watch(lambda: notices.append(1))
        a, b, c = mint(ONE, "a"), mint(ONE, "b"), mint(ONE, "c", subject="bob")
        token = authority.verify(a)
        await list_of(authority).revoke_token("a", token.expires)
        assert notices and not authority.is_valid(token)
        assert refused(authority, a) == "token-revoked"
        assert authority.is_valid(authority.verify(b))
        await list_of(authority).revoke_subject("ana")
        assert refused(authority, b) == "token-revoked"
        assert authority.is_valid(authority.verify(c))


async def test_a_list_that_was_not_read_refuses_everything() -> None:
    """An authority without a revocation list refuses every token, and accepts good ones once it has read the
    list.
    """
    world = MemoryNats()
    keys = KeySource.from_text(json.dumps(ONE.private()))
    async with world.connect() as transport, Authority(keys, transport, HandClock()) as authority:
        assert not authority.ready
        assert refused(authority, mint(ONE)) == "token-unchecked"
        assert not authority.is_valid(Authority(keys, None, HandClock()).verify(mint(ONE)))
        for spec in topology.specs():
            await transport.ensure(spec)
        await make_list(transport)
        await until(lambda: authority.ready)
        assert authority.is_valid(authority.verify(mint(ONE)))


async def test_a_stale_list_admits_no_new_token() -> None:
    """Admitted tokens stay valid and revoked ones stay revoked; after a new read of the list, the authority
    is ready again.
    """
    world, clock = MemoryNats(), HandClock()
    keys = KeySource.from_text(json.dumps(ONE.private()))
    text, bad = mint(ONE, expires=NOW + 9000), mint(ONE, "bad", expires=NOW + 9000)
    async with world.connect() as transport:
        await make_list(transport)
        async with Authority(keys, transport, clock) as authority:
            good, revoked = authority.verify(text), authority.verify(bad)
            await list_of(authority).revoke_token("bad")
            transport.cut()
            clock.seconds += AGE_SECONDS_MAX
            states = [(authority.ready, authority.known)]
            assert authority.verify(text) == good
            clock.seconds += 1
            states.append((authority.ready, authority.known))
            assert states == [(True, True), (False, True)]
            assert refused(authority, text) == "token-unchecked"
            assert authority.is_valid(good) and not authority.is_valid(revoked)
            transport.heal()
            await until(lambda: authority.ready)
            assert authority.verify(text) == good


async def test_an_unreadable_list_is_logged_and_so_is_its_recovery() -> None:
    """On a new NATS the log line names the command to run; both lines have the level warning."""
    keys = KeySource.from_text(json.dumps(ONE.private()))
    with structlog.testing.capture_logs() as events:
        async with MemoryNats().connect() as transport, Authority(keys, transport, HandClock()) as authority:
            await make_list(transport)
            await until(lambda: authority.ready)
    notices = [event for event in events if event["log_level"] == "warning"]
    assert [event["event"] for event in notices] == [
        "cannot read the list of revocations",
        "list of revocations read again",
    ]
    assert "start `lorogo serve` once" in notices[0]["problem"]


async def test_an_authority_that_was_not_entered_refuses_everything() -> None:
    """Forgetting `async with` is not a way in."""
    transport = MemoryNats().connect()
    authority = Authority(KeySource.from_text(json.dumps(ONE.private())), transport, HandClock())
    assert refused(authority, mint(ONE)) == "token-unchecked"


def test_no_secret_shows() -> None:
    """Neither repr() nor str() of anything that has keys has one in it."""
    source = KeySource.from_text(json.dumps(ONE.private()))
    authority = Authority(source, None, HandClock())
    shown = f"{source!r} {source} {authority!r} {authority} {source.keys!r} {source.keys}"
    assert ONE.private()["k"] not in shown and "x" * 32 not in shown
