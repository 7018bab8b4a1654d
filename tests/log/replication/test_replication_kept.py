"""What a replica has acknowledged stays: through crashes, rot, lost files, and what others do to its disk."""

from __future__ import annotations

import asyncio
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

import lorogo_log.replication.replica_adopt as adopt_module
from lorogo_log import (
    BlockingLog,
    LockedError,
    Log,
    LogOptions,
    Reader,
    Record,
    RecoveryMode,
    Repairer,
    ReplicaError,
    TornError,
)
from lorogo_log.recovery import sealed_segments
from lorogo_log.replication.coordinator import Coordinator
from lorogo_log.replication.replica import LogReplica
from lorogo_log.storage.disk import DiskDirectory, write_all
from lorogo_log.transfer.segment_transfer import SegmentServer
from tests.log.replicas import copy_of
from tests.log.replication.test_replication_safety import segments, until


def sequences(path: Path) -> list[int]:
    """What can be read there."""
    return [record.sequence for batch in Reader.open(path).read(damaged="skip") for record in batch.records()]


def rot(file: Path, text: bytes) -> None:
    """Flip a bit of a record that holds this."""
    data = bytearray(file.read_bytes())
    data[data.index(text)] ^= 1
    file.write_bytes(data)


async def appended(log: Log, count: int = 10) -> int:
    """So many records, each in a frame of its own; the last sequence."""
    return [await log.append(f"record {number + 1};") for number in range(count)][-1]


async def begun(log: Log, coordinator: Coordinator, path: Path, count: int = 10) -> int:
    """A replica that has acknowledged some records and is closed; the last sequence."""
    async with copy_of(path, coordinator.address):
        last = await appended(log, count)
        await coordinator.wait(last, timeout=10)
    return last


# -- going on in a segment that was found -------------------------------------------------------------------


async def test_an_error_while_frames_are_copied_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails while a replica copies its last segment ends that try; every record stays."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await begun(log, coordinator, tmp_path / "one")
        real, calls = write_all, [0]

        def full(*arguments: object) -> int:
            calls[0] += 1
            if calls[0] == 4:
                raise OSError("no space is left")
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(adopt_module, "write_all", full)
        last = await log.append("more")
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
            assert calls[0] > 4
            assert one.failed is None
        assert sequences(tmp_path / "one") == list(range(1, last + 1))
        assert not list((tmp_path / "one").glob("*.broken"))


async def test_a_copy_that_was_not_finished_never_takes_the_segments_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a crash leaves of a copy of the last segment, the next open has all that was acknowledged."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await begun(log, coordinator, tmp_path / "one")
        seen: list[Path] = []
        real = write_all

        def copied(*arguments: object) -> int:
            at = tmp_path / f"crash-{len(seen)}"
            shutil.copytree(tmp_path / "one", at)
            seen.append(at)
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(adopt_module, "write_all", copied)
        more = await log.append("more")
        async with copy_of(tmp_path / "one", coordinator.address):
            await coordinator.wait(more, timeout=10)
    assert len(seen) > 10
    for crashed in seen:
        with BlockingLog(crashed) as found:
            assert not found.damage
            assert found.append("goes on") == last + 1
        assert sequences(crashed) == list(range(1, last + 2))


async def test_rot_in_a_replicas_last_segment_is_reported_and_fetched_again(tmp_path: Path) -> None:
    """Rot in a segment that is to go on is damage: it is fetched again, and the original is kept."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await begun(log, coordinator, tmp_path / "one")
        rot(segments(tmp_path / "one")[-1], b"record 4;")
        last = await log.append("more")
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            await coordinator.wait(last, timeout=10)
            assert one.failed is None
            assert one.lookup(4).value == "record 4;"
    assert sequences(tmp_path / "one") == list(range(1, last + 1))
    assert len(list((tmp_path / "one").glob("*.broken"))) == 1


@pytest.mark.parametrize("kept", [40, 100])
def test_a_prepared_file_never_replaces_the_segment_that_has_its_name(tmp_path: Path, kept: int) -> None:
    """Two files of one segment: the shorter one is put aside, told of, and kept."""
    with BlockingLog(tmp_path / "log") as log:
        for number in range(10):
            log.append(number)
    [file] = segments(tmp_path / "log")
    whole = file.read_bytes()
    short = whole[: 128 + kept * 4]
    (tmp_path / "log" / "prepared-3.new").write_bytes(short)
    with BlockingLog(tmp_path / "log") as log:
        assert [type(torn) for torn in log.torn] == [TornError]
        assert not log.damage
        assert log.stats().next_sequence == 11
    assert file.read_bytes() == whole
    assert [one.read_bytes() for one in (tmp_path / "log").glob("prepared*.broken")] == [short]


def test_a_prepared_file_that_holds_more_takes_the_name_and_the_other_is_kept(tmp_path: Path) -> None:
    """Two files of one segment: a whole one replaces a damaged one, which is kept as `.broken`."""
    with BlockingLog(tmp_path / "log") as log:
        for number in range(10):
            log.append(f"record {number + 1};")
    [file] = segments(tmp_path / "log")
    (tmp_path / "log" / "prepared-3.new").write_bytes(file.read_bytes())
    rot(file, b"record 4;")
    damaged = file.read_bytes()
    with BlockingLog(tmp_path / "log") as log:
        assert log.lookup(4).value == "record 4;"
    assert [one.read_bytes() for one in (tmp_path / "log").glob("*.broken")] == [damaged]


# -- the stream and its end ---------------------------------------------------------------------------------


async def test_a_queue_that_was_full_for_a_moment_does_not_end_the_stream(tmp_path: Path) -> None:
    """A coordinator that could not see the end of its log looks again: only a stopped log ends the stream."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log, head_seconds=0.1) as coordinator:
        await log.append("first")
        gate = threading.Event()
        log.core.writer.command(gate.wait)
        flushes = [asyncio.ensure_future(log.flush()) for _ in range(1024)]
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            try:
                await until(lambda: "cannot be read" in str(coordinator.stats().trouble))
            finally:
                gate.set()
            await asyncio.gather(*flushes)
            last = await appended(log, 5)
            await coordinator.wait(last, timeout=10)
            before = one.stats().streamed_bytes
            async with asyncio.timeout(10):
                while one.stats().streamed_bytes == before:
                    await coordinator.wait(await log.append("streamed"), timeout=10)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_close_that_was_cancelled_is_finished_by_the_next(tmp_path: Path, times: int) -> None:
    """Closing again after a cancelled close waits until lock, port and threads are given back."""
    async with Log.open(tmp_path / "log") as log:
        coordinator = Coordinator(log)
        await coordinator.__aenter__()
        one = copy_of(tmp_path / "one", coordinator.address)
        await one.__aenter__()
        await one.caught_up(10)
        addresses = [one.address, coordinator.address]
        for door in (one, coordinator):
            for _ in range(times):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await door.close()
            await door.close()
            await door.close()
        BlockingLog(tmp_path / "one").close()
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*address)


async def test_a_close_that_goes_on_still_holds_the_lock(tmp_path: Path) -> None:
    """Nobody opens a replica's directory before its close is done, cancelled or not."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        one = copy_of(tmp_path / "one", coordinator.address)
        await one.__aenter__()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await one.close()
        with pytest.raises(LockedError):
            DiskDirectory(tmp_path / "one").lock("append.lock", exclusive=True, wait_seconds=0)
        await one.close()
        DiskDirectory(tmp_path / "one").lock("append.lock", exclusive=True, wait_seconds=0).release()


# -- records that are missing inside a segment --------------------------------------------------------------


async def two_segments(log: Log, coordinator: Coordinator, path: Path) -> int:
    """A closed replica with a sealed segment of ten records and one behind it; the last sequence."""
    async with copy_of(path, coordinator.address):
        await appended(log)
        await log.rotate()
        last = await log.append("next")
        await coordinator.wait(last, timeout=10)
    return last


async def test_a_replica_does_not_salvage(tmp_path: Path) -> None:
    """A replica refuses to salvage: it would keep less than its coordinator has."""
    with pytest.raises(ValueError, match="does not salvage"):
        async with LogReplica(
            tmp_path / "one", ("127.0.0.1", 9), options=LogOptions(recovery=RecoveryMode.SALVAGE)
        ):
            pass


async def test_a_replica_does_not_clean(tmp_path: Path) -> None:
    """A replica refuses to clean: what it dropped would be missing and acknowledged."""
    async with (
        Log.open(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await coordinator.wait(await log.append(1), timeout=10)
        with pytest.raises(ReplicaError, match="clean at its coordinator"):
            one.core.clean(lambda path, record: True)


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("how", ["cleaned", "salvaged"])
async def test_records_that_a_replica_lacks_inside_a_segment_are_fetched_again(
    tmp_path: Path, how: str, newest: bool
) -> None:
    """Whatever took records out of a replica's segment: they come back before anything is acknowledged."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        if newest:
            last = await begun(log, coordinator, tmp_path / "one")
        else:
            last = await two_segments(log, coordinator, tmp_path / "one")
        if how == "cleaned":
            sealed_segments.clean(DiskDirectory(tmp_path / "one"), lambda path, record: record.sequence == 4)
        else:
            rot(segments(tmp_path / "one")[0], b"record 4;")
            BlockingLog(tmp_path / "one", LogOptions(recovery=RecoveryMode.SALVAGE, mirror=True)).close()
        assert sequences(tmp_path / "one") == [one for one in range(1, last + 1) if one != 4]
        async with copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one:
            await coordinator.wait(last, timeout=10)
            assert one.lookup(4) == log.lookup(4)
            assert await one.repaired(5)
            await one.caught_up(10)
            await coordinator.wait(await log.append("goes on"), timeout=10)
    assert sequences(tmp_path / "one") == list(range(1, last + 2))


def dropped(sequence: int, path: str, record: Record) -> bool:
    return record.sequence == sequence


async def test_what_the_coordinator_cleaned_is_not_fetched_again(tmp_path: Path) -> None:
    """A segment that was cleaned at the coordinator, before or after its fetch, is whole at a replica."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await two_segments(log, coordinator, tmp_path / "full")
        for sequence in (4, 6):
            await log.clean(partial(dropped, sequence))
            for name in ("full", "early"):
                async with copy_of(tmp_path / name, coordinator.address) as one:
                    await coordinator.wait(11, timeout=10)
                    assert one.stats().waiting is None
    for name in ("full", "early"):
        assert not list((tmp_path / name).glob("*.broken"))
    assert sequences(tmp_path / "full") == list(range(1, 12))
    assert sequences(tmp_path / "early") == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]


async def test_a_coordinators_salvaged_segment_is_repaired_from_a_replica(tmp_path: Path) -> None:
    """What salvage left out is damage until a replica gave it back, or none has it."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await two_segments(log, coordinator, tmp_path / "one")
    rot(segments(tmp_path / "log")[0], b"record 4;")
    repairer = Repairer(retry_seconds=0.05)
    async with (
        Log.open(
            tmp_path / "log",
            recovery=RecoveryMode.SALVAGE,
            on_damage=repairer.damaged,
            forward=repairer.forward,
        ) as log,
        Coordinator(log, repairer=repairer) as coordinator,
    ):
        assert not await asyncio.to_thread(repairer.wait, 0.2), "nobody was asked yet"
        async with copy_of(tmp_path / "one", coordinator.address):
            assert await asyncio.to_thread(repairer.wait, 10)
            assert log.lookup(4).value == "record 4;"
            assert len(repairer.repaired) == 1
            assert log.stats().damage == 0
    assert sequences(tmp_path / "log") == list(range(1, last + 1))


async def test_a_salvaged_segment_of_which_nobody_has_more_is_as_good_as_it_gets(tmp_path: Path) -> None:
    """When the replicas were asked and have no more of it, a salvaged segment is damaged no longer."""
    async with Log.open(tmp_path / "log") as log:
        await appended(log)
    rot(segments(tmp_path / "log")[0], b"record 4;")
    repairer = Repairer(retry_seconds=0.05)
    async with (
        Log.open(tmp_path / "log", recovery=RecoveryMode.SALVAGE, on_damage=repairer.damaged) as log,
        Coordinator(log, repairer=repairer) as coordinator,
        copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05),
    ):
        await coordinator.wait(await log.append("next"), timeout=10)
        assert repairer.wait(10)
        assert not repairer.repaired


# -- files that are gone ------------------------------------------------------------------------------------


async def test_what_went_into_a_file_without_a_name_is_taken_back(tmp_path: Path) -> None:
    """The file that a replica writes is removed: it acknowledges nothing until all is there again."""
    async with (
        Log.open(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one,
    ):
        last = await appended(log)
        await coordinator.wait(last, timeout=10)
        for file in segments(tmp_path / "one"):
            file.unlink()
        await until(lambda: sequences(tmp_path / "one") == list(range(1, last + 1)))
        last = await log.append("important")
        await coordinator.wait(last, timeout=10)
        assert sequences(tmp_path / "one") == list(range(1, last + 1))
        assert one.failed is None
    assert sequences(tmp_path / "one") == list(range(1, last + 1))


async def test_nothing_that_goes_into_a_file_without_a_name_is_acknowledged(tmp_path: Path) -> None:
    """Before a record is acknowledged, the file that it went into is looked for under its name."""
    async with (
        Log.open(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address, audit_seconds=60.0),
    ):
        await coordinator.wait(await appended(log), timeout=10)
        for file in segments(tmp_path / "one"):
            file.unlink()
        last = await log.append("important")
        await coordinator.wait(last, timeout=10)
        assert sequences(tmp_path / "one") == list(range(1, last + 1))


async def test_another_file_under_the_name_of_the_one_that_is_written_is_put_aside(tmp_path: Path) -> None:
    """A replica knows the file that it writes, not only its name."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await two_segments(log, coordinator, tmp_path / "one")
        async with copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one:
            last = await log.append("more")
            await coordinator.wait(last, timeout=10)
            file = segments(tmp_path / "one")[-1]
            strange = file.read_bytes()[:200]
            file.unlink()
            file.write_bytes(strange)
            await until(lambda: sequences(tmp_path / "one") == list(range(1, last + 1)))
            last = await log.append("important")
            await coordinator.wait(last, timeout=10)
            assert [kept.read_bytes() for kept in (tmp_path / "one").glob("*.broken")] == [strange]
            assert one.failed is None
    assert sequences(tmp_path / "one") == list(range(1, last + 1))


async def test_nothing_is_acknowledged_while_a_lost_file_cannot_be_fetched(tmp_path: Path) -> None:
    """The acknowledgement is taken back as soon as the loss is seen, not when it is mended."""
    async with (
        Log.open(tmp_path / "log") as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one,
    ):
        last = await log.append("first")
        await coordinator.wait(last, timeout=10)
        gate = threading.Event()
        one.core.writer.command(gate.wait)  # its disk is slow: nothing is mended yet
        try:
            for file in segments(tmp_path / "one"):
                file.unlink()
            await until(lambda: [info.sequence for info in coordinator.replicas()] == [0])
            with pytest.raises(TimeoutError):
                await coordinator.wait(last, timeout=0.1)
            assert not one.stats().caught_up
        finally:
            gate.set()
        await coordinator.wait(last, timeout=10)


# -- what a replica says of itself --------------------------------------------------------------------------


async def test_a_replica_that_knows_of_damage_is_not_caught_up(tmp_path: Path) -> None:
    """`caught_up` and `has` speak of what can be read here, as the acknowledgement does."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await two_segments(log, coordinator, tmp_path / "one")
        async with copy_of(tmp_path / "one", coordinator.address, audit_seconds=0.05) as one:
            await one.caught_up(10)
            await one.has(11, 10)
            for path in ("log", "one"):
                rot(segments(tmp_path / path)[0], b"record 4;")
            assert [report.damage for report in one.core.scrub() if report.damage]
            assert not one.stats().caught_up
            for wait in (one.caught_up(0.2), one.has(5, 0.2)):
                with pytest.raises(TimeoutError):
                    await wait


@pytest.mark.parametrize("left", [b"", bytes(5000)])
async def test_a_replica_that_has_lost_its_only_segment_comes_back(tmp_path: Path, left: bytes) -> None:
    """A replica knows its log also when no segment tells it, and holds only what it has."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await begun(log, coordinator, tmp_path / "one")
        segments(tmp_path / "one")[-1].write_bytes(left)
        last = await log.append("more")
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            with pytest.raises(TimeoutError):
                await one.has(1_000_000, 0.2)
            await coordinator.wait(last, timeout=10)
            assert one.sequence == last
    assert sequences(tmp_path / "one") == list(range(1, last + 1))


async def test_a_replica_that_has_lost_its_only_segment_joins_no_other_log(tmp_path: Path) -> None:
    """Which log a replica belongs to is in `replica.state` too."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await begun(log, coordinator, tmp_path / "one")
    segments(tmp_path / "one")[-1].write_bytes(b"")
    async with (
        Log.open(tmp_path / "other", epoch=99) as log,
        Coordinator(log) as coordinator,
        copy_of(tmp_path / "one", coordinator.address) as one,
    ):
        await until(lambda: "another log" in str(one.trouble))
    assert segments(tmp_path / "one")[-1].read_bytes() == b""


# -- lookups that are answered elsewhere --------------------------------------------------------------------


async def test_a_lookup_is_answered_only_by_who_has_the_same_history(tmp_path: Path) -> None:
    """A replaced coordinator has the log's id and other records: it is not asked for them."""
    async with Log.open(tmp_path / "old") as old:
        async with (
            Coordinator(old) as first,
            copy_of(tmp_path / "new", first.address),
        ):
            await first.wait(await old.append("common"), timeout=10)
            address = first.address
        await old.append("LOSING record")
        async with Log.open(tmp_path / "new") as new, Coordinator(new) as second:
            last = await new.append("WINNING record")
            await new.rotate()
            one = copy_of(tmp_path / "one", address)
            one.follow([address, second.address])
            async with one:
                await second.wait(last, timeout=10)
                async with Coordinator(old, port=address[1]):
                    for file in segments(tmp_path / "one"):
                        if b"WINNING" in file.read_bytes():
                            rot(file, b"WINNING")
                    for _ in range(3):
                        assert one.lookup(last).value == "WINNING record"


async def test_a_lookup_into_an_open_segment_is_answered_by_a_replica_that_is_behind(tmp_path: Path) -> None:
    """What two sides have in common is shown by the frame behind the shorter one's end."""
    repairer = Repairer(retry_seconds=0.05)
    async with (
        Log.open(tmp_path / "log", on_damage=repairer.damaged, forward=repairer.forward) as log,
        Coordinator(log, repairer=repairer) as coordinator,
    ):
        one = copy_of(tmp_path / "one", coordinator.address)
        async with one:
            for number in range(5):
                await coordinator.wait(await log.append(f"record {number + 1};"), timeout=10)
        for number in range(5, 9):
            await log.append(f"record {number + 1};")
        rot(segments(tmp_path / "log")[-1], b"record 3;")
        with BlockingLog(tmp_path / "one") as behind, SegmentServer(behind) as server:
            repairer.sources = lambda: [server.address]
            assert log.lookup(3).value == "record 3;"
        assert repairer.forwarded == 1
