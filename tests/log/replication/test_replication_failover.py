"""Three nodes that fail in any order: what was acknowledged is held, and no two histories are committed."""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lorogo_log import Log, Reader, Record, StaleEpochError
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from lorogo_log.replication.replica_repair import Repairer
from lorogo_log.storage.replica_state import TAKEOVER_STEP
from tests.log.replicas import SEGMENT, copy_of

NODES = ("a", "b", "c")
MOVES = [
    "append", "append", "append", "commit", "commit", "commit", "start", "start", "stop",
    "restart", "fail over", "fail over", "zombie", "lose", "truncate", "rot", "rot at the coordinator",
    "rotate", "fence",
]  # fmt: skip


class Cluster:
    """One coordinator, up to two replicas; a record is committed when one replica has it too.

    So any two nodes have every committed record, as long as no more than one of the three is harmed.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)
        self.leader = "a"
        self.replicas: dict[str, LogReplica] = {}
        #: nodes that lost something and have not caught up since
        self.harmed: set[str] = set()
        self.committed: dict[int, Record] = {}
        self.last = 0
        self.failovers = 0
        #: who may lead is decided elsewhere, by a lease: its epochs only rise
        self.lease = 0

    # -- life -------------------------------------------------------------------------------------

    async def lead(self, epoch: int | None = None) -> None:
        repairer = self.repairer = Repairer(retry_seconds=0.05, timeout=5)
        self.log = Log.open(
            self.path / self.leader,
            segment_bytes=SEGMENT // 8,
            epoch=epoch,
            on_damage=repairer.damaged,
            forward=repairer.forward,
        )
        await self.log.__aenter__()
        self.coordinator = Coordinator(self.log, head_seconds=0.02, repairer=repairer, timeout=5)
        await self.coordinator.__aenter__()
        self.last = self.log.stats().durable_sequence
        for replica in self.replicas.values():
            replica.follow(self.coordinator.address)

    async def resign(self) -> None:
        await self.coordinator.close()
        await self.log.close()

    async def start(self, name: str) -> None:
        if name != self.leader and name not in self.replicas:
            replica = copy_of(self.path / name, self.coordinator.address, name=name, audit_seconds=0.02)
            await replica.__aenter__()
            self.replicas[name] = replica
            if name in self.harmed:  # a sealed segment is believed by its footer until it is read
                await asyncio.to_thread(lambda: list(replica.core.scrub()))

    async def stop(self, name: str) -> None:
        replica = self.replicas.pop(name, None)
        if replica is not None:
            await replica.close()

    async def settle(self) -> None:
        """Everybody is there and has everything."""
        for name in NODES:
            await self.start(name)
        await self.commit(replicas=2)
        self.harmed.clear()

    # -- what is true -----------------------------------------------------------------------------

    async def commit(self, replicas: int = 1) -> None:
        """Append, wait, and look whether what was acknowledged is there."""
        await self.append()
        if len(self.replicas) < replicas:
            return
        await self.coordinator.wait(self.last, replicas=replicas, timeout=20)
        mine = records(self.path / self.leader)
        for sequence in range(1, self.last + 1):
            if sequence in mine:
                known = self.committed.setdefault(sequence, mine[sequence])
                assert known == mine[sequence], f"record {sequence} was committed as another one"
            else:
                assert sequence not in self.committed, f"record {sequence} was committed and is gone"
        for info in self.coordinator.replicas():
            if info.sequence >= self.last:
                theirs = records(self.path / info.name, upto=self.last)
                ours = {number: one for number, one in mine.items() if number <= self.last}
                assert theirs == ours, f"{info.name} acknowledged {info.sequence}"

    # -- moves ------------------------------------------------------------------------------------

    async def append(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            size = self.rng.choice([20, 300, 900])
            some = [(b"k", self.rng.randbytes(size)) for _ in range(self.rng.randrange(1, 6))]
            self.last = (await self.log.append_many(some))[-1]

    def _victim(self) -> str | None:
        """A stopped replica with several segments, while nobody else is harmed."""
        names = [name for name in NODES if name != self.leader and name not in self.replicas]
        names = [name for name in names if len(list((self.path / name).glob("*.seg"))) > 2]
        return self.rng.choice(names) if names and self.harmed <= set(names[:1]) else None

    def _segment(self, name: str) -> Path:
        return self.rng.choice(sorted((self.path / name).glob("*.seg"))[:-1])

    def _flip(self, file: Path) -> None:
        data = bytearray(file.read_bytes())
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        file.write_bytes(data)

    async def step(self, move: str) -> None:
        match move:
            case "append":
                await self.append()
            case "commit":
                await self.commit()
            case "start":
                await self.start(self.rng.choice(NODES))
            case "stop":
                await self.stop(self.rng.choice(NODES))
            case "rotate":
                await self.log.rotate()
            case "fence":
                await self.log.fence(self.log.stats().epoch + 1)
            case "restart":
                await self.resign()
                await self.lead()
            case "fail over" if not self.harmed:
                await self.fail_over()
            case "zombie" if self.failovers and not self.harmed:
                await self.zombie()
            case "lose" | "truncate" | "rot" if (name := self._victim()) is not None:
                self.harmed.add(name)
                file = self._segment(name)
                if move == "lose":
                    file.unlink()
                elif move == "truncate":
                    with file.open("r+b") as opened:
                        opened.truncate(self.rng.randrange(file.stat().st_size))
                else:
                    self._flip(file)
            case "rot at the coordinator" if not self.harmed and len(self.log.segments()) > 2:
                await self.settle()  # a copy of it must be somewhere
                sealed = [one.name for one in self.log.segments()[:-1] if one.sealed]
                if sealed:
                    self._flip(self.path / self.leader / self.rng.choice(sealed))
                    await self.log.scrub()
                    assert await asyncio.to_thread(self.repairer.wait, 10), str(self.repairer.trouble)

    async def fail_over(self) -> None:
        """The coordinator is gone, maybe with a tail that nobody has; the better of the others takes over."""
        others = [name for name in NODES if name != self.leader]
        for name in others:
            await self.start(name)
        for name in others:
            if self.rng.random() < 0.5:
                await self.stop(name)
        if self.rng.random() < 0.7:
            await self.append()
        await self.resign()
        standing: dict[str, tuple[int, int]] = {}
        for name in others:
            await self.start(name)  # only to see where it stands: there is no coordinator now
            stats = self.replicas[name].stats()
            standing[name] = (stats.log_epoch, stats.end_offset)
        epoch = self.lease = max(
            self.lease + TAKEOVER_STEP, *(self.replicas[one].next_epoch for one in others)
        )
        best = max(others, key=lambda name: standing[name])
        await self.stop(best)
        self.leader = best
        self.failovers += 1
        await self.lead(epoch)

    async def zombie(self) -> None:
        """A former coordinator does not know that it is one, and the others' replicas meet it."""
        others = [name for name in NODES if name != self.leader]
        await self.settle()
        name = self.rng.choice(others)
        await self.stop(name)
        third = next(one for one in others if one != name)
        # an epoch of its own making, below that of the one who leads: as after plain restarts
        with suppress(StaleEpochError):
            async with (
                Log.open(
                    self.path / name, segment_bytes=SEGMENT // 8, epoch=max(1, self.log.stats().epoch - 1)
                ) as log,
                Coordinator(log, head_seconds=0.02) as old,
            ):
                last = await log.append(b"nobody shall have this")
                self.replicas[third].follow(old.address)
                with suppress(TimeoutError, StaleEpochError):
                    await old.wait(last, timeout=0.1)
                    raise AssertionError("a zombie has committed something")
        self.replicas[third].follow(self.coordinator.address)

    async def end(self) -> None:
        """All are there again and have the same, with everything that was ever committed."""
        await self.settle()
        for name in list(self.replicas):
            await self.stop(name)
        await self.resign()
        first, *others = [records(self.path / name, upto=self.last) for name in NODES]
        assert all(other == first for other in others)
        assert first.keys() >= self.committed.keys()


def records(path: Path, upto: int = 1 << 62) -> dict[int, Record]:
    """What can be read from a directory, by somebody who can ask nobody else."""
    return {
        record.sequence: record
        for batch in Reader.open(path).read()
        for record in batch.records()
        if record.sequence <= upto
    }


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # a world that fails is slow: shrinking takes minutes
)
@given(moves=st.lists(st.sampled_from(MOVES), min_size=8, max_size=30), seed=st.integers(0, 1 << 16))
def test_what_is_committed_stays_and_what_is_acknowledged_is_held(moves: list[str], seed: int) -> None:
    """Damage, lost and cut files, failover with lost tails, returning coordinators: two promises hold.

    A replica that acknowledged a record has it and all before it, byte for byte, on its own disk. No record
    that was ever committed becomes another one.
    """

    async def live() -> None:
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(Path(folder), seed)
            await cluster.lead()
            await cluster.settle()
            for move in moves:
                await cluster.step(move)
            await cluster.end()

    asyncio.run(live())
