"""Too much, too deep, too slow, never ending: each is answered or cut off, and a neighbour notices nothing.

`make abuse` does the same by the thousand, against processes.
"""

import asyncio
import gc
import json
import os
import socket
from contextlib import suppress
from dataclasses import replace

import pytest

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.limits import PATCH_OPERATIONS_MAX
from tests.client.support import DEADLINE, eventually
from tests.gateway.http_support import problem
from tests.gateway.whole import Whole, neighbour, rest, whole

SETTINGS = GatewaySettings(
    port=0,
    close_seconds=0.5,
    body_bytes_max=2_000_000,
    bodies_bytes_max=64_000_000,
    head_bytes_max=16_384,
    fragment_seconds=0.3,
    rooms_max=8,
)
QUICK = replace(SETTINGS, head_seconds=0.3, idle_seconds=0.3, stall_seconds=0.3, call_seconds=0.3)
HEAD = b"GET /v1/documents HTTP/1.1\r\nHost: localhost\r\n"
PATCH = {"content-type": "application/json-patch+json"}
_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class TestOversized:
    @pytest.mark.parametrize(
        "head",
        [
            b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /v1/documents?prefix=" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            HEAD + b"X-A: " + b"x" * 40_000 + b"\r\n\r\n",
            HEAD + b"X-A: y\r\n" * 5_000 + b"\r\n",
            b"X" * 40_000 + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ],
        ids=["path", "query", "header", "many headers", "method"],
    )
    async def test_a_head_above_the_limit_is_431(self, head: bytes) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.line() as (reader, writer):
            writer.write(head)
            said = await rest(reader)
            assert said.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
            assert served.refused("head-bytes") == said.startswith(b"HTTP/1.1 431 ")
            assert said.startswith(b"HTTP/1.1 431 ") or not head.startswith(b"GET")

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/v1/documents/" + "x" * 10_000, 400),
            ("/v1/documents?prefix=" + "x" * 10_000, 400),
            ("/v1/documents?" + "&".join(f"p{n}=1" for n in range(1_000)), 400),
            ("/v1/documents?limit=" + "9" * 5_000, 400),
            ("/v1/" + "a/" * 5_000, 404),
            ("/" + "%00" * 1_000, 404),
            ("/v1/feed?since=" + "9" * 10_000, 400),
        ],
        ids=["id", "prefix", "parameters", "number", "depth", "nul", "since"],
    )
    async def test_a_long_address_within_it_is_answered(self, path: str, status: int) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.http() as http:
            assert (await http.get(path)).status_code == status

    @pytest.mark.parametrize("chunked", [False, True])
    async def test_a_body_above_the_limit_is_413_while_it_comes(self, chunked: bool) -> None:
        async with whole(SETTINGS) as served, neighbour(served):
            length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 999999999999"
            part = b"10000\r\n" + bytes(65_536) + b"\r\n" if chunked else bytes(65_536)
            loop, sent = asyncio.get_running_loop(), 0
            with socket.socket() as line:
                line.setblocking(False)
                await loop.sock_connect(line, ("127.0.0.1", served.port))
                await loop.sock_sendall(line, b"PUT /v1/documents/a HTTP/1.1\r\nHost: localhost\r\n" + length)
                await loop.sock_sendall(line, b"\r\nContent-Type: application/octet-stream\r\n\r\n")
                with suppress(ConnectionError):
                    async with asyncio.timeout(DEADLINE):
                        while sent < 1_000:
                            await loop.sock_sendall(line, part)
                            sent += 1
                assert sent < 1_000
                assert (await loop.sock_recv(line, 1_000)).startswith(b"HTTP/1.1 413 ")
            assert served.refused("body-bytes") == 1

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"[" * 200_000, 400, "malformed-json"),
            (b"[" * 200_000 + b"]" * 200_000, 400, "malformed-json"),
            (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "malformed-json"),
            (b"[" + b"[]," * 200_000 + b"[]]", 413, "too-large"),
            (b'{"a":[' + b"1," * 300_000 + b"1]}", 413, "too-large"),
            (b'{"a": ' + b"9" * 1_000_000 + b"}", 422, "number-too-large"),
            (b'{"a": "' + b"\\ud800" * 100_000 + b'"}', 400, "malformed-json"),
            (b"\xff" * 1_000_000, 400, "malformed-json"),
        ],
        ids=["open", "nested lists", "nested maps", "lists", "numbers", "number", "surrogates", "no UTF-8"],
    )
    async def test_json_above_a_limit_is_refused(self, body: bytes, status: int, code: str) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.http() as http:
            kind = {"content-type": "application/json"}
            problem(await http.put("/v1/documents/a", content=body, headers=kind), status, code)

    async def test_json_that_is_deeper_than_documents_are_is_422(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.http() as http:
            deep: object = 1
            for _ in range(150):
                deep = {"a": deep}
            answer = await http.put("/v1/documents/a", json=deep)
            assert answer.status_code == 422, answer.text

    async def test_a_patch_of_a_hundred_thousand_operations_is_refused_whole(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.http() as http:
            assert (await http.put("/v1/documents/a", json={"t": "x"})).status_code == 201
            one = b'{"op":"add","path":"","value":{}}'.replace(b'""', b'"/m"', 1)
            body = b"[" + b",".join([one] * 20_000) + b"]"
            answer = await http.patch("/v1/documents/a", content=body, headers=PATCH)
            refusal = problem(answer, 400, "invalid-body")
            assert str(PATCH_OPERATIONS_MAX) in refusal["detail"]
            small = [{"op": "test", "path": "/t", "value": "x"}] * 100_000
            body = json.dumps(small, separators=(",", ":")).encode()
            answer = await http.patch("/v1/documents/a", content=body, headers=PATCH)
            assert answer.status_code == 413  # above this gateway's limit of a body
            assert (await http.get("/v1/documents/a")).json() == {"t": "x"}

    async def test_questions_that_would_take_long_are_refused(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.http() as http:
            assert (await http.put("/v1/documents/a", json={"m": {"a": 1}})).status_code == 201
            for path in ("$" + "[" * 500, "$." + "x" * 2_000, "$" + "[?@" * 300):
                answer = await http.get("/v1/documents/a", params={"path": path})
                assert answer.status_code in (400, 413, 422), answer.text[:200]
            answer = await http.get("/v1/documents/a?" + "&".join(["path=$.m"] * 200))
            assert answer.status_code in (400, 413, 422), answer.text[:200]

    async def test_a_frame_above_the_limit_closes_its_own_connection(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.peer() as one:
            await one.socket.send(os.urandom(1_000_000))
            assert (await one.closed())[0] == 1009

    async def test_a_thousand_rooms_are_some_and_a_thousand_refusals(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.peer() as one:
            for number in range(1_000):
                await one.send(frames.JoinRequest(Crdt.PERSISTED, f"r{number}", b"", b""))
            refused = [await one.take(frames.JoinError) for _ in range(1_000 - SETTINGS.rooms_max)]
            assert {error.app_code for error in refused} == {"too_many_rooms"}
            assert served.refused("rooms") == 1_000 - SETTINGS.rooms_max

    async def test_fragments_that_never_end_time_out(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.peer() as one:
            await one.join("a")
            refs = [number.to_bytes(8, "big") for number in range(1, 33)]
            for ref in refs:
                await one.send(frames.FragmentHeader(Crdt.LORO, "a", ref, 1_000, 1_000_000))
                await one.send(frames.Fragment(Crdt.LORO, "a", ref, 0, b"x" * 1_000))
            first = await one.take(frames.AckFrame)
            assert (first.ref in refs, first.status) == (True, Status.FRAGMENT_TIMEOUT)

    async def test_fragments_of_more_than_may_wait_are_refused(self) -> None:
        settings = replace(SETTINGS, fragments_bytes_max=1_000_000, fragment_seconds=30.0)
        async with whole(settings) as served, neighbour(served), served.peer() as one:
            await one.join("a")
            for number in range(20):
                ref = number.to_bytes(8, "big")
                await one.send(frames.FragmentHeader(Crdt.LORO, "a", ref, 10, 200_000))
            assert (await one.take(frames.AckFrame)).status is Status.RATE_LIMITED

    async def test_a_fragment_header_of_a_giant_is_refused_before_it_comes(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.peer() as one:
            await one.join("a")
            await one.send(frames.FragmentHeader(Crdt.LORO, "a", bytes(8), 1_000, 2**32 - 1))
            assert (await one.take(frames.AckFrame)).status is Status.PAYLOAD_TOO_LARGE

    async def test_what_was_refused_is_let_go_at_once(self) -> None:
        """Not when the garbage is next collected: by then many more would have come."""
        many = 20_011
        body = json.dumps([{"op": "test", "path": "/t", "value": 1}] * many).encode()
        async with whole(SETTINGS) as served, served.http() as http:
            gc.collect()
            gc.disable()
            try:
                for _ in range(5):
                    answer = await http.patch("/v1/documents/a", content=body, headers=PATCH)
                    problem(answer, 400, "invalid-body")
                kept = [one for one in gc.get_objects() if type(one) is list and len(one) == many]
                assert len(kept) <= 1  # the thread that read the last one may be on its way out
            finally:
                gc.enable()


class TestSlow:
    async def test_a_hundred_slow_heads_end_in_time(self) -> None:
        async with whole(QUICK) as served, neighbour(served) as other:
            lines = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(100)]
            for _, writer in lines:
                writer.write(HEAD + b"X-Slow: ")
            await other.is_served()
            said = await asyncio.gather(*(rest(reader) for reader, _ in lines))
            assert set(said) == {b""}
            assert served.refused("head-seconds") == 100
            for _, writer in lines:
                writer.close()

    async def test_a_body_that_does_not_come_is_408(self) -> None:
        async with whole(QUICK) as served, neighbour(served), served.line() as (reader, writer):
            writer.write(
                b"PUT /v1/documents/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
                b"Content-Type: application/json\r\n\r\n{"
            )
            assert (await rest(reader)).startswith(b"HTTP/1.1 408 ")
            assert served.refused("body-seconds") == 1

    async def test_half_an_upgrade_is_cut_off(self) -> None:
        async with whole(QUICK) as served, neighbour(served), served.line() as (reader, writer):
            writer.write(_UPGRADE[:-4])
            assert await rest(reader) == b""

    @pytest.mark.parametrize(
        "half", [b"", b"\x82", b"\x82\xfe\xff", b"\x82\xfe\x10\x00" + bytes(4) + b"x", b"\x02\x81" + bytes(5)]
    )
    async def test_half_a_frame_is_cut_off_when_pings_are_not_answered(self, half: bytes) -> None:
        """Nothing, half a head, half a body, a message whose end never comes."""
        settings = replace(SETTINGS, ping_seconds=0.2)
        async with whole(settings) as served, neighbour(served), served.line() as (reader, writer):
            writer.write(_UPGRADE)
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            writer.write(half)
            await rest(reader)
            await eventually(lambda: served.gateway.sockets.stats()["connections"] == 1)

    async def test_a_message_of_endless_parts_is_too_large(self) -> None:
        async with whole(SETTINGS) as served, neighbour(served), served.line() as (reader, writer):
            writer.write(_UPGRADE)
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            part = bytes((0x00, 0xFE)) + (60_000).to_bytes(2, "big") + bytes(60_004)
            sent = 0
            writer.write(bytes((0x02, 0x80)) + bytes(4))
            with suppress(ConnectionError):
                async with asyncio.timeout(DEADLINE):
                    while sent < 1_000 and not reader.at_eof():
                        writer.write(part)
                        await writer.drain()
                        sent += 1
            assert sent < 1_000

    async def test_readers_that_never_read_are_cut_off(self) -> None:
        settings = replace(SETTINGS, stall_seconds=0.3, bodies_bytes_max=256_000_000)
        async with whole(settings) as served, neighbour(served), served.http() as http:
            large = {"t": "x" * 1_500_000}
            assert (await http.put("/v1/documents/large", json=large)).status_code == 201
            lines = [_deaf(served) for _ in range(10)]
            try:
                loop = asyncio.get_running_loop()
                for line in lines:
                    ask = b"GET /v1/documents/large HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    await loop.sock_sendall(line, ask * 8)
                await eventually(lambda: served.refused("slow-reader") == 10)
            finally:
                for line in lines:
                    line.close()


def _deaf(served: Whole) -> socket.socket:
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", served.port))
    line.setblocking(False)
    return line
