"""A damaged segment is fetched again from a replica, while everything else goes on."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from lorogo_log import CorruptionError, Log, Record
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica_repair import Repairer
from tests.log.replicas import OPTIONS, SEGMENT, copy_of, grow, hashes


def flip(file: Path, position: int) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(position)
        byte = damaged.read(1)
        damaged.seek(position)
        damaged.write(bytes([byte[0] ^ 0x10]))


def watched(path: Path, repairer: Repairer) -> Log:
    return Log.open(path, segment_bytes=SEGMENT, on_damage=repairer.damaged, forward=repairer.forward)


async def test_a_corrupt_segment_is_repaired_while_reads_go_on(tmp_path: Path) -> None:
    """Lookups into it are forwarded until it is whole again; the original is kept as `.broken`."""
    repairer = Repairer(retry_seconds=0.05)
    async with (
        watched(tmp_path / "log", repairer) as log,
        Coordinator(log, repairer=repairer) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        last = await grow(log, 100)
        await one.has(last, timeout=10)
        await coordinator.replicated(last, timeout=10)
        segment = log.segments()[2]
        assert segment.sealed
        good = (tmp_path / "log" / segment.name).read_bytes()
        before = {sequence: log.lookup(sequence) for sequence in range(1, last, 7)}
        stop = threading.Event()
        wrong: list[object] = []
        reads = [0]

        def read() -> None:
            rng = random.Random(1)
            while not stop.is_set():
                sequence = rng.choice(list(before))
                try:
                    if log.lookup(sequence) != before[sequence]:
                        wrong.append(sequence)
                except Exception as error:  # noqa: BLE001 - whatever it is, the reader saw it
                    wrong.append(error)
                reads[0] += 1

        reader = asyncio.create_task(asyncio.to_thread(read))
        flip(tmp_path / "log" / segment.name, 10_000)
        assert segment.last_sequence is not None
        for sequence in range(segment.first_sequence, segment.last_sequence + 1):
            assert (await asyncio.to_thread(log.lookup, sequence)).sequence == sequence
        assert await asyncio.to_thread(repairer.wait, 10)
        assert repairer.forwarded >= 1
        await grow(log, 5)
        stop.set()
        await reader
        assert not wrong
        assert reads[0] > 10
        assert (tmp_path / "log" / segment.name).read_bytes() == good
        assert [report.damage for report in await log.scrub() if report.damage] == []
        assert log.stats().damage == 0
        [repaired] = repairer.repaired
        assert repaired.broken is not None
        assert (tmp_path / "log" / repaired.broken).stat().st_size == len(good)


async def test_damage_found_by_a_scrub_or_at_open_is_repaired(tmp_path: Path) -> None:
    """Header, frame or trailer: whatever was hit, the file is byte for byte the replica's again."""
    async with Log.open(tmp_path / "log", segment_bytes=SEGMENT) as log:
        await grow(log, 80)
        async with Coordinator(log) as coordinator, copy_of(tmp_path / "one", coordinator.address) as one:
            await one.has(log.stats().durable_sequence, timeout=10)
    good = hashes(tmp_path / "log")
    names = sorted(good)
    flip(tmp_path / "log" / names[0], 20)
    flip(tmp_path / "log" / names[1], 30_000)
    repairer = Repairer(retry_seconds=0.05)
    async with (
        watched(tmp_path / "log", repairer) as log,
        Coordinator(log, repairer=repairer) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await one.caught_up(timeout=10)
        reports = await log.scrub()
        assert sum(bool(report.damage) for report in reports) >= 1
        assert await asyncio.to_thread(repairer.wait, 10)
        assert {name: hashes(tmp_path / "log")[name] for name in names} == good
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")
    assert not list((tmp_path / "one").glob("*.broken"))


async def test_a_replica_repairs_itself_from_its_coordinator(tmp_path: Path) -> None:
    """Damage on a replica is repaired the same way."""
    async with Log.open(tmp_path / "log", segment_bytes=SEGMENT) as log, Coordinator(log) as coordinator:
        last = await grow(log, 60)
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await one.has(last, timeout=10)
            name = log.segments()[1].name
            first = log.segments()[1].first_sequence
            flip(tmp_path / "one" / name, 3_000)
            for sequence in range(first, first + 40):
                record = await asyncio.to_thread(one.lookup, sequence)
                assert record == log.lookup(sequence)
            assert await one.repaired(timeout=10)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "log")


async def test_without_a_replica_damage_is_an_error_and_stays_known(tmp_path: Path) -> None:
    """Nobody to ask: the lookup raises, the segment waits, and the repair says why."""
    repairer = Repairer(retry_seconds=0.05)
    async with watched(tmp_path / "log", repairer) as log, Coordinator(log, repairer=repairer):
        await grow(log, 60)
        segment = log.segments()[0]
        flip(tmp_path / "log" / segment.name, 3_000)
        found: list[Record] = []
        with pytest.raises(CorruptionError):
            found.extend(log.lookup(sequence) for sequence in range(1, 60))
        assert repairer.pending() == [segment.name]
        assert not await asyncio.to_thread(repairer.wait, 0.2)
        assert "no replica is connected" in str(repairer.trouble)


async def test_a_replica_whose_copy_is_damaged_too_is_not_believed(tmp_path: Path) -> None:
    """Both copies damaged: nothing is replaced by something that does not check; a second replica helps."""
    repairer = Repairer(retry_seconds=0.05, timeout=5)
    async with (
        watched(tmp_path / "log", repairer) as log,
        Coordinator(log, repairer=repairer) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        last = await grow(log, 60)
        await one.has(last, timeout=10)
        segment = log.segments()[0]
        flip(tmp_path / "log" / segment.name, 3_000)
        flip(tmp_path / "one" / segment.name, 9_000)
        damaged = (tmp_path / "log" / segment.name).read_bytes()
        await log.scrub()
        assert not await asyncio.to_thread(repairer.wait, 0.5)
        assert (tmp_path / "log" / segment.name).read_bytes() == damaged
        assert not list((tmp_path / "log").glob("*.broken"))
    assert OPTIONS.segment_bytes == SEGMENT
