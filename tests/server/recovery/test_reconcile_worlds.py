"""Random losses, restarts and changes of owner: what was ACKed is there in the end, in every world."""

import os
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from loro import LoroDoc

from lorogo_protocol.loro import crdt
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryTransport
from tests.server.recovery.test_reconcile import SNAPSHOTS, STATUS, WAL, World, reconciled
from tests.server.support import Writer, until

SEEDS = range(int(os.environ.get("LOROGO_SEEDS", "12")))


class Saga:
    """Two workers that take turns, three documents, several hands, and a NATS that forgets."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.server: Server | None = None
        self.line: MemoryTransport | None = None
        self.acked: dict[str, LoroDoc] = {f"doc-{number}": LoroDoc() for number in range(3)}
        self.deleted: set[str] = set()

    async def serve(self) -> Server:
        """Another life of one of the workers; sometimes the pass at its start is all there is."""
        if self.server is not None:
            await self.server.stop()
        self.server, self.line = await self.world.server_and_line(worker=self.rng.randrange(2))
        return self.server

    async def write(self) -> None:
        """Some ACKed updates by a new hand, which saw what was ACKed before, or nothing of it."""
        name = self.rng.choice([name for name in self.acked if name not in self.deleted] or ["doc-0"])
        if name in self.deleted:
            return
        await self.world.probe.start(name)
        seen = crdt.Replica(self.acked[name]).snapshot() if self.rng.random() < 0.7 else b""
        writer = Writer(seen)
        for number in range(self.rng.randrange(1, 6)):
            update = writer.type(f"{number} ", at=0)
            if self.rng.random() < 0.2:
                parts = self.world.probe.split(update, size=20)
                await self.world.probe.put(name, parts)
                while (await self.world.probe.answer()).log_id != parts[0].log_id:
                    pass
            else:
                await self.world.probe.accept(name, update)
            self.acked[name].import_(update)

    async def compact(self) -> None:
        name = self.rng.choice(list(self.acked))
        await self.world.probe.start(name)
        if name not in self.deleted:
            await self.world.probe.call("compact", name)

    async def delete(self) -> None:
        if self.rng.random() < 0.3 and len(self.deleted) < 2:
            name = self.rng.choice([name for name in self.acked if name not in self.deleted])
            await self.world.probe.start(name)
            await self.world.probe.call("delete", name)
            self.deleted.add(name)

    async def lose(self) -> None:
        """NATS is stopped, damaged and started again; the server comes back after it."""
        assert self.server is not None
        await self.server.stop()
        self.server = None
        self._damage()
        await reconciled(await self.serve())

    async def lose_live(self) -> None:
        """The same while the server lives and has documents open."""
        assert self.server is not None and self.line is not None
        server = self.server
        before = int(str(server.stats()["reconcile_passes"]))
        self.line.cut()
        self._damage()
        self.line.heal()

        async def settled() -> bool:
            again = int(str(server.stats()["reconcile_passes"])) > before
            hosts = list(server.hosts.values())
            return again and not any(
                host.state.memory_is_only_copy or host.wal_messages is None for host in hosts
            )

        await until(settled)

    def _damage(self) -> None:
        store = self.world.nats.stores[WAL]
        state = store.state(0)
        match self.rng.randrange(5):
            case 0:
                first = self.rng.randint(1, state.last_sequence + 1)
                for sequence in range(first, first + self.rng.randrange(20)):
                    store.remove(sequence)
            case 1:
                self.world.nats.rewind(WAL, self.rng.randint(0, state.last_sequence))
            case 2:
                self.world.lose(WAL)
            case 3:
                self.world.lose(SNAPSHOTS)
            case _:
                self.world.lose(WAL, SNAPSHOTS, STATUS)
        self.world.nats.broker_id = str(self.rng.random())

    async def check(self) -> None:
        assert self.server is not None
        await reconciled(self.server)
        for name, expected in self.acked.items():
            loaded = await self.server.reconciler._repair.load(name)  # type: ignore[union-attr]
            if name in self.deleted:
                assert loaded.facts.deleted
            else:
                have = crdt.counters(loaded.intake.replica.version().vector)
                assert have == crdt.counters(expected.oplog_vv.encode()), name
                assert loaded.intake.replica.settled().get_text("body").to_string() == (
                    expected.get_text("body").to_string()
                )


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_was_acked_survives_any_loss(tmp_path: Path, seed: int) -> None:
    """After each loss and each change of owner every document holds what was ACKed, or is deleted."""
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        world = World(stack, tmp_path)
        await world.begin()
        saga = Saga(world, rng)
        await saga.serve()
        for _ in range(12):
            edits = [saga.write, saga.write, saga.write, saga.compact, saga.delete]
            await rng.choice([*edits, saga.lose, saga.lose_live, saga.serve])()
        await saga.lose()
        await saga.check()
