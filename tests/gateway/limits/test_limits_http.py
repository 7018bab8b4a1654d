"""Limits of addresses at a whole gateway: the responses above a limit, and other addresses that stay
unaffected.
"""

import asyncio
import socket
from dataclasses import replace

import httpx
import pytest

from lorogo_gateway.server import listener
from lorogo_gateway.settings import GatewaySettings
from tests.client.support import DEADLINE, eventually
from tests.gateway.http_support import problem
from tests.gateway.whole import rest, whole

SETTINGS = GatewaySettings(port=0, close_seconds=1.0, burst_seconds=10.0, limit_loopback=True)
PROXY = replace(SETTINGS, trusted_proxies=("127.0.0.1",))
OTHER = {"x-forwarded-for": "198.51.100.2"}


def limited(response: httpx.Response) -> int:
    """It is a 429 as it should be; after how many seconds to come again."""
    problem(response, 429, "rate-limited")
    return int(response.headers["retry-after"])


async def test_requests_above_the_rate_of_an_address_get_429_and_a_time() -> None:
    """Each counts in the metric; another address is not concerned."""
    async with whole(replace(PROXY, address_requests_per_second=0.5)) as served, served.http() as http:
        mine = {"x-forwarded-for": "203.0.113.9, 198.51.100.1"}  # the left one is made up
        answers = [await http.get("/healthz", headers=mine) for _ in range(8)]
        assert [answer.status_code for answer in answers][:5] == [200] * 5
        refused = [answer for answer in answers if answer.status_code != 200]
        assert {limited(answer) for answer in refused} <= {1, 2, 3}
        assert served.refused("address-requests") == len(refused) > 0
        page = (await http.get("/metrics", headers=OTHER)).text
        assert f'lorogo_gateway_refused_total{{reason="address-requests"}} {len(refused):.1f}' in page
        assert 'lorogo_gateway_refused_total{reason="token-joins"} 0.0' in page
        async with asyncio.timeout(DEADLINE):
            while (await http.get("/healthz", headers=mine)).status_code == 429:
                pass


async def test_who_is_no_proxy_that_we_trust_cannot_say_who_it_is() -> None:
    async with whole(replace(SETTINGS, address_requests_per_second=0.2)) as served, served.http() as http:
        answers = []
        for number in range(6):
            made_up = {"x-forwarded-for": f"198.51.100.{number}", "forwarded": f"for=198.51.100.{number}"}
            answers.append(await http.get("/healthz", headers=made_up))
        assert answers[0].status_code == 200
        limited(answers[-1])


async def test_a_body_that_was_begun_is_read_and_the_next_is_refused() -> None:
    async with whole(replace(PROXY, address_bytes_per_second=100.0)) as served, served.http() as http:
        mine = {"x-forwarded-for": "198.51.100.1"}
        assert (await http.put("/v1/documents/a", json={"t": "x" * 3000}, headers=mine)).status_code == 201
        assert limited(await http.put("/v1/documents/b", json={"t": "x"}, headers=mine)) >= 2
        assert (await http.get("/v1/documents/a", headers=mine)).status_code == 200  # has no body
        assert (await http.put("/v1/documents/b", json={"t": "x"}, headers=OTHER)).status_code == 201
        assert served.refused("address-bytes") == 1


async def test_connections_of_an_address_have_a_bound_that_websockets_share() -> None:
    """The gateway answers the next connection with 429 at once; a connection that ends frees its place."""
    async with whole(replace(SETTINGS, address_connections_max=2)) as served:
        async with served.peer() as one, served.line() as (_, _):
            assert await one.quiet() == []
            async with served.line() as (reader, writer):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = await rest(reader)
            assert said.startswith(b"HTTP/1.1 429 ")
            assert b"Retry-After: 5" in said
            assert b'"code":"rate-limited"' in said
            assert served.refused("address-connections") == 1
        async with asyncio.timeout(DEADLINE):
            while True:
                async with served.http() as http:
                    if (await http.get("/healthz")).status_code == 200:
                        break


async def test_new_connections_of_an_address_have_a_rate() -> None:
    async with whole(replace(SETTINGS, address_connects_per_second=0.3)) as served:
        said = []
        for _ in range(6):
            async with served.line() as (reader, writer):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                said.append((await rest(reader))[9:12])
        assert said[:3] == [b"200"] * 3
        assert b"429" in said
        assert served.refused("address-connects") == said.count(b"429")


async def test_websockets_behind_a_proxy_count_for_their_own_address() -> None:
    async with whole(replace(PROXY, address_connections_max=1)) as served:
        mine = {"X-Forwarded-For": "198.51.100.1"}
        async with served.peer(**mine) as one:
            assert await one.quiet() == []
            async with served.peer(**mine) as two:
                assert (await two.closed())[0] == 1013
            async with served.peer(**{"X-Forwarded-For": "198.51.100.2"}) as three:
                assert await three.quiet() == []
        await eventually(lambda: served.gateway.sockets.stats()["connections"] == 0)
        async with served.peer(**mine) as again:
            assert await again.quiet() == []


async def test_one_connection_too_many_of_all_is_counted() -> None:
    async with whole(replace(SETTINGS, connections_max=1)) as served:
        async with served.line() as (_, _), served.line() as (reader, _):
            assert await rest(reader) == b""
        assert served.refused("connections") == 1


async def test_the_scheme_is_what_a_trusted_proxy_says() -> None:
    settings = replace(PROXY, hsts_seconds=60.0)
    async with whole(settings) as served, served.http() as http:
        secure = {"x-forwarded-for": "198.51.100.1", "x-forwarded-proto": "https"}
        assert "strict-transport-security" in (await http.get("/healthz", headers=secure)).headers
        plain = {**secure, "x-forwarded-proto": "http"}
        assert "strict-transport-security" not in (await http.get("/healthz", headers=plain)).headers


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/v1/documents", "/v1/none", "/none", "/ws"])
async def test_every_answer_has_the_headers_that_keep_pages_safe(path: str) -> None:
    async with whole(SETTINGS) as served, served.http() as http:
        headers = (await http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "script-src 'self' 'wasm-unsafe-eval'" in policy or "default-src 'none'" in policy
        assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
        assert "strict-transport-security" not in headers


@pytest.mark.parametrize("first", ["the feed", "the connection"])
async def test_a_feed_whose_reader_takes_nothing_ends_with_a_reason(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind what it left unread stands why; it is counted once, whichever of us noticed."""
    feed, line = (0.2, 30.0) if first == "the feed" else (30.0, 0.2)
    settings = replace(SETTINGS, feed_stall_seconds=feed, stall_seconds=line, close_seconds=DEADLINE)
    monkeypatch.setattr(listener, "_bind", _bind_small)
    async with whole(settings) as served, served.http() as http:
        assert (await http.put("/v1/documents/doc", json={"t": "x"})).status_code == 201
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", served.port))
            await loop.sock_sendall(slow, b"GET /v1/feed?since=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            number = 0
            async with asyncio.timeout(4 * DEADLINE):
                while not served.refused("feed-stalled"):
                    patch = [{"op": "replace", "path": "/t", "value": f"{number}"}]
                    assert (await http.patch("/v1/documents/doc", json=patch)).status_code == 200
                    number += 1
            said = b""
            async with asyncio.timeout(DEADLINE):
                while part := await loop.sock_recv(slow, 1_000_000):
                    said += part
        assert said.endswith(b"0\r\n\r\n")
        assert b'event: ended\ndata: {"code":"slow-reader"' in said[-300:]
        assert served.refused("feed-stalled") == 1
        assert served.refused("slow-reader") == 0
        await eventually(lambda: served.gateway.feeds.open == 0)


_bind = listener._bind  # its sockets get buffers that fill soon


def _bind_small(host: str, port: int) -> socket.socket:
    made = _bind(host, port)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return made
