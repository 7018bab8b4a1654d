"""The disk of a simulated machine: what it keeps, what it may lose, and how it fails."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import lorogo_client
from lorogo_log import (
    BlockingLog,
    LockedError,
    Log,
    LogError,
    LogFailedError,
    LogOptions,
    Reader,
    Sync,
    TornError,
    read_file,
    replace_file,
)
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from lorogo_testing.process import SimulatedCrash, SimulatedProcess
from lorogo_testing.virtual_loop import SimLoop
from tests.simulation.disk import SimStorage

T = TypeVar("T")
SMALL = 4096


def run(main: Coroutine[Any, Any, T], seed: int = 1) -> T:
    loop = SimLoop(random.Random(seed))
    try:
        done = loop.run_until_complete(main)
        assert loop.uncaught == []
        return done
    finally:
        loop.close()


def values(disk: SimStorage) -> list[int]:
    found: list[int] = []
    with suppress(TornError):  # an end that was never acknowledged
        for batch in Reader.open("log", storage=disk).read():
            found += [record.value[0] for record in batch.records()]
    return found


class Life:
    """A process that appends until it dies, and the records reported as durable."""

    def __init__(self, disk: SimStorage, acked: set[int], seed: int) -> None:
        self._disk, self._acked = disk, acked
        rng, self._first = random.Random(seed), 1000 * seed
        self.process = SimulatedProcess("one", asyncio.get_running_loop(), rng)
        self.process.run(self._live(rng))

    async def _live(self, rng: random.Random) -> None:
        log = Log.open("log", storage=self._disk, segment_bytes=SMALL)
        await log.__aenter__()  # and never closes it
        for number in range(self._first, self._first + 60):
            sending = log.append_nowait([number, "x" * rng.randrange(900)])
            sending.add_done_callback(partial(self._report, number))
            if rng.random() < 0.3:
                await sending
            if rng.random() < 0.1:
                await log.rotate()

    def _report(self, number: int, done: "asyncio.Future[int]") -> None:
        if done.exception() is None:
            self._acked.add(number)

    def kill(self) -> None:
        self.process.kill()
        self._disk.let_go()

    def power_off(self) -> None:
        self.process.kill()
        self._disk.crash()


@pytest.mark.parametrize("seed", range(30))
def test_what_was_acknowledged_outlives_the_machine(seed: int) -> None:
    """Stopped at any moment, and within any call, again and again: all durable records are there."""

    async def main() -> int:
        rng = random.Random(seed)
        disk, acked, crashes = SimStorage(random.Random(seed)), set[int](), 0
        for life in range(8):
            one = Life(disk, acked, life)
            if rng.random() < 0.7:
                disk.stop_in(rng.randrange(1, 60), one.power_off)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
            crashes += not one.process.alive
            (one.power_off if rng.random() < 0.5 else one.kill)()
            one.process.discard_tasks()
            found = values(disk)
            assert acked <= set(found)
            assert len(found) == len(set(found))
        return crashes

    assert run(main()) > 0


def test_a_process_that_is_killed_leaves_what_it_had_written() -> None:
    """Unsynced writes are the operating system's: they outlive the process, and not always the machine."""

    async def main(seed: int, power: bool) -> list[int]:
        disk = SimStorage(random.Random(seed))
        log = Log.open("log", storage=disk, sync=Sync.os())
        await log.__aenter__()
        await log.append([1, ""])
        await log.append([2, "x" * 2000])
        (disk.crash if power else disk.let_go)()
        async with Log.open("log", storage=disk):
            return values(disk)

    assert [run(main(seed, power=False)) for seed in range(5)] == [[1, 2]] * 5
    assert [1] in [run(main(seed, power=True)) for seed in range(20)]


def test_locks_and_open_files_go_with_the_process() -> None:
    """A process has the lock until it ends; writes of a dead process have no effect."""

    async def main() -> None:
        disk = SimStorage(random.Random(1))
        log = BlockingLog("log", storage=disk)
        log.append([1, ""])
        with pytest.raises(LockedError):
            BlockingLog("log", storage=disk)
        disk.let_go()
        with pytest.raises(SimulatedCrash):
            log.append([2, ""])
        with pytest.raises(SimulatedCrash):
            log.close()
        with BlockingLog("log", storage=disk) as after:
            assert after.append([3, ""]) == 2
            log._unlock()  # of the dead one: not its lock any more
            with pytest.raises(LockedError):
                BlockingLog("log", storage=disk)
        assert values(disk) == [1, 3]

    run(main())


def test_what_waits_for_its_turn_dies_with_the_process() -> None:
    """A commit that was still to come is never made."""

    async def main() -> None:
        disk = SimStorage(random.Random(1))
        log = Log.open("log", storage=disk)
        await log.__aenter__()
        waiting = log.append_nowait([1, ""])
        disk.let_go()
        await asyncio.sleep(10)
        assert not waiting.done()
        assert values(disk) == []

    run(main())


@pytest.mark.parametrize("seed", range(12))
def test_a_full_disk_stops_the_log_and_loses_nothing(seed: int) -> None:
    """With room again the log opens, and goes on behind everything that was acknowledged."""

    async def main() -> str:
        disk, acked = SimStorage(random.Random(seed)), set[int]()
        problem = ""
        with suppress(LogError):
            async with Log.open("log", storage=disk, segment_bytes=SMALL) as log:
                for number in range(100):
                    if number == 5:
                        disk.fill()
                    try:
                        await log.append([number, "x" * 700])
                    except LogFailedError as error:
                        problem = str(error)
                        break
                    acked.add(number)
        assert disk.capacity is not None
        assert disk.used() <= disk.capacity
        disk.repair()
        async with Log.open("log", storage=disk, segment_bytes=SMALL) as log:
            await log.append([1000, ""])
        assert {*acked, 1000} <= set(values(disk))
        return problem

    assert any(words in run(main()) for words in ("No space left", "short write"))


@pytest.mark.parametrize("seed", range(20))
def test_a_bit_that_turned_is_found(seed: int) -> None:
    """The message names its segment, and a reader reports it or gives everything else unharmed."""

    async def main() -> None:
        disk = SimStorage(random.Random(seed))
        assert disk.flip_bit() is None
        log = BlockingLog("log", LogOptions(segment_bytes=SMALL), storage=disk)
        for number in range(20):
            log.append([number, "x" * 700])
        before = {name: bytes(inode.data) for name, inode in disk.folders["log"].folder.entries.items()}
        disk.let_go()
        words = disk.flip_bit()
        assert words is not None
        changed = [
            (name, sum(a != b for a, b in zip(before[name], inode.data, strict=True)))
            for name, inode in disk.folders["log"].folder.entries.items()
            if inode.data != before[name]
        ]
        assert [(name in words, count) for name, count in changed] == [(True, 1)]
        disk.crash()
        damage: list[LogError] = []
        with BlockingLog(
            "log", LogOptions(segment_bytes=SMALL), storage=disk, on_damage=damage.append
        ) as log:
            list(log.scrub())
            found = [record.value[0] for batch in log.read(damaged="skip") for record in batch.records()]
        assert damage or found == list(range(20))
        assert set(found) <= set(range(20))

    run(main())


def test_a_slow_disk_takes_its_time() -> None:
    """Commits are late by the given time, and on time again after the repair."""

    async def main() -> list[float]:
        disk, loop = SimStorage(random.Random(1)), asyncio.get_running_loop()
        took = []
        async with Log.open("log", storage=disk) as log:
            for slow in (0.0, 50.0, 0.0):
                disk.repair()
                if slow:
                    disk.slow(slow)
                begun = loop.time()
                for number in range(10):
                    await log.append([number, ""])
                took.append(loop.time() - begun)
        return took

    before, slow, after = run(main())
    assert max(before, after) < 1.0
    assert 10.0 < slow < 500.0


@pytest.mark.parametrize("call", range(1, 10))
def test_a_small_file_is_the_old_or_the_new_one(call: int) -> None:
    """Also when the machine stops within its replacement: no `except Exception` is between it and the end."""
    for seed in range(20):
        disk = SimStorage(random.Random(seed))
        directory = disk.directory("notes", create=True)
        replace_file(directory, "note", b"old" * 600)
        disk.stop_in(call, disk.crash)
        done = False
        with suppress(SimulatedCrash):
            replace_file(directory, "note", b"new" * 600)
            done = True
        assert done == (call > 5)
        if done:
            disk.crash()
        found = read_file(disk.directory("notes", create=False), "note")
        assert found in ({b"new" * 600} if done else {b"old" * 600, b"new" * 600})


def test_a_seed_gives_the_same_disk_again() -> None:
    """Names, bytes and times are the seed's alone."""

    async def main() -> tuple[float, dict[str, bytes]]:
        disk, acked = SimStorage(random.Random(5)), set[int]()
        for life in range(3):
            one = Life(disk, acked, life)
            disk.stop_in(40, one.power_off)
            await asyncio.sleep(0.2)
            one.kill()
            one.process.discard_tasks()
        entries = disk.folders["log"].folder.entries
        return disk.calls, {name: bytes(inode.data) for name, inode in entries.items()}

    first = run(main())
    assert first == run(main())
    assert first[0] > 100


def test_a_server_and_a_client_keep_everything_on_it(tmp_path: Path) -> None:
    """Ledger, checkpoint, witness and journal of a server, and the store of a client, come back from it."""
    data, store = tmp_path / "data", tmp_path / "store"

    async def main() -> None:
        nats, disk = MemoryNats(), SimStorage(random.Random(1))
        theirs = SimStorage(random.Random(2))
        async with Server(nats.connect("server"), data=data, storage=disk) as server:
            async with (
                lorogo_client.connect(nats.connect("one"), store=store, storage=theirs) as client,
                client.open("doc") as session,
            ):
                session.doc.get_text("t").insert(0, "hello")
                session.commit()
                await session.flush(10)
            assert server.reconciler is not None
            await server.reconciler.reconcile()
        names = set(disk.folders[str(data / "journal")].folder.durable)
        assert names == {"ledger", "epoch", "journals", "loads", "reconciled"}
        async with Server(nats.connect("again"), data=data, storage=disk) as server:
            assert server.journal is not None
            assert server.journal.covered("doc").position.sequence == 1
            assert server.reconciler is not None
            assert "doc" in server.reconciler.table.rows
            assert server.context.epochs.known.position.sequence == 1
        theirs.crash()
        away = nats.connect("away")
        away.cut()
        async with (
            lorogo_client.connect(away, store=store, storage=theirs) as client,
            client.open("doc") as session,
        ):
            assert session.doc.get_text("t").to_string() == "hello"

    run(main())
    assert list(tmp_path.iterdir()) == []
