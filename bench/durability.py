"""The cost of an ACK: `stream`, `journal`, and a NATS that syncs every message, in one run.

python bench/durability.py [--dir DIR] [--seconds 2] [--rounds 3] [--flights 1 64 256] [--documents 8]

Three stacks (nats-server and `lorogo serve`) run side by side on the same disk. They are measured one after
the other, in rounds, and the medians of the rounds are compared. An update is one keystroke. The updates in
flight are spread over the documents; each ACK releases the next update.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import nanoid
import uvloop
from loro import LoroDoc

from lorogo_client import Client, connect
from lorogo_protocol.messages import chunks, subjects
from lorogo_transport.nats.connection import JetStreamTransport
from lorogo_transport.nats.connection import connect as dial
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.ports import Message

_START_SECONDS = 20.0
_ACK_SECONDS = 30.0


class Typed:
    """A document of the typing client."""

    def __init__(self) -> None:
        self._doc = LoroDoc()
        self._text = self._doc.get_text("t")
        self._made: list[bytes] = []
        self._kept = self._doc.subscribe_local_update(self._keep)

    def key(self) -> bytes:
        """Type one key, and return its update."""
        self._text.insert(self._text.len_unicode, "x")
        self._doc.commit()
        return self._made.pop()

    def _keep(self, update: bytes) -> bool:
        self._made.append(bytes(update))
        return True


@dataclass
class Stack:
    """A nats-server with a document server, and a client that sends updates."""

    name: str
    durability: str
    sync_always: bool
    transport: JetStreamTransport | None = None
    inbox: str = ""
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    documents: dict[str, "Typed"] = field(default_factory=dict)

    async def start(self, folder: Path, stack: AsyncExitStack) -> None:
        nats = EmbeddedNats(folder / "nats", sync_always=self.sync_always)
        await stack.enter_async_context(nats)
        server = subprocess.Popen(  # noqa: ASYNC220  # starts at once
            [
                *(sys.executable, "-m", "lorogo_cli", "serve", "--nats", nats.url),
                *("--data", str(folder / "server"), "--durability", self.durability),
            ],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "LOROGO_OPEN": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(_end, server)
        self.transport = await dial(nats.url, name="bench")
        stack.push_async_callback(self.transport.close)
        self.inbox = self.transport.bus.new_inbox()
        await self.transport.bus.subscribe(f"{self.inbox}.*", self._on_reply)
        await self.transport.bus.barrier()

    async def open(self, names: list[str]) -> None:
        """Start the documents."""
        assert self.transport is not None
        async with connect(self.transport) as client:
            await asyncio.gather(*(self._open(client, name) for name in names))

    async def _open(self, client: Client, name: str) -> None:
        async with client.open(name, timeout=_START_SECONDS):
            pass
        self.documents[name] = Typed()

    def _on_reply(self, message: Message) -> None:
        future = self.waiting.pop(message.subject.rpartition(".")[2], None)
        if future is not None and not future.done():
            assert message.data == b"ACK", message
            future.set_result(None)

    async def load(self, flights: int, seconds: float) -> list[float]:
        """Return the latencies of ACKs with this many updates in flight."""
        latencies: list[float] = []
        end = time.perf_counter() + seconds
        names = list(self.documents)
        await asyncio.gather(*(self._type(names[n % len(names)], end, latencies) for n in range(flights)))
        return latencies

    async def _type(self, name: str, end: float, latencies: list[float]) -> None:
        assert self.transport is not None
        typed, bus, subject = self.documents[name], self.transport.bus, subjects.wal(name)
        loop = asyncio.get_running_loop()
        while (before := time.perf_counter()) < end:
            update = typed.key()
            log_id = str(nanoid.generate())
            (chunk,) = chunks.split(update, log_id, chunk_bytes_max=100_000, inbox=f"{self.inbox}.{log_id}")
            done = self.waiting[log_id] = loop.create_future()
            await bus.publish(subject, chunk.data, headers=chunk.headers())
            async with asyncio.timeout(_ACK_SECONDS):
                await done
            latencies.append(time.perf_counter() - before)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(30)


def _point(latencies: list[float], share: float) -> float:
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))] * 1000


async def run(folder: Path, seconds: float, rounds: int, flights: list[int], documents: int) -> int:
    stacks = [
        Stack("stream", "stream", sync_always=False),
        Stack("journal", "journal", sync_always=False),
        Stack("NATS syncs always", "stream", sync_always=True),
    ]
    rates: dict[tuple[str, int], list[float]] = {}
    middles: dict[tuple[str, int], list[float]] = {}
    tails: dict[tuple[str, int], list[float]] = {}
    async with AsyncExitStack() as exits:
        for number, stack in enumerate(stacks):
            await stack.start(folder / str(number), exits)
            await stack.open([f"doc-{n}" for n in range(documents)])
            await stack.load(min(flights), 0.3)  # warm
        for _ in range(rounds):
            for count in flights:
                for stack in stacks:
                    before = time.perf_counter()
                    latencies = await stack.load(count, seconds)
                    spent = time.perf_counter() - before
                    rates.setdefault((stack.name, count), []).append(len(latencies) / spent)
                    middles.setdefault((stack.name, count), []).append(_point(latencies, 0.5))
                    tails.setdefault((stack.name, count), []).append(_point(latencies, 0.99))
    print(f"{'in flight':>9}  {'durability':<18} {'updates/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for count in flights:
        for stack in stacks:
            key = (stack.name, count)
            rate, middle, tail = (statistics.median(of[key]) for of in (rates, middles, tails))
            print(f"{count:>9}  {stack.name:<18} {rate:>10,.0f} {middle:>8.2f} {tail:>8.2f}")
    failed = 0
    if 64 in flights:
        ratio = statistics.median(
            ours / theirs
            for ours, theirs in zip(rates["journal", 64], rates["NATS syncs always", 64], strict=True)
        )
        failed |= not _goal(
            "journal against NATS that syncs always, 64 in flight", ratio, 2.5, "x", at_least=True
        )
    for count in flights:
        late = statistics.median(
            ours - theirs
            for ours, theirs in zip(middles["journal", count], middles["stream", count], strict=True)
        )
        failed |= not _goal(
            f"journal later than stream at p50, {count} in flight", late, 1.0, " ms", at_least=False
        )
    return int(failed)


def _goal(what: str, figure: float, goal: float, unit: str, *, at_least: bool) -> bool:
    good = figure >= goal if at_least else figure <= goal
    sign = "at least" if at_least else "at most"
    print(f"{what}: {figure:.2f}{unit} (goal: {sign} {goal:g}{unit}): {'met' if good else 'MISSED'}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", default=None, help="on the disk to be measured; default: here")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--flights", type=int, nargs="+", default=[1, 64, 256])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="durability-", dir=options.dir or Path.cwd()))
    try:
        return uvloop.run(run(folder, options.seconds, options.rounds, options.flights, options.documents))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
