"""Small worlds by seed: appends, restarts, fences, cleaning, compression in any order; equal in the end."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

import pytest

from lorogo_log import Log, Reader, Record
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from tests.log.replicas import SEGMENT, copy_of

STEPS = 40
MOVES = ["append"] * 4 + ["start", "start", "stop", "restart", "fence", "rotate", "clean", "large"]


class World:
    """One coordinator and up to two replicas."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.compress = seed % 2 == 0
        self.cleans = seed % 3 == 0
        self.replicas: dict[str, LogReplica] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    async def open(self) -> None:
        self.log = Log.open(self.path / "log", segment_bytes=SEGMENT, compress=self.compress)
        await self.log.__aenter__()
        queue_bytes = self.rng.choice([5_000, 100_000, 1 << 20])
        self.coordinator = Coordinator(self.log, port=self.port, queue_bytes=queue_bytes, head_seconds=0.05)
        await self.coordinator.__aenter__()

    async def close(self) -> None:
        await self.coordinator.close()
        await self.log.close()

    async def start(self, name: str) -> None:
        if name not in self.replicas:
            bound = self.rng.choice([None, 8_000])
            replica = copy_of(self.path / name, ("127.0.0.1", self.port), buffer_bytes=bound, name=name)
            await replica.__aenter__()
            self.replicas[name] = replica

    async def step(self) -> None:
        rng, log = self.rng, self.log
        match rng.choice(MOVES):
            case "append":
                for _ in range(rng.randrange(1, 20)):
                    size = rng.choice([10, 300, 3000])
                    count = rng.randrange(1, 30)
                    await log.append_many([(b"k%d" % rng.randrange(9), rng.randbytes(size))] * count)
            case "large":
                await log.append(rng.randbytes(200_000))
            case "start":
                await self.start(rng.choice("ab"))
            case "stop" if self.replicas:
                await self.replicas.pop(rng.choice(sorted(self.replicas))).close()
            case "restart":
                await self.close()
                await self.open()
            case "fence":
                await log.fence(log.stats().epoch + rng.randrange(2))
            case "rotate":
                await log.rotate()
            case "clean" if self.cleans:
                await log.clean(lambda _, record: record.key == b"k3")
        await asyncio.sleep(0)


def records(path: Path, *, without: bytes = b"") -> list[Record]:
    return [
        record
        for batch in Reader.open(path).read()
        for record in batch.records()
        if not without or record.key != without
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_replicas_end_with_the_same_records(tmp_path: Path, seed: int) -> None:
    """Every record with its sequence, time, key and payload; what was cleaned on one side may be there."""
    world = World(tmp_path, seed)
    await world.open()
    for _ in range(STEPS):
        await world.step()
    await world.start("a")
    await world.start("b")
    last = await world.log.append("the end")
    await world.coordinator.replicated(last, count=2, timeout=30)
    for replica in world.replicas.values():
        await replica.close()
    await world.close()
    without = b"k3" if world.cleans else b""
    expected = records(tmp_path / "log", without=without)
    assert expected[-1].sequence == last
    assert records(tmp_path / "a", without=without) == expected
    assert records(tmp_path / "b", without=without) == expected
