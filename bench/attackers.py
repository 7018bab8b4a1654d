"""Attacks on a gateway, each bounded; each returns the sent requests and their answers.

They use plain sockets, because a client library follows the protocol.
"""

import asyncio
import itertools
import json
import random
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from loro import ExportMode, LoroDoc

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, Status

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Held = Callable[[], Awaitable[None]]  # called when everything is open at once

_PATIENCE_SECONDS = 60.0
_AT_ONCE = 200  # being opened
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Target:
    """The gateway, and a token that is valid there."""

    port: int
    token: str


def head(target: Target, path: str, *lines: str, method: str = "GET", token: str | None = None) -> bytes:
    """Return the head of a request with that token, from a separate address."""
    bearer = target.token if token is None else token
    number = next(_numbers)
    address = f"198.18.{number // 250 % 250}.{number % 250}"
    whole = (f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Forwarded-For: {address}")
    return "\r\n".join((*whole, f"Authorization: Bearer {bearer}", *lines, "", "")).encode()


def upgrade(target: Target) -> bytes:
    """Return the head of a WebSocket request."""
    return head(
        target,
        "/ws",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )


def masked(payload: bytes, kind: int = 0x82) -> bytes:
    """Return a client's frame; its mask is all zeros."""
    size = len(payload)
    if size < 126:
        return bytes((kind, 0x80 | size)) + bytes(4) + payload
    if size < 1 << 16:
        return bytes((kind, 0xFE)) + size.to_bytes(2, "big") + bytes(4) + payload
    return bytes((kind, 0xFF)) + size.to_bytes(8, "big") + bytes(4) + payload


@asynccontextmanager
async def lines(
    target: Target, count: int, *, deaf: bool = False, first: Callable[[int], bytes] | None = None
) -> AsyncIterator[list[Line]]:
    """Open connections, with tiny receive buffers if `deaf`; all are closed afterwards."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def dial(number: int) -> Line:
        line = socket.socket()
        line.setblocking(False)
        if deaf:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with turn:
            await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", target.port))
            made = await asyncio.open_connection(sock=line, limit=1 << 20)
            made[1].write(b"" if first is None else first(number))
            return made

    made = await asyncio.gather(*(dial(number) for number in range(count)))
    try:
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()


async def status(reader: asyncio.StreamReader) -> str:
    """Read the next response; return its status, or "cut off" if there is none."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            response = await reader.readuntil(b"\r\n\r\n")
            for line in response.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
    except (asyncio.IncompleteReadError, ConnectionError):
        return "cut off"
    except TimeoutError:
        return "no answer"
    return response[9:12].decode()


async def ended(reader: asyncio.StreamReader) -> str:
    """Return how the gateway ends a connection that sends nothing valid."""
    response = b""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while part := await reader.read(65_536):
                response += part[:20]
    except ConnectionError:
        pass
    except TimeoutError:
        return "never ended"
    return (
        response[9:12].decode()
        if response.startswith(b"HTTP/1.1 ") and response[9:12] != b"101"
        else "cut off"
    )


async def frame(reader: asyncio.StreamReader) -> bytes | int:
    """Return the gateway's next message, or the code if it closes. Raises IncompleteReadError."""
    while True:
        kind, size = await reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await reader.readexactly(8), "big")
        data = await reader.readexactly(size)
        if kind == 0x82:
            return data
        if kind == 0x88:
            return int.from_bytes(data[:2], "big")


async def page(target: Target, path: str) -> str:
    """Return the body of a page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    writer.write(head(target, path, "Connection: close"))
    response = (await reader.read()).decode()
    writer.close()
    return response


async def refused(target: Target, reason: str) -> int:
    """Return how often the gateway has refused with this reason."""
    found = re.search(rf'refused_total{{reason="{reason}"}} ([0-9]+)', await page(target, "/metrics"))
    return int(found[1]) if found else 0


def counted(found: Iterable[str]) -> str:
    """Return counts as text: `5000 x 200, 3 x cut off`."""
    return ", ".join(f"{number} x {what}" for what, number in Counter(found).most_common())


async def crowd(target: Target, held: Held) -> str:
    """Open 10,000 connections at once, half of them WebSockets, and 100 more than the limit."""

    def asked(number: int) -> bytes:
        return upgrade(target) if number % 2 else head(target, "/healthz")

    async with lines(target, 10_000, first=asked) as made:
        found = await asyncio.gather(*(status(reader) for reader, _ in made))
        async with lines(target, 100, first=asked) as more:
            found += await asyncio.gather(*(status(reader) for reader, _ in more))
        await held()
        return counted(found)


async def slow(target: Target, held: Held) -> str:
    """Send hundreds of heads, bodies, upgrades and frames without their second half."""
    halves = (
        head(target, "/healthz")[:-2],
        head(target, "/v1/documents/a", "Content-Length: 9\r\nContent-Type: application/json", method="PUT"),
        upgrade(target)[:-2],
        upgrade(target) + b"\x82\xfe\xff",
    )
    async with lines(target, 1_200) as made:
        for place, (_, writer) in enumerate(made):
            writer.write(halves[place % len(halves)])
        ends = asyncio.gather(*(ended(reader) for reader, _ in made))
        await held()
        return counted(await ends)


async def deaf(target: Target, held: Held) -> str:
    """Send requests with large responses, and do not read them."""
    before = await refused(target, "slow-reader")
    async with lines(target, 30, deaf=True) as made:
        for _, writer in made:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's has it
            writer.write(head(target, "/v1/documents/large") * 8)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                most = before + len(made)
                while await refused(target, "slow-reader") < most:  # noqa: ASYNC110  # another process counts
                    await asyncio.sleep(0.5)
        await held()
        for _, writer in made:
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        return counted(await asyncio.gather(*(ended(reader) for reader, _ in made)))


async def guess(target: Target, held: Held) -> str:
    """Send thousands of bad tokens from three addresses."""
    chance = random.Random(1)
    found = []
    async with lines(target, 30) as made:
        for _ in range(100):
            for place, (_, writer) in enumerate(made):
                token = f"eyJhbGciOiJIUzI1NiJ9.{chance.randbytes(60).hex()}.{chance.randbytes(32).hex()}"
                text = head(target, "/v1/documents", token=token).decode()
                start, end = text.index("198.18."), text.index("\r\nAuthorization")
                writer.write((text[:start] + f"203.0.113.{place % 3}" + text[end:]).encode())
            found += await asyncio.gather(*(status(reader) for reader, _ in made))
        await held()
    return counted(found)


async def too_much(target: Target, held: Held) -> str:
    """Send heads, bodies, JSON, patches and frames above their limits."""
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    patch = json.dumps([{"op": "test", "path": "/t", "value": 1}] * 20_000).encode()
    kind = "Content-Type: application/json"
    asked = (
        head(target, "/" + "x" * 100_000),
        head(target, "/v1/documents/a", kind, "Content-Length: 99999999", method="PUT"),
        head(target, "/v1/documents/a", kind, f"Content-Length: {len(deep)}", method="PUT") + deep,
        head(target, "/v1/documents/a", kind, f"Content-Length: {len(patch)}", method="PATCH") + patch,
        upgrade(target),
    )
    found: list[str] = []
    for _ in range(5):
        async with lines(target, 50) as made:
            for place, (_, writer) in enumerate(made):
                writer.write(asked[place % len(asked)])
            found += await asyncio.gather(*(_verdict(*line) for line in made))
            await held()
    return counted(found)


async def _verdict(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    response = await status(reader)
    if response != "101":
        return response
    writer.write(masked(bytes(300_000)))
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while isinstance(answer := await frame(reader), bytes):
                pass
            return f"close {answer}"
    return "cut off"


@asynccontextmanager
async def sockets(target: Target, count: int) -> AsyncIterator[list[Line]]:
    """Open WebSockets."""
    async with lines(target, count) as made:
        for reader, writer in made:
            writer.write(upgrade(target))
            assert await status(reader) == "101"
        yield made


async def joins(target: Target, held: Held) -> str:
    """Send JoinRequests for a hundred rooms on each of forty connections."""
    found: list[str] = []

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        for room in range(100):
            request = frames.JoinRequest(Crdt.PERSISTED, f"room-{number}-{room}", b"", b"")
            writer.write(masked(frames.encode(request)))
        for _ in range(100):
            answer = await frame(reader)
            if isinstance(answer, int):
                found.append(f"close {answer}")
                return
            message = frames.decode(answer)
            found.append(str(message.app_code) if isinstance(message, frames.JoinError) else "joined")

    async with sockets(target, 40) as made:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.gather(*(join(*line, number) for number, line in enumerate(made)))
        await held()
    return counted(found)


async def updates(target: Target, held: Held) -> str:
    """Send updates as fast as possible, on twenty connections of one token."""
    found: list[str] = []

    async def write(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(masked(frames.encode(frames.JoinRequest(Crdt.LORO, "flood", b"", b""))))
        while not isinstance(first := await frame(reader), bytes) or frames.decode(first).room != "flood":
            pass
        batches = set()
        for at, payload in enumerate(_edits(number, 150)):
            batch = bytes((number, *at.to_bytes(7, "big")))
            batches.add(batch)
            writer.write(masked(frames.encode(frames.DocUpdate(Crdt.LORO, "flood", (payload,), batch))))
        with suppress(TimeoutError):
            while batches:
                async with asyncio.timeout(
                    3.0
                ):  # after a refusal, a client gets no answers until it joins again
                    answer = await frame(reader)
                if isinstance(answer, int):
                    found.append(f"close {answer}")
                    return
                message = frames.decode(answer)
                if isinstance(message, frames.AckFrame) and message.ref in batches:
                    batches.discard(message.ref)
                    found.append("Ack ok" if message.status is Status.OK else message.status.name.lower())
                elif isinstance(message, frames.RoomError):
                    found.append("asked to join again")
                    return

    async with sockets(target, 20) as made:
        await asyncio.gather(*(write(*line, number) for number, line in enumerate(made)))
        await held()
    return counted(found)


def _edits(seed: int, count: int) -> list[bytes]:
    doc = LoroDoc()
    doc.peer_id = 1_000 + seed + 100 * next(_numbers)
    made = []
    for _ in range(count):
        before = doc.oplog_vv
        doc.get_text("t").insert(0, "x" * 50)
        doc.commit()
        made.append(bytes(doc.export(ExportMode.Updates(before))))
    return made


ATTACKS: dict[str, Callable[[Target, Held], Awaitable[str]]] = {
    "10,000 connections, then 100 more": crowd,
    "1,200 halves of requests and frames": slow,
    "30 readers that never read": deaf,
    "3,000 bad tokens from 3 addresses": guess,
    "250 oversized heads, bodies, frames": too_much,
    "4,000 joins": joins,
    "3,000 updates of one token": updates,
}
