"""Limits of tokens at a whole gateway with authentication: each token has its own limits, from any
address.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import httpx
import pytest
from loro import LoroDoc
from websockets.exceptions import InvalidStatus

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, JoinErrorCode, Status
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.access import tokens
from lorogo_protocol.access.tokens import Token, user_of
from tests.client.support import eventually
from tests.gateway.http_support import problem
from tests.gateway.support import type_in
from tests.gateway.whole import whole

SETTINGS = GatewaySettings(port=0, close_seconds=1.0, burst_seconds=10.0)
STRICT = replace(SETTINGS, limit_loopback=True)
KEY = tokens.make_key("HS256", "k", b"x" * 32)


class Keys:
    """A verifier of tokens without revocations."""

    def __init__(self) -> None:
        self._keys = tokens.Keys([KEY])
        self.ready = True

    def verify(self, text: str) -> Token:
        return self._keys.verify(text, now=time.time())

    def is_valid(self, token: Token) -> bool:
        return token.expires > time.time()

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


def mint(subject: str) -> str:
    now, grants = time.time(), {"*": "write"}
    return tokens.mint(
        KEY, subject=subject, documents=grants, expires=now + 86_400, now=now, token_id=subject
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


ANN, BOB = bearer(mint("ann")), bearer(mint("bob"))


async def test_requests_of_a_token_have_their_own_rate() -> None:
    async with (
        whole(replace(SETTINGS, token_requests_per_second=0.5), Keys()) as served,
        served.http() as http,
    ):
        answers = [await http.get("/v1/session", headers=ANN) for _ in range(8)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert problem(answers[-1], 429, "rate-limited")["detail"]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await http.get("/v1/session", headers=BOB)).status_code == 200
        assert served.refused("token-requests") >= 1


async def test_bytes_of_a_token_have_their_own_rate() -> None:
    async with (
        whole(replace(SETTINGS, token_bytes_per_second=100.0), Keys()) as served,
        served.http() as http,
    ):
        assert (await http.put("/v1/documents/a", json={"t": "x" * 3000}, headers=ANN)).status_code == 201
        problem(await http.put("/v1/documents/b", json={"t": "x"}, headers=ANN), 429, "rate-limited")
        assert (await http.put("/v1/documents/b", json={"t": "x"}, headers=BOB)).status_code == 201
        assert served.refused("token-bytes") == 1


async def test_guessing_tokens_is_slowed_for_its_address_alone() -> None:
    """Above the limit of bad tokens, the gateway refuses unknown tokens of that address for a while, but
    serves known tokens and requests without a token.
    """
    settings = replace(SETTINGS, auth_failures_per_minute=4.5, trusted_proxies=("127.0.0.1",))
    async with whole(settings, Keys()) as served, served.http() as http:
        here, there = {"X-Forwarded-For": "198.51.100.1"}, {"X-Forwarded-For": "198.51.100.2"}
        assert (await http.get("/v1/session", headers={**BOB, **there})).status_code == 200
        found = [
            await http.get("/v1/session", headers={**bearer(f"a.b.{number}"), **here}) for number in range(10)
        ]
        assert [answer.status_code for answer in found[:5]] == [401] * 5
        problem(found[-1], 429, "rate-limited")
        assert int(found[-1].headers["retry-after"]) > 30
        problem(await http.get("/v1/session", headers={**ANN, **here}), 429, "rate-limited")
        assert (await http.get("/v1/session", headers={**BOB, **here})).status_code == 200
        async with served.peer(**BOB, **here) as known:
            assert await known.quiet() == []
        body = {"token": "a.b.c"}
        problem(await http.post("/v1/session", json=body, headers=here), 429, "rate-limited")
        assert (await http.get("/healthz", headers=here)).status_code == 200
        assert (await http.get("/v1/session", headers={**ANN, **there})).status_code == 200
        with pytest.raises(InvalidStatus) as caught:
            async with served.peer(**bearer(mint("eve")), **here):
                pytest.fail("it was let in")
        assert caught.value.response.status_code == 429
        assert served.refused("auth-failures") >= 3


@pytest.mark.parametrize("way", ["sign in", "handshake", "join"])
async def test_every_kind_of_sign_in_counts_bad_tokens(way: str) -> None:
    settings = replace(STRICT, auth_failures_per_minute=0.5)
    async with whole(settings, Keys()) as served, served.http() as http:
        for number in range(2):
            if way == "sign in":
                answer = await http.post("/v1/session", json={"token": f"a.b.{number}"})
                assert answer.status_code == 401
            elif way == "handshake":
                async with served.peer(**bearer(f"a.b.{number}")) as one:
                    assert (await one.closed())[0] == 4401
            else:
                async with served.peer() as one:
                    await one.send(frames.JoinRequest(Crdt.LORO, "doc", f"a.b.{number}".encode(), b""))
                    await one.take(frames.JoinError)
        problem(await http.get("/v1/session", headers=ANN), 429, "rate-limited")
        async with served.peer() as late:
            await late.send(frames.JoinRequest(Crdt.LORO, "doc", mint("ann").encode(), b""))
            assert (await late.closed())[0] == 1013


async def test_a_neighbour_s_guesses_end_no_room_and_keep_no_known_token_out() -> None:
    """Whichever token of its connection it was; and who has shown a good one may bring a fresh one."""
    settings = replace(STRICT, auth_failures_per_minute=2.5)
    async with whole(settings, Keys()) as served, served.http() as http, served.peer() as one:
        first, second, fresh = mint("ann"), mint("ann-b"), mint("ann-fresh")
        await one.join("a", auth=first)
        await one.join("b", auth=second)
        for number in range(4):
            await http.get("/v1/session", headers=bearer(f"a.b.{number}"))
        problem(await http.get("/v1/session", headers=bearer(mint("eve"))), 429, "rate-limited")
        await one.join("b", auth=second)
        await one.join("c", auth=fresh)
        assert await one.save(type_in(LoroDoc(), "x"), room="a") is Status.OK
        for known in (first, second, fresh):
            async with served.peer() as again:
                await again.join("b", auth=known)
        async with served.peer() as stranger:
            await stranger.send(frames.JoinRequest(Crdt.LORO, "a", mint("new").encode(), b""))
            assert (await stranger.closed())[0] == 1013


async def test_guesses_of_a_member_are_its_own() -> None:
    """Above the rate each is refused unseen, on all its connections; rooms stay, and so do its neighbours."""
    settings = replace(STRICT, auth_failures_per_minute=2.5)
    async with (
        whole(settings, Keys()) as served,
        served.http() as http,
        served.peer() as one,
        served.peer() as two,
    ):
        ann = mint("ann")
        for peer in (one, two):
            await peer.join("a", auth=ann)
        for number in range(4):
            assert (await one.join_error("b", auth=f"a.b.{number}")).error is JoinErrorCode.AUTH_FAILED
        for peer in (one, two):
            no = await peer.join_error("b", auth=mint("ann-fresh"))
            assert (no.error, no.message.partition(":")[0]) == (JoinErrorCode.AUTH_FAILED, "rate-limited")
            assert "try again in 60 s" in no.message
            await peer.join("a", auth=ann)
            assert await peer.save(type_in(LoroDoc(), "x"), room="a") is Status.OK
        assert served.refused("auth-failures") == 2
        assert (await http.get("/v1/session", headers=BOB)).status_code == 200


async def test_a_client_without_a_token_gets_401_and_is_never_blocked() -> None:
    settings = replace(STRICT, auth_failures_per_minute=1.0)
    async with whole(settings, Keys()) as served, served.http() as http:
        for _ in range(5):
            assert (await http.get("/v1/documents")).status_code == 401
        assert (await http.get("/v1/session", headers=ANN)).status_code == 200


@pytest.mark.parametrize("when", ["handshake", "join"])
async def test_connections_and_documents_of_a_token_add_up(when: str) -> None:
    settings = replace(SETTINGS, token_connections_max=2, token_documents_max=2)
    first = mint("ann")
    headers, auth = (bearer(first), b"") if when == "handshake" else ({}, first.encode())
    async with (
        whole(settings, Keys()) as served,
        served.peer(**headers) as one,
        served.peer(**headers) as two,
        served.peer(**BOB) as bob,
    ):
        for peer, room in ((one, "a"), (two, "b")):
            await peer.send(frames.JoinRequest(Crdt.LORO, room, auth, b""))
            await peer.take(frames.JoinOk)
        await two.send(frames.JoinRequest(Crdt.LORO, "c", auth, b""))
        assert (await two.take(frames.JoinError)).app_code == "too_many_documents"
        async with served.peer(**headers) as three:
            if when == "join":
                await three.send(frames.JoinRequest(Crdt.LORO, "a", auth, b""))
            assert (await three.closed())[0] == 1013
        await bob.join("c")
        assert served.refused("token-connections") == 1
        await two.socket.close()
        await eventually(lambda: served.gateway.sockets.stats()["connections"] == 2)
        async with served.peer(**headers) as again:
            await again.send(frames.JoinRequest(Crdt.LORO, "c", auth, b""))
            await again.take(frames.JoinOk)


async def test_updates_of_a_token_add_up_over_its_connections() -> None:
    settings = replace(SETTINGS, token_updates_per_second=0.2, burst_seconds=20.0)
    async with (
        whole(settings, Keys()) as served,
        served.peer(**ANN) as one,
        served.peer(**ANN) as two,
        served.peer(**BOB) as bob,
    ):
        docs = {peer: LoroDoc() for peer in (one, two, bob)}
        for peer in docs:
            await peer.join()
        found: list[Status] = []
        while Status.RATE_LIMITED not in found:
            peer = (one, two)[len(found) % 2]
            found.append(await peer.save(type_in(docs[peer], "x")))
        assert 4 <= len(found) <= 6
        assert await bob.save(type_in(docs[bob], "y")) is Status.OK


async def test_feeds_of_a_token_have_a_bound() -> None:
    """The limit of one token does not affect the feeds of another; a feed that ends frees its place."""
    async with whole(replace(SETTINGS, token_feeds_max=2), Keys()) as served, served.http() as http:
        async with AsyncExitStack() as held:
            for _ in range(2):
                feed = await held.enter_async_context(http.stream("GET", "/v1/feed", headers=ANN))
                assert feed.status_code == 200
            refused = await http.get("/v1/feed", headers=ANN)
            assert "2 open feeds, the limit" in problem(refused, 429, "rate-limited")["detail"]
            assert int(refused.headers["retry-after"]) >= 1
            assert served.refused("token-feeds") == 1
            assert served.gateway.feeds.open == 2
            async with http.stream("GET", "/v1/feed", headers=BOB) as feed:
                assert feed.status_code == 200
            bad = await http.get("/v1/feed?since=never", headers=BOB)
            assert bad.status_code == 400
        await eventually(lambda: served.gateway.feeds.open == 0)
        for _ in range(3):
            assert (await http.get("/v1/feed?since=lf1-AAAA", headers=ANN)).status_code == 400
        async with http.stream("GET", "/v1/feed", headers=ANN) as feed:
            assert feed.status_code == 200


async def test_feeds_without_tokens_are_counted_by_address() -> None:
    settings = replace(STRICT, token_feeds_max=1, trusted_proxies=("127.0.0.1",))
    async with whole(settings) as served, served.http() as http:
        here, there = {"X-Forwarded-For": "198.51.100.1"}, {"X-Forwarded-For": "198.51.100.2"}
        async with http.stream("GET", "/v1/feed", headers=here) as feed:
            assert feed.status_code == 200
            problem(await http.get("/v1/feed", headers=here), 429, "rate-limited")
            async with http.stream("GET", "/v1/feed", headers=there) as other:
                assert other.status_code == 200


@pytest.mark.parametrize("way", ["sign in", "metrics", "readyz"])
async def test_a_token_that_was_good_anywhere_is_not_shut_out_by_a_neighbour(way: str) -> None:
    """Wherever it was verified; one that was never seen has to wait, in a body, too."""
    token, new = mint("ann"), mint("eve")
    async with whole(replace(STRICT, auth_failures_per_minute=2.5), Keys()) as served, served.http() as http:

        async def sign_in(text: str) -> httpx.Response:
            answer = await http.post("/v1/session", json={"token": text})
            http.cookies.clear()
            return answer

        if way == "sign in":
            assert (await sign_in(token)).status_code == 200
        else:  # good, and no operator's
            status = {"metrics": 403, "readyz": 200}[way]
            assert (await http.get(f"/{way}", headers=bearer(token))).status_code == status
        for number in range(10):
            await http.get("/v1/session", headers=bearer(f"a.b.{number}"))
        problem(await http.get("/v1/session", headers=bearer(new)), 429, "rate-limited")
        problem(await sign_in(new), 429, "rate-limited")
        assert (await http.get("/v1/session", headers=bearer(token))).status_code == 200
        assert (await sign_in(token)).status_code == 200


async def test_bodies_of_a_token_leave_room_for_others() -> None:
    """Bodies that never end hold its own part alone; those of many tokens leave room for small ones."""
    most = 300_000
    settings = replace(SETTINGS, body_bytes_max=most, bodies_bytes_max=4 * most, token_bodies_bytes_max=most)
    kind = {"Content-Type": "application/octet-stream"}
    async with whole(settings, Keys()) as served, served.http() as http, AsyncExitStack() as lines:
        counts = served.gateway.limiter._token_bodies
        tokens_of = {subject: mint(subject) for subject in ("ann", "cid", "dan", "eve")}

        def held(subject: str) -> bool:
            return counts.of(user_of(tokens_of[subject])) == most - 1

        async def begin(subject: str) -> asyncio.StreamReader:
            """A body of which all but the last byte comes."""
            reader, writer = await lines.enter_async_context(served.line())
            head = f"PUT /v1/documents/{subject} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {most}\r\n"
            more = {**bearer(tokens_of[subject]), **kind}
            head += "".join(f"{name}: {value}\r\n" for name, value in more.items())
            writer.write(head.encode() + b"\r\n" + bytes(most - 1))
            return reader

        await begin("ann")
        await eventually(lambda: held("ann"))
        mine = bearer(tokens_of["ann"])
        second = await http.put("/v1/documents/b", content=bytes(100), headers={**mine, **kind})
        problem(second, 429, "rate-limited")
        assert served.refused("token-bodies") == 1
        assert (await http.put("/v1/documents/c", json={"t": "x"}, headers=BOB)).status_code == 201
        for subject in ("cid", "dan"):
            await begin(subject)
        await eventually(lambda: held("cid") and held("dan"))
        late = await begin("eve")
        assert b" 503 " in await late.readline()
        assert (await http.put("/v1/documents/d", json={"t": "x"}, headers=BOB)).status_code == 201
        await lines.aclose()
        await eventually(lambda: len(counts) == 0)
        assert (await http.put("/v1/documents/e", json={"t": "x"}, headers=mine)).status_code == 201
