"""Connections that a closed NATS accepts and refuses: with plain sockets and nats-py, never lorogo's own
client.
"""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import jwt
import nats
import pytest
import structlog.testing

from lorogo_protocol.access import tokens
from lorogo_protocol.limits import TOKEN_BYTES_MAX, TOKEN_DOCUMENTS_MAX
from lorogo_transport.auth import accounts as closed_config
from lorogo_transport.auth.anonymous_access import allows_anonymous
from tests.revoking import list_of
from tests.security.closed import KEY, OTHER_KEY, Closed, closed_nats, mint, write_keys
from tests.security.raw import Raw

pytestmark = pytest.mark.nats


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


async def test_nats_py_comes_in_with_a_token(closed: Closed) -> None:
    """A plain NATS client needs only the token, and gets its rights."""
    token = mint({"d1": "write"})
    prefix = f"_INBOX_{tokens.user_of(token)}"
    one = await nats.connect(closed.url, token=token, inbox_prefix=prefix.encode(), allow_reconnect=False)
    subscription = await one.subscribe("loro.awareness.d1")
    await one.publish("loro.awareness.d1", b"hello")
    assert (await subscription.next_msg(timeout=10)).data == b"hello"
    await one.close()


async def test_a_stranger_stays_outside(closed: Closed) -> None:
    """NATS refuses a connection without a token, and the probe reports no anonymous access."""
    assert not await allows_anonymous(closed.url)
    async with await Raw.open(closed.url) as stranger:
        assert not stranger.welcome
        assert stranger.errors == ["-ERR 'Authorization Violation'"]


def _unsigned(claims: dict[str, object]) -> str:
    parts = [{"alg": "none", "typ": "JWT", "kid": "k1"}, claims]
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    )


def _signed(claims: dict[str, object]) -> str:
    return jwt.encode(claims, KEY.prepared, headers={"kid": "k1"})


_CLAIMS: dict[str, object] = {
    "aud": "lorogo", "sub": "ann", "exp": int(time.time()) + 600, "documents": {"*": "admin"}, "jti": "x",
}  # fmt: skip


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("garbage", id="garbage"),
        pytest.param("a.b.c", id="three parts"),
        pytest.param(_unsigned(_CLAIMS) + ".", id="alg none"),
        pytest.param(_unsigned(_CLAIMS) + ".AAAA", id="alg none with a signature"),
        pytest.param(mint({"*": "admin"}, key=OTHER_KEY), id="wrong key of the right name"),
        pytest.param(mint({"*": "admin"}, seconds=-3600), id="expired"),
        pytest.param(mint({"*": "admin"}, seconds=-2), id="expired just now"),
        pytest.param(_signed({**_CLAIMS, "aud": "else"}), id="other aud"),
        pytest.param(_signed({**_CLAIMS, "nbf": time.time() + 600}), id="early"),
        pytest.param(mint({"*": "admin"})[:-3], id="cut"),
        pytest.param(mint({"*": "admin"}) + "=", id="with something at its end"),
        pytest.param("x" * (TOKEN_BYTES_MAX + 1), id="too long"),
        pytest.param("x" * 3900, id="as long as CONNECT allows"),
        pytest.param("x" * 2**20, id="a mebibyte"),
        pytest.param("ä\u0000\u202e\ud7ff", id="odd characters"),
        pytest.param("a\r\nPUB loro.wal.d1 0\r\n\r\n", id="line ends"),
    ],
)  # fmt: skip
async def test_what_is_no_good_token_stays_outside(closed: Closed, token: str) -> None:
    """As auth_token and as a password alike; and afterwards a good one comes in as ever."""
    for options in ({"auth_token": token}, {"user": "d1", "pass": token}, {"user": "", "pass": token}):
        async with await Raw.open(closed.url, **options) as stranger:
            assert not stranger.welcome, options
    async with await closed.raw(mint({"d1": "read"})) as good:
        assert good.welcome


@pytest.mark.parametrize(
    "user",
    ["*", ">", "d1,*", "d1.x", "d1 ", " d1", "d1\r\nSUB > 1", "d1,", ",", ",d1", "-d1", "_kv_epoch",
     "d" * 129, "d1;d2", "d\u00e4", "loro.wal.d1", "d1,d2,>", "\u0000", "$SYS", "d1\n",
     ",".join(f"d{number}" for number in range(300))],
)  # fmt: skip
async def test_what_is_no_document_id_is_refused_as_a_whole(closed: Closed, user: str) -> None:
    """Also for an operator: wildcards, dots, spaces and line ends never reach the rights."""
    async with await Raw.open(closed.url, user=user, **{"pass": mint({"*": "admin"})}) as stranger:
        assert not stranger.welcome
    assert closed.callout.allowed == 0


async def test_ten_thousand_ids_do_not_fit_into_connect(closed: Closed) -> None:
    """NATS itself refuses such a line, without a call to the auth service."""
    user = ",".join(f"document-{number}" for number in range(10_000))
    async with await Raw.open(closed.url, user=user, **{"pass": mint({"*": "admin"})}) as stranger:
        assert not stranger.welcome
    assert closed.callout.denied == 0


async def test_one_document_that_is_not_granted_refuses_all(closed: Closed) -> None:
    """A connection has all that it named, or is not there."""
    token = mint({"minutes-*": "write", "d1": "read"})
    async with await closed.raw(token, "minutes-1", "d1") as good, await closed.raw(token, "d1", "d2") as bad:
        assert good.welcome
        assert not bad.welcome


async def test_as_many_documents_as_may_be_named(closed: Closed) -> None:
    """32 by a connection and not one more; by a token a hundred: so large an answer is taken."""
    names = [chr(97 + a) + chr(97 + b) for a in range(26) for b in range(26)]
    async with await closed.raw(mint({"*": "admin"}), *names[: TOKEN_DOCUMENTS_MAX + 1]) as more:
        assert not more.welcome
    for one in (
        await closed.raw(mint({"*": "admin"}), *names[:TOKEN_DOCUMENTS_MAX]),
        await closed.raw(mint(dict.fromkeys(names[:100], "admin"))),
    ):
        async with one:
            assert one.welcome
            one.publish("loro.awareness.aa", b"x")
            one.publish("loro.awareness.zz", b"x")
            await one.ping()
            assert len(one.errors) == 1
            assert "loro.awareness.zz" in one.errors[0]


async def test_a_token_in_two_places_is_refused(closed: Closed) -> None:
    """The auth service cannot know which of the two counts."""
    token = mint({"*": "admin"})
    async with await Raw.open(closed.url, auth_token=token, user="d1", **{"pass": token}) as stranger:
        assert not stranger.welcome


async def test_the_same_token_twice_at_once_is_fine(closed: Closed) -> None:
    """Two windows of one person."""
    token = mint({"d1": "write"})
    async with await closed.raw(token) as one, await closed.raw(token, "d1") as two:
        two.subscribe("loro.awareness.d1")
        await two.ping()
        one.publish("loro.awareness.d1", b"hello")
        await one.ping()
        assert await two.next_message() == ("loro.awareness.d1", b"hello")


async def test_the_name_of_a_service_is_no_way_in(closed: Closed) -> None:
    """A public key as a user name, an nkey without its signature, or with a wrong one: all refused."""
    keys = closed_config.public_keys(closed.seeds)
    token = mint({"*": "admin"})
    for name in (closed_config.SERVER, closed_config.AUTH, closed_config.SYSTEM):
        for options in (
            {"user": keys[name], "pass": token},
            {"user": keys[name], "pass": ""},
            {"nkey": keys[name]},
            {"nkey": keys[name], "sig": "A" * 86},
        ):
            async with await Raw.open(closed.url, **options) as stranger:
                # a key is a document id like any other: an operator who names it gets that document, no more
                if stranger.welcome:
                    assert options == {"user": keys[name], "pass": token}
                    stranger.publish("$JS.API.INFO", reply="_INBOX_x.1")
                    await stranger.ping()
                    assert len(stranger.errors) == 1
                else:
                    assert options != {"user": keys[name], "pass": token}


async def test_a_connection_ends_when_its_token_does(closed: Closed) -> None:
    """nats-server closes the connection, with the reason."""
    async with await closed.raw(mint({"d1": "write"}, seconds=2)) as one:
        assert one.welcome
        await one.until_ended()
        assert one.errors == ["-ERR 'User Authentication Expired'"]


async def test_a_revoked_token_is_thrown_out_and_stays_out(closed: Closed) -> None:
    """All its connections are closed, no other's; and it cannot come back."""
    bad, good = mint({"d1": "write"}, subject="mallory"), mint({"d1": "write"})
    async with (
        await closed.raw(bad) as one,
        await closed.raw(bad, "d1") as two,
        await closed.raw(good) as three,
    ):
        revoked = tokens.peek(bad)
        await list_of(closed.authority).revoke_token(revoked.token_id, revoked.expires)
        await one.until_ended()
        await two.until_ended()
        async with await closed.raw(bad) as again:
            assert not again.welcome
        await three.ping()
        assert three.welcome


async def test_all_tokens_of_a_subject_are_thrown_out(closed: Closed) -> None:
    """The revocation of a subject closes each of its connections."""
    first, second = mint({"d1": "write"}, subject="mallory"), mint({"*": "admin"}, subject="mallory")
    async with (
        await closed.raw(first) as one,
        await closed.raw(second) as two,
        await closed.raw(mint({"d1": "read"})) as three,
    ):
        await list_of(closed.authority).revoke_subject("mallory")
        await one.until_ended()
        await two.until_ended()
        await three.ping()
        assert three.welcome


async def test_a_key_that_is_gone_takes_its_tokens_along(closed: Closed) -> None:
    """Also where the new key has the old one's name."""
    old, new = mint({"d1": "write"}), mint({"d1": "write"}, key=OTHER_KEY)
    async with await closed.raw(old) as one:
        assert one.welcome
        await asyncio.to_thread(write_keys, closed.keys, OTHER_KEY)
        await one.until_ended()
        async with await closed.raw(new) as two, await closed.raw(old) as three:
            assert two.welcome
            assert not three.welcome


async def test_more_connections_than_one_page_are_all_closed(closed: Closed) -> None:
    """NATS lists connections in pages; a revocation goes through all of them."""
    bad, good = mint({"d1": "write"}), mint({"d1": "read"})
    many = [await closed.raw(bad) for _ in range(300)]
    try:
        async with await closed.raw(good) as other, await closed.raw(bad) as last:
            await list_of(closed.authority).revoke_token(tokens.peek(bad).token_id)
            for one in (*many, last):
                await one.until_ended()
            await other.ping()
            assert other.welcome
    finally:
        for one in many:
            await one.close()


async def test_refusals_are_logged_without_the_token_and_at_a_limited_rate(closed: Closed) -> None:
    """Each line has the reason and the address; the service counts a flood of refusals instead of logging
    each.
    """
    token = mint({"d1": "write"}, key=OTHER_KEY)
    with structlog.testing.capture_logs() as events:
        for _ in range(60):
            async with await closed.raw(token):
                pass
    logged = [event for event in events if event["event"] == "NATS connection refused"]
    assert 1 <= len(logged) < 40
    assert logged[0]["reason"] == "token-invalid"
    assert logged[0]["address"] == "127.0.0.1"
    assert not any(part in repr(events) for part in (token, token.split(".")[2], tokens.user_of(token)))
    assert closed.callout.denied == 60
