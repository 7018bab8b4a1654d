"""Ten thousand frames of nonsense at the gateway's socket: it lives, stays small, and serves others."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from loro import LoroDoc
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import servers
from tests.gateway.processes import GatewayProcess

pytestmark = [pytest.mark.nats, pytest.mark.slow]

FRAMES = 10_000
THROWERS = 16
GOOD = 0.4  # of the frames are what a client might send
WARM_UP_FRAMES = 4_000
GROWTH_BYTES_MAX = 8 << 20
_LISTEN_SECONDS = 0.002  # for an answer, before the next is thrown
ROOM = b"garbage"
MAGICS = (b"%LOR", b"%EPH", b"%EPS", b"%YJS", b"%ELO", b"%XXX")
CLOSES = {
    1002,
    1003,
    1007,
    1008,
    1009,
    4400,
    4429,
    1013,
}  # with a reason of the protocol's; never 1011 or 1006


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def var_bytes(data: bytes) -> bytes:
    return varint(len(data)) + data


def frame(magic: bytes, room: bytes, kind: int, payload: bytes) -> bytes:
    return magic + var_bytes(room) + bytes([kind]) + payload


def join(magic: bytes = b"%LOR", room: bytes = ROOM, version: bytes = b"") -> bytes:
    return frame(magic, room, 0, var_bytes(b"") + var_bytes(version))


def update(payload: bytes, batch: bytes = bytes(8), magic: bytes = b"%LOR") -> bytes:
    return frame(magic, ROOM, 3, varint(1) + var_bytes(payload) + batch)


class Typed:
    """A document that returns the update of each edit."""

    def __init__(self) -> None:
        self._doc = LoroDoc()
        self._made: list[bytes] = []
        self._kept = self._doc.subscribe_local_update(self._keep)

    def update(self, number: int) -> bytes:
        self._doc.get_map("m").insert("n", number)
        self._doc.commit()
        return self._made.pop()

    def _keep(self, update: bytes) -> bool:
        self._made.append(bytes(update))
        return True


def good(rng: random.Random, real: bytes) -> bytes:
    """A frame that a client might send."""
    magic, batch = rng.choice(MAGICS), rng.randbytes(8)
    return rng.choice(
        [
            join(magic, rng.choice([ROOM, b"other", b"a b", b"x" * 200])),
            join(b"%LOR", ROOM, rng.randbytes(rng.randrange(40))),
            update(real, batch, magic),
            update(rng.randbytes(rng.randrange(300)), batch, magic),
            frame(magic, ROOM, 4, batch + varint(rng.randrange(1 << 20)) + varint(rng.randrange(1 << 40))),
            frame(magic, ROOM, 5, batch + varint(rng.randrange(100)) + var_bytes(rng.randbytes(50))),
            frame(magic, ROOM, 7, b""),
            frame(magic, ROOM, 8, batch + bytes([rng.randrange(9)])),
            frame(magic, ROOM, rng.choice([1, 2, 6, 9, 0x7F, 0xFF]), rng.randbytes(20)),
        ]
    )


def bad(rng: random.Random, real: bytes) -> bytes | str:
    """One that is broken in some way."""
    whole = bytearray(good(rng, real))
    match rng.randrange(10):
        case 0:
            return b""
        case 1:
            return rng.randbytes(1)
        case 2:
            return rng.randbytes(rng.randrange(2, 600))
        case 3:
            return b"%LOR" + b"\xff" * rng.randrange(1, 64)  # a varint without an end
        case 4:
            return b"%LOR" + varint(1 << rng.choice([20, 31, 32, 53, 63, 64, 200])) + rng.randbytes(8)
        case 5:
            claim = varint(1 << rng.choice([16, 31, 63]))
            return frame(b"%LOR", ROOM, 3, rng.choice([claim, varint(1) + claim, claim + claim]))
        case 6:
            return rng.choice(["", "pong!", "ping ", "{}", "x" * 1000, "\u0000", "Ä" * 50])
        case 7:
            return bytes(whole[: rng.randrange(len(whole))])
        case 8:
            for _ in range(rng.randrange(1, 4)):
                whole[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            return bytes(whole)
        case _:
            return bytes(whole) + rng.randbytes(rng.randrange(1, 9))


def frames(seed: int, count: int) -> Iterator[bytes | str]:
    """Some good, more that are not; the same for the same seed."""
    rng, real = random.Random(seed), Typed().update(1)
    for _ in range(count):
        yield good(rng, real) if rng.random() < GOOD else bad(rng, real)


class Thrower:
    """Sends frames; when its connection is closed it takes a new one."""

    def __init__(self, url: str, seed: int, count: int) -> None:
        self._url = url
        self._frames = frames(seed, count)
        self._line: ClientConnection | None = None
        self.sent = 0
        self.connections = 0
        self.codes: dict[int, int] = {}

    async def run(self) -> None:
        for one in self._frames:
            while not await self._thrown(one):
                pass
        if self._line is not None:
            await self._line.close()

    async def _thrown(self, one: bytes | str) -> bool:
        """Send one message; return False if the connection was already closed."""
        if self._line is None:
            self._line = await connect(self._url, compression=None, ping_interval=None, max_size=None)
            self.connections += 1
        sent = False
        try:
            await self._line.send(one)
            sent = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_LISTEN_SECONDS):
                    while True:
                        await self._line.recv()
        except ConnectionClosed as closed:
            code = 1006 if closed.rcvd is None else closed.rcvd.code
            self.codes[code] = self.codes.get(code, 0) + 1
            self._line = None
        self.sent += sent
        return sent


async def throw(url: str, count: int, *, first_seed: int) -> list[Thrower]:
    """So many frames, by several at once."""
    throwers = [Thrower(url, first_seed + number, count // THROWERS) for number in range(THROWERS)]
    async with asyncio.TaskGroup() as group:
        for thrower in throwers:
            group.create_task(thrower.run())
    return throwers


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[GatewayProcess]:
    async with EmbeddedNats(folder / "nats") as nats, servers(nats.url) as start:
        await start()
        found = GatewayProcess(nats.url)
        await found.start()
        try:
            yield found
        finally:
            await found.kill()


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


async def serve_a_client(url: str, until: asyncio.Event) -> list[float]:
    """One well-behaved client: returns the time from each edit to its ACK."""
    typed, took = Typed(), []
    async with connect(url, compression=None, max_size=None) as line:
        await line.send(join(room=b"calm"))
        assert (await line.recv())[:10] == frame(b"%LOR", b"calm", 1, b"")
        number = 0
        while not until.is_set():
            batch, before = number.to_bytes(8, "big"), time.perf_counter()
            await line.send(frame(b"%LOR", b"calm", 3, varint(1) + var_bytes(typed.update(number)) + batch))
            wanted = frame(b"%LOR", b"calm", 8, batch + b"\0")
            async with asyncio.timeout(20):
                while await line.recv() != wanted:
                    pass
            took.append(time.perf_counter() - before)
            number += 1
    return took


@pytest.mark.deep
async def test_ten_thousand_broken_frames_change_nothing(tmp_path: Path) -> None:
    """The process survives, its memory does not grow, and a well-behaved client is served all the time."""
    async with gateway(tmp_path) as found:
        url = found.websocket
        await throw(url, WARM_UP_FRAMES, first_seed=1000)  # what is allocated once is there
        before = resident_bytes(found.pid)
        done = asyncio.Event()
        calm = asyncio.create_task(serve_a_client(url, done))
        start = time.perf_counter()
        throwers = await throw(url, FRAMES, first_seed=0)
        seconds = time.perf_counter() - start
        done.set()
        took = sorted(await calm)
        after = resident_bytes(found.pid)
        codes: dict[int, int] = {}
        for thrower in throwers:
            for code, count in thrower.codes.items():
                codes[code] = codes.get(code, 0) + count
        sent = sum(thrower.sent for thrower in throwers)
        connections = sum(thrower.connections for thrower in throwers)
        print(  # noqa: T201 - figures for people who run it with -s
            f"\n{sent} frames in {seconds:.1f} s over {connections} connections, "
            f"closed with {dict(sorted(codes.items()))}; resident {before / 2**20:.1f} MiB before, "
            f"{after / 2**20:.1f} MiB after; {len(took)} edits Acked meanwhile, median "
            f"{took[len(took) // 2] * 1000:.1f} ms, slowest {took[-1] * 1000:.0f} ms"
        )
        assert found.alive
        assert sent == FRAMES
        assert len(took) > 10
        assert codes
        assert set(codes) <= CLOSES, codes
        assert after - before < GROWTH_BYTES_MAX
