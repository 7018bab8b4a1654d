"""What a replica has acknowledged stays: through crashes, rot, lost files, and what others do to its disk."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

import lorogo_log.replica_store as store_module
from lorogo_log import BlockingLog, LockedError, Log, Reader, TornError
from lorogo_log.replication import Coordinator
from lorogo_log.storage import DiskDirectory
from tests.log.replicas import copy_of
from tests.log.test_replication_safety import segments, until


def sequences(path: Path) -> list[int]:
    """What can be read there."""
    return [
        record.sequence for batch in Reader.open(path).read(damaged="skip") for record in batch.records()
    ]


def rot(file: Path, text: bytes) -> None:
    """Flip a bit of a record that holds this."""
    data = bytearray(file.read_bytes())
    data[data.index(text)] ^= 1
    file.write_bytes(data)


async def begun(log: Log, coordinator: Coordinator, path: Path, count: int = 10) -> int:
    """A replica that has acknowledged some records and is closed; the last sequence."""
    async with copy_of(path, coordinator.address):
        for number in range(count):
            last = await log.append(f"record {number + 1};")
        await coordinator.wait(last, timeout=10)
    return last


# -- going on in a segment that was found ---------------------------------------------------------------------


async def test_an_error_while_frames_are_copied_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails while a replica copies its last segment ends that try; every record stays."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await begun(log, coordinator, tmp_path / "one")
        real, calls = store_module.write_all, [0]

        def full(*arguments: object) -> int:
            calls[0] += 1
            if calls[0] == 4:
                raise OSError("no space is left")
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store_module, "write_all", full)
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
        real = store_module.write_all

        def copied(*arguments: object) -> int:
            at = tmp_path / f"crash-{len(seen)}"
            shutil.copytree(tmp_path / "one", at)
            seen.append(at)
            return real(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(store_module, "write_all", copied)
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
    """Rot that is met while a segment is gone on with is damage: it is fetched again, the original is kept."""
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


# -- the stream and its end -----------------------------------------------------------------------------------


async def test_a_queue_that_was_full_for_a_moment_does_not_end_the_stream(tmp_path: Path) -> None:
    """A coordinator that could not look where its log ends looks again: only the log's end ends the stream."""
    async with Log.open(tmp_path / "log") as log, Coordinator(log, head_seconds=0.1) as coordinator:
        await log.append("first")
        gate = threading.Event()
        log.core.writer.order(gate.wait)
        flushes = [asyncio.ensure_future(log.flush()) for _ in range(1024)]
        async with copy_of(tmp_path / "one", coordinator.address) as one:
            try:
                await until(lambda: "cannot be read" in str(coordinator.stats().trouble))
            finally:
                gate.set()
            await asyncio.gather(*flushes)
            for number in range(5):
                last = await log.append(number)
            await coordinator.wait(last, timeout=10)
            before = one.stats().streamed_bytes
            await coordinator.wait(await log.append("streamed"), timeout=10)
            await until(lambda: one.stats().streamed_bytes > before)


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
