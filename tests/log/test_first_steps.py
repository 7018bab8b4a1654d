"""What somebody who meets the log for the first time tries, and what it answers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lorogo_log import (
    BlockingLog,
    Coordinator,
    DamageError,
    FormatError,
    Log,
    LogOptions,
    LogPosition,
    LogReplica,
    Reader,
    RecoveryMode,
    Repairer,
    SegmentServer,
    StaleEpochError,
    TornError,
)
from lorogo_log.format.names import REPLICA_STATE
from lorogo_log.transfer.segment_transfer import SegmentClient
from tests.log.replicas import copy_of, grow
from tests.log.replication.test_coordinator import opened


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll with a deadline."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - files and other threads set no event
            await asyncio.sleep(0.01)


# -- keeping it small ----------------------------------------------------------------------------------


def test_expiry_counts_data_and_not_the_zeros_ahead_of_it(tmp_path: Path) -> None:
    """A log that fits keeps everything, however much was prepared in the segment that is open."""
    with BlockingLog(tmp_path) as log:
        for _ in range(4):
            log.append_many([(b"", b"x" * 100)] * 10)
            log.rotate()
        log.append("open")
        assert log.segments()[-1].bytes > 200_000
        assert log.expire(keep_bytes=20_000) == []
        assert len(log.expire(keep_bytes=5_000)) == 2


def test_every_sync_that_somebody_waited_for_is_in_one_count(tmp_path: Path) -> None:
    """By how long it took; what is prepared in the background counts for nobody."""
    with BlockingLog(tmp_path) as log:
        before = sum(log.stats().sync_us_counts)
        for number in range(5):
            log.append(number)
        stats = log.stats()
        assert sum(stats.sync_us_counts) - before == stats.syncs == 5
        assert len(stats.sync_us_counts) == 32
        assert stats.sync_seconds > 0


# -- arguments -----------------------------------------------------------------------------------------


def test_a_secret_is_bytes(tmp_path: Path) -> None:
    """Anything else is refused where it is given, before anybody connects."""
    log = Log.open(tmp_path)
    makers: list[Callable[[Any], object]] = [
        lambda secret: Coordinator(log, secret=secret),
        lambda secret: LogReplica(tmp_path, ("127.0.0.1", 1), secret=secret),
        lambda secret: Repairer(secret=secret),
        lambda secret: SegmentServer(secret=secret),
        lambda secret: SegmentClient(("127.0.0.1", 1), timeout=1, secret=secret),
    ]
    for make in makers:
        with pytest.raises(TypeError, match="secret must be bytes, not str"):
            make("abc")
        with pytest.raises(ValueError, match="secret must not be empty"):
            make(b"")


@pytest.mark.parametrize("text", ["xx", "", "1:2", "1:2:3:4", "1:x:3", "-1:2:3"])
def test_a_position_that_is_none(text: str) -> None:
    """One sentence that shows what one looks like."""
    with pytest.raises(ValueError, match="is not a position"):
        LogPosition.parse(text)
    assert LogPosition.parse(str(LogPosition(17, 1, 4096))) == LogPosition(17, 1, 4096)


@pytest.mark.parametrize(("wrong", "error"), [(-1, ValueError), (None, TypeError), ("5", TypeError)])
def test_following_takes_seconds(tmp_path: Path, wrong: Any, error: type[Exception]) -> None:
    """Not less than none, and a number; said at the call."""
    with BlockingLog(tmp_path) as log:
        log.append(1)
    with pytest.raises(error, match="follow_seconds"):
        Reader.open(tmp_path).read(follow_seconds=wrong)
    assert len(list(Reader.open(tmp_path).read(follow_seconds=0.01))) == 1


def test_reading_goes_on_behind_a_batch(tmp_path: Path) -> None:
    """`batch.next` is the position to save; also as text."""
    with BlockingLog(tmp_path) as log:
        for number in range(3):
            log.append(number)
    first = next(iter(Reader.open(tmp_path).read()))
    rest = Reader.open(tmp_path).read(from_pos=LogPosition.parse(str(first.next)))
    assert [record.value for batch in rest for record in batch.records()] == [1, 2]


# -- reading -------------------------------------------------------------------------------------------


def test_a_directory_of_other_things_is_not_a_log(tmp_path: Path) -> None:
    """Said at open; an empty directory is a log to come."""
    (tmp_path / "passwd").write_text("root")
    with pytest.raises(FormatError, match="is not a log: it holds only other files"):
        Reader.open(tmp_path)
    (tmp_path / "new").mkdir()
    assert list(Reader.open(tmp_path / "new").read()) == []


def test_who_skips_damage_is_not_stopped_by_a_torn_end(tmp_path: Path) -> None:
    """All before it is given, and it is told."""
    with BlockingLog(tmp_path / "log", LogOptions(ahead_bytes=0)) as log:
        for number in range(3):
            log.append(number)
        shutil.copytree(tmp_path / "log", tmp_path / "torn")
    (segment,) = (tmp_path / "torn").glob("*.seg")
    segment.write_bytes(segment.read_bytes()[:-3])
    told: list[DamageError] = []
    reader = Reader.open(tmp_path / "torn", on_damage=told.append)
    values = [record.value for batch in reader.read(damaged="skip") for record in batch.records()]
    assert values == [0, 1]
    assert [type(one) for one in told] == [TornError]
    with pytest.raises(TornError):
        list(reader.read())


def test_salvage_stands_in_for_a_segment_that_kept_only_its_footer(tmp_path: Path) -> None:
    """The original is kept, the sequences stay taken, and nothing is left to report."""
    with BlockingLog(tmp_path) as log:
        for number in range(3):
            log.append(number)
            log.rotate()
        log.append("last")
    victim = sorted(tmp_path.glob("*.seg"))[1]
    data = victim.read_bytes()
    victim.write_bytes(bytes(len(data) - 160) + data[-160:])
    with BlockingLog(tmp_path, LogOptions(recovery=RecoveryMode.SALVAGE)) as log:
        assert len(log.damage) == 1
    assert (tmp_path / f"{victim.name}.0.broken").exists()
    with BlockingLog(tmp_path) as log:
        assert [report for report in log.scrub() if report.damage or report.gap_before] == []
        assert [record.value for batch in log.read() for record in batch.records()] == [0, 2, "last"]
        assert log.append("after") == 5


# -- replicas ------------------------------------------------------------------------------------------


async def test_a_copied_replica_is_told_what_to_remove(tmp_path: Path) -> None:
    """The first stays connected, the copy is refused with a sentence; without its state it is a new one."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        async with copy_of(tmp_path / "one", coordinator.address):
            await coordinator.wait(await grow(log, 3), timeout=10)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        async with copy_of(tmp_path / "one", coordinator.address, name="first") as one:
            await coordinator.wait(await grow(log, 1), timeout=10)
            async with copy_of(tmp_path / "two", coordinator.address, name="copy") as two:
                await until(lambda: "remove replica.state in the copy" in str(two.trouble))
                assert "is connected from 127.0.0.1 (first)" in str(two.trouble)
                assert "copy was refused" in str(coordinator.stats().trouble)
            assert one.stats().connected
            assert [info.name for info in coordinator.replicas()] == ["first"]
            (tmp_path / "two" / REPLICA_STATE).unlink()
            async with copy_of(tmp_path / "two", coordinator.address, name="copy"):
                await coordinator.wait(await grow(log, 1), replicas=2, timeout=10)
                assert coordinator.stats().trouble is None


async def test_appends_end_as_soon_as_a_newer_coordinator_is_known(tmp_path: Path) -> None:
    """They would be nobody's: StaleEpochError, until this log takes over once more."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        await log.append(1)
        epoch = log.stats().epoch
        coordinator._fence(epoch + 5)
        for append in (lambda: log.append(2), lambda: log.append_many([(b"", 2)])):
            with pytest.raises(StaleEpochError, match="another coordinator took over"):
                await append()
        with pytest.raises(StaleEpochError):
            await asyncio.to_thread(log.core.append, 2)
        await log.fence(epoch + 5)
        with pytest.raises(StaleEpochError):
            await log.append(2)
        await log.fence(epoch + 6)
        assert await log.append(2) == 2


async def test_trouble_is_over_when_the_replica_is_back(tmp_path: Path) -> None:
    """What ended its last connection is shown until then, and no longer."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        async with copy_of(tmp_path / "one", coordinator.address):
            await coordinator.wait(await grow(log, 1), timeout=10)
        await until(lambda: coordinator.stats().trouble is not None)
        async with copy_of(tmp_path / "one", coordinator.address):
            await until(lambda: coordinator.stats().trouble is None)


async def test_a_wait_in_vain_says_why(tmp_path: Path) -> None:
    """A record that is not written yet, or replicas that are not there; and what is no number is refused."""
    async with opened(tmp_path / "log") as log, Coordinator(log) as coordinator:
        last = await log.append(1)
        with pytest.raises(TimeoutError, match=f"record {last + 9} is not written yet .*: the log ends at"):
            await coordinator.wait(last + 9, timeout=0.01)
        with pytest.raises(TimeoutError, match=f"0 of 2 replicas have record {last} .*: 0 connected"):
            await coordinator.wait(last, replicas=2, timeout=0.01)
        with pytest.raises(TypeError, match="replicas must be an int, not str"):
            await coordinator.wait(last, replicas="2")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="sequence must be an int, not str"):
            await coordinator.wait("1")  # type: ignore[arg-type]
