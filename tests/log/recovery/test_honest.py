"""What a log says of itself is so: rotated is sealed, queues are bounded, cut is told, damage is kept."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    DamageError,
    Log,
    LogFailedError,
    MemoryStorage,
    QueueFullError,
    Reader,
    Storage,
    TornError,
    limits,
)


def values(reader: Reader) -> list[Any]:
    return [record.value for batch in reader.read(damaged="skip") for record in batch.records()]


def segments(storage: MemoryStorage) -> list[str]:
    return sorted(name for name in storage.directories["m"].files if name.endswith(".seg"))


def two_segments() -> tuple[MemoryStorage, dict[str, bytearray], str]:
    """A log with "a" in a sealed segment and ["b", "c"] in the newest."""
    storage = MemoryStorage()
    for rows in (["a"], ["b", "c"]):
        with BlockingLog("m", storage=storage) as log:
            log.append_many([(b"", row) for row in rows])
    return storage, storage.directories["m"].files, segments(storage)[-1]


# -- rotation --------------------------------------------------------------------------------------------


async def test_a_rotated_segment_is_sealed(path: str, storage: Storage) -> None:
    """When `rotate()` returns, the old segment is sealed and listed so: clean and expire see it."""
    async with Log.open(path, storage=storage) as log:
        for number in range(20):
            await log.append(number, ts=number)
            name = await log.rotate()
            assert [info.name for info in log.segments() if info.sealed][-1] == name
        assert (await log.clean(lambda _, record: record.value == 19)).dropped == 1
        assert len(await log.expire(before=1000)) == 19
        assert await log.rotate() is None


async def test_appends_go_on_while_a_rotated_segment_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing takes its time in the background; only who asked for the rotation waits for it."""
    async with Log.open("m", storage=MemoryStorage()) as log:
        await log.append(1)
        engine, go = log.core.writer.engine, threading.Event()
        seal = engine.seal

        def slow(segment: Any) -> None:
            assert go.wait(10)
            seal(segment)

        monkeypatch.setattr(engine, "seal", slow)
        rotation = asyncio.ensure_future(log.rotate())
        assert await asyncio.wait_for(log.append(2), 5) == 2
        again = asyncio.ensure_future(log.rotate())
        assert await asyncio.wait_for(log.append(3), 5) == 3
        assert not rotation.done() and not again.done()
        go.set()
        names = [await asyncio.wait_for(rotation, 5), await asyncio.wait_for(again, 5)]
        assert [info.name for info in log.segments() if info.sealed] == names


async def test_a_rotation_whose_seal_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a seal hears that the disk failed, as everybody does; also those that come later."""
    async with Log.open("m", storage=MemoryStorage()) as log:
        await log.append(1)

        def broken(_: Any) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(log.core.writer.engine, "seal", broken)
        for _ in range(2):
            with pytest.raises(LogFailedError, match="the disk is gone"):
                await asyncio.wait_for(log.rotate(), 5)
        log.core.writer.close()


async def test_orders_in_the_queue_are_bounded() -> None:
    """Rotations, fences and flushes that wait are at most QUEUE_COMMANDS; one more is refused at once."""
    async with Log.open("m", storage=MemoryStorage()) as log:
        go, held = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            assert go.wait(10)

        writer = log.core.writer
        first = writer.command(hold)
        assert held.wait(5)
        waiting = [writer.flush() for _ in range(limits.QUEUE_COMMANDS)]
        for order in (log.rotate, log.flush, lambda: log.fence(100)):
            with pytest.raises(QueueFullError, match="rotations, fences and flushes"):
                await order()
        go.set()
        for done in [first, *waiting]:
            await asyncio.wait_for(asyncio.wrap_future(done), 5)
        await asyncio.wait_for(log.flush(), 5)


# -- what recovery did is told ---------------------------------------------------------------------------


def test_a_torn_tail_that_was_cut_is_told() -> None:
    """`on_damage` hears of it as a TornError, `stats()` counts it, and it is no damage to be repaired."""
    storage, files, newest = two_segments()
    files[newest][files[newest].find(b"LGTRAIL1") :] = b"half a frame"
    told: list[DamageError] = []
    with BlockingLog("m", storage=storage, on_damage=told.append) as log:
        assert [type(found) for found in told] == [TornError] and told[0].path == f"m/{newest}"
        assert (log.stats().torn, log.stats().damage, log.damage) == (1, 0, [])
        assert values(log.reader) == ["a", "b", "c"]
    with BlockingLog("m", storage=storage, on_damage=told.append) as log:
        assert len(told) == 1 and log.stats().torn == 0


def test_a_listener_that_raises_leaves_nothing_open() -> None:
    """If `on_damage` raises while a log is opened, the log is closed again, and can be opened."""
    storage, files, newest = two_segments()
    files[newest][:] = b""

    def raises(_: DamageError) -> None:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        BlockingLog("m", storage=storage, on_damage=raises)
    with BlockingLog("m", storage=storage) as log:
        assert log.stats().damage == 1


# -- cleaning --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 128 + 20, 128 + 80 + 3])
def test_cleaning_goes_on_behind_a_damaged_segment(at: int) -> None:
    """A segment that cannot be read whole is reported and left as it is; the others are cleaned."""
    storage = MemoryStorage()
    told: list[DamageError] = []
    with BlockingLog("m", storage=storage, on_damage=told.append) as log:
        for number in range(3):
            log.append_many([(b"", [number, row]) for row in range(4)])
            log.rotate()
        name = segments(storage)[1]
        data = storage.directories["m"].files[name]
        data[at] ^= 1
        before = bytes(data)
        cleaned = log.clean(lambda _, record: record.value[1] < 2)
        assert (cleaned.dropped, len(cleaned.rewritten), cleaned.damaged) == (4, 2, (name,))
        assert [found.path for found in told] == [f"m/{name}"]
        assert bytes(data) == before

        def stops(_: str, __: object) -> bool:
            raise CorruptionError("elsewhere", 0, "an error of the function's own")

        with pytest.raises(CorruptionError, match="elsewhere"):
            log.clean(stops)
