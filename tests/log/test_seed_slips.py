"""Each known slip of the log's ancestors, pinned: first those of the pseudocode, then those of their code."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, Cursor, End, Log, LogOptions, MemoryStorage, Reader, Storage, Sync
from lorogo_log.storage.memory import MemoryFile
from tests.log.simdisk import SimDisk
from tests.log.write.test_crashes import SimWriter


def values(reader: Reader, **wishes: int) -> list[object]:
    batches = reader.read(**wishes)  # type: ignore[arg-type]
    return [record.value for batch in batches for record in batch.records()]


def four_segments() -> tuple[MemoryStorage, Reader]:
    storage = MemoryStorage()
    with BlockingLog("log", storage=storage) as log:
        for number in range(12):
            log.append(number, ts=100 * (number // 3) + number % 3)
            if number % 3 == 2:
                log.rotate()
    return storage, Reader.open("log", storage=storage)


def test_the_search_finds_the_last_file_before_the_time_not_the_first() -> None:
    """Opening as of a time opens one file: the last that begins before it."""
    storage, reader = four_segments()
    third = reader.segments()[2].name
    opened: list[str] = []
    directory = storage.directories["log"]
    original = directory.open

    def spy(name: str, *, write: bool = False) -> MemoryFile:
        opened.append(name)
        return original(name, write=write)

    directory.open = spy  # type: ignore[method-assign]
    with reader.cursor(from_time=201) as cursor:
        assert next(cursor.next().records()).value == 7
    assert opened == [third]


def test_advancing_skips_no_file() -> None:
    """Crossing from file to file gives every record of every file."""
    _, reader = four_segments()
    assert values(reader) == list(range(12))


def test_the_end_is_an_answer_not_a_spin() -> None:
    """At the end `next` says End at once, again and again; a follower waits, with a deadline."""
    _, reader = four_segments()
    with reader.cursor() as cursor:
        assert len(list(cursor)) == 12
        before = time.process_time()
        for _ in range(3):
            with pytest.raises(End):
                cursor.next()
        with pytest.raises(End):
            cursor.follow(wait_seconds=0.3)
        assert time.process_time() - before < 0.2


def test_equal_timestamps_are_not_skipped() -> None:
    """A time gives all records of exactly that time, also when they lie on both sides of a rotation."""
    storage = MemoryStorage()
    with BlockingLog("log", storage=storage) as log:
        for number, when in enumerate([1, 5, 5, 5, 5, 9]):
            log.append(number, ts=when)
            if number in {1, 3}:
                log.rotate()
    assert values(Reader.open("log", storage=storage), from_time=5) == [1, 2, 3, 4, 5]


async def test_a_quiet_writers_last_records_are_visible(storage: Storage, path: str) -> None:
    """What was appended can be read at once, without another append or a full buffer pushing it out."""
    async with Log.open(path, storage=storage, sync=Sync.group()) as log:
        await log.append("last words")
        elsewhere = Reader.open(path, storage=storage)
        assert values(elsewhere) == ["last words"]
        async with asyncio.timeout(5):
            async for batch in log.read(follow=True):
                assert [record.value for record in batch.records()] == ["last words"]
                break


def test_times_that_go_back_are_found_all_the_same() -> None:
    """The first record at or after a time is found even if the caller's clock went backwards across files."""
    storage = MemoryStorage()
    times = [50, 90, 10, 20, 95, 30, 100]
    with BlockingLog("log", storage=storage) as log:
        for number, when in enumerate(times):
            log.append(number, ts=when)
            log.rotate()
    reader = Reader.open("log", storage=storage)
    for wanted in range(0, 110, 5):
        start = next((n for n, when in enumerate(times) if when >= wanted), len(times))
        assert values(reader, from_time=wanted) == list(range(start, len(times))), wanted


def test_a_half_written_record_is_never_returned() -> None:
    """While a frame is written byte by byte, a reader sees the end, and then the whole record."""
    storage = MemoryStorage()
    log = BlockingLog("log", LogOptions(ahead_bytes=256), storage=storage)
    log.append("first")
    log.append("second")
    directory = storage.directories["log"]
    name = next(name for name in directory.files if name.endswith(".seg"))
    whole = bytes(directory.files[name])
    log.close()
    with Reader.open("log", storage=storage).cursor() as cursor:
        first = cursor.next()
    start, size = first.next.offset, 0
    while whole[start + size : start + size + 8] != bytes(8) or size < 80:
        size += 8
    for have in range(size):
        half = MemoryStorage()
        data = bytearray(whole[: start + have]) + bytes(len(whole) - start - have)
        if data == whole:
            continue
        half.directory("log", create=True).files[name] = data
        cursor = Cursor(half.directory("log", create=False))
        assert next(cursor.next().records()).value == "first"
        with pytest.raises(End):
            cursor.next(following=True)


# -- known bugs of their code ------------------------------------------------------------------------


def test_nothing_is_appended_after_a_torn_record() -> None:
    """A log with a torn tail goes on in a new segment; the torn bytes are cut first."""
    storage = MemoryStorage()
    log = BlockingLog("log", storage=storage)
    log.append("good")
    directory = storage.directories["log"]
    name = next(name for name in directory.files if name.endswith(".seg"))
    torn = bytearray(directory.files[name])
    log.close()
    torn[torn.rindex(b"good") + 8 :] = b"LGFR and then the power went"
    directory.files[name] = torn
    with BlockingLog("log", storage=storage) as log:
        assert log.append("better") == 2
        assert log.active_segments()[0] != name
    assert values(Reader.open("log", storage=storage)) == ["good", "better"]


@pytest.mark.parametrize(
    "policy", [Sync.os(), Sync.interval(100), Sync.group()], ids=lambda policy: policy.kind
)
def test_rotation_syncs_the_old_file_before_the_new_one_is_written(policy: Sync) -> None:
    """Whatever the policy: no byte of the next segment before the last one is safe."""
    disk = SimDisk()
    with BlockingLog("sim", LogOptions(sync=policy), storage=disk) as log:
        log.append("old")
        old = disk.entries[log.active_segments()[0]]
        log.rotate()
        assert not any(isinstance(change, tuple) and b"old" in change[1] for change in old.pending)


def test_a_new_files_name_is_synced_before_it_is_used() -> None:
    """A segment's directory entry is durable before its first record is acknowledged."""
    disk = SimDisk()
    writer = SimWriter(disk, segment_bytes=4096)
    for number in range(3):
        writer.append([(0, b"", number)])
        inode = disk.entries[writer.engine.active.name]
        assert any(inode is kept for kept in disk.durable.values())
        writer.rotate()
        writer.work()


def test_no_memory_is_taken_for_an_unchecked_length() -> None:
    """A header that promises two gigabytes costs nothing unless its checksum holds, and is bounded even
    then.
    """
    storage = MemoryStorage()
    with BlockingLog("log", storage=storage) as log:
        log.append("x")
    directory = storage.directories["log"]
    name = next(name for name in directory.files if name.endswith(".seg"))
    directory.files[name][128 + 60 : 128 + 64] = b"\xff\xff\xff\x7f"
    tracemalloc.start()
    assert list(Reader.open("log", storage=storage).read(damaged="skip")) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_failed_append_is_not_written_twice() -> None:
    """An append whose sync failed is not retried: after reopening it is there once or not at all."""
    disk = SimDisk()
    log = BlockingLog("sim", storage=disk)
    log.append("before")
    disk.plan = {disk.calls + 2: "eio"}  # its write goes through, its sync does not
    with pytest.raises(Exception, match="stopped"):
        log.append("once")
    with pytest.raises(Exception, match="stopped"):
        log.append("once")
    log.close()
    disk.plan.clear()
    with BlockingLog("sim", storage=disk) as log:
        found = [record.value for batch in log.cursor() for record in batch.records()]
        assert found in (["before"], ["before", "once"])


def test_reopening_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    """The newest segment is found by its number, not by how the directory lists it, and is not written to
    again.
    """
    contents: dict[str, bytes] = {}
    for number in range(12):
        with BlockingLog(tmp_path / "log") as log:
            assert log.append(number) == number + 1
        for path in sorted((tmp_path / "log").glob("*.seg")):
            assert contents.setdefault(path.name, path.read_bytes()) == path.read_bytes()
    assert len(contents) == 12


def test_a_rewrites_leftovers_are_removed() -> None:
    """A crash in the middle of cleaning leaves a temporary file, which the next open removes."""
    storage, _ = four_segments()
    directory = storage.directories["log"]
    directory.files["00000000000000000001-00000000000000000000.seg.tmp"] = bytearray(b"half")
    directory.files["prepared-7.new"] = bytearray(100)
    with BlockingLog("log", storage=storage) as log:
        assert not [name for name in directory.files if name.endswith(".tmp") or name == "prepared-7.new"]
        assert log.append("x") == 13
