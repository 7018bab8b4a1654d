"""Segments that are lost as a whole: reported, kept, salvaged, and nothing of them is given again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    DamageError,
    FormatError,
    LogOptions,
    MemoryStorage,
    Reader,
    RecoveryMode,
    limits,
)
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import broken_files, recover
from tests.log.recovery.test_honest import two_segments, values
from tests.log.simdisk import Fault, PowerCut, SimDisk
from tests.log.write.test_crashes import SimWriter

SALVAGE = LogOptions(recovery=RecoveryMode.SALVAGE)
JUNK = b"hello, I am no log" * 20

LOST: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[:0],
    "within the header": lambda data: data[:77],
    "behind the header": lambda data: data[:128],
    "within the first frame": lambda data: data[:150],
    "zeroed": lambda data: bytes(len(data)),
    "zeroed behind the header": lambda data: data[:128] + bytes(len(data) - 128),
    "junk": lambda data: JUNK,
}


@pytest.mark.parametrize("how", LOST)
def test_a_newest_segment_that_is_lost_as_a_whole(how: str) -> None:
    """Its name proves a first frame: it is reported at each open, stays as it is, nothing is given again."""
    storage, files, newest = two_segments()
    files[newest][:] = LOST[how](bytes(files[newest]))
    before = bytes(files[newest])
    with pytest.raises(CorruptionError, match=newest):
        BlockingLog("m", LogOptions(recovery=RecoveryMode.STRICT), storage=storage)
    skipped = max(limits.SEGMENT_BYTES, limits.BODY_BYTES_MAX) // 16
    for number in range(3):
        told: list[DamageError] = []
        with BlockingLog("m", storage=storage, on_damage=told.append) as log:
            assert [(type(found), found.path) for found in told] == [(CorruptionError, f"m/{newest}")]
            assert bytes(files[newest]) == before
            assert values(log.reader) == ["a", "d", "e"][: max(1, number)]
            if number:
                assert log.append("de"[number - 1]) > skipped
            assert [report.name for report in sealed_segments.scrub(log.directory) if report.damage] == [
                newest
            ]
    assert values(Reader.open("m", storage=storage)) == ["a", "d", "e"]


@pytest.mark.parametrize("how", LOST)
def test_salvage_of_a_segment_that_is_lost_as_a_whole(how: str) -> None:
    """Salvage keeps the original as `.broken`; an empty segment keeps the place; the log is whole again."""
    storage, files, newest = two_segments()
    files[newest][:] = LOST[how](bytes(files[newest]))
    before = bytes(files[newest])
    with BlockingLog("m", SALVAGE, storage=storage) as log:
        assert [found.path for found in log.damage] == [f"m/{newest}"]
    assert [bytes(data) for name, data in files.items() if name.endswith(".broken")] == [before]
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.STRICT), storage=storage) as log:
        assert log.damage == [] and not [report for report in log.scrub() if report.damage]
        assert log.append("new") > max(limits.SEGMENT_BYTES, limits.BODY_BYTES_MAX) // 16
        assert values(log.reader) == ["a", "new"]


@pytest.mark.parametrize("how", LOST)
def test_salvage_of_a_lost_segment_that_the_log_went_on_behind(how: str) -> None:
    """Also when newer segments follow, salvage makes the log whole again."""
    storage, files, newest = two_segments()
    files[newest][:] = LOST[how](bytes(files[newest]))
    with BlockingLog("m", storage=storage) as log:
        log.append("d")
    with BlockingLog("m", SALVAGE, storage=storage) as log:
        assert [found.path for found in log.damage] == [f"m/{newest}"]
    with BlockingLog("m", LogOptions(recovery=RecoveryMode.STRICT), storage=storage) as log:
        assert not [report for report in log.scrub() if report.damage]
        assert values(log.reader) == ["a", "d"]


@pytest.mark.parametrize("fault", ["enospc", "eio", "short", "crash"])
def test_salvage_of_a_lost_segment_refused_at_each_call(fault: Fault) -> None:
    """Wherever salvage is refused or cut off, the original is there, and doing it again finishes it."""
    for call in range(1, 40):
        disk = SimDisk()
        for number in range(2):
            writer = SimWriter(disk, segment_bytes=4096)
            writer.append([(number, b"", bytes(300))])
            writer.close()
        name = max(name for name in disk.entries if name.endswith(".seg"))
        disk.entries[name].engrave(JUNK)
        disk.plan = {disk.calls + call: fault}
        with contextlib.suppress(OSError, PowerCut):
            recover(disk, RecoveryMode.SALVAGE)
        through = disk.calls < max(disk.plan)
        disk.crash(random.Random(call))
        assert recover(disk, RecoveryMode.SALVAGE).head.next_sequence > 1000
        assert recover(disk, RecoveryMode.STRICT).head.next_sequence > 1000
        assert {bytes(disk.entries[name].data) for name in broken_files(disk)} == {JUNK}
        if through:
            return
    raise AssertionError("the table is longer than 40 calls")


@pytest.mark.parametrize("seed", range(30))
def test_a_name_given_at_open_vouches_for_the_first_frame(seed: int) -> None:
    """A writer dies before its first sync, recovery names the file, the power goes: that is no corruption."""
    disk = SimDisk()
    writer = SimWriter(disk, segment_bytes=1 << 20, ahead_bytes=4096)
    disk.plan = {disk.calls + 2: "eio"}
    with pytest.raises(OSError, match="error"):
        writer.append([(1, b"", b"b" * 600)])
    disk.locks.clear()
    disk.plan = {disk.calls + 1 + seed % 6: "crash"}
    with contextlib.suppress(PowerCut):
        recover(disk, RecoveryMode.TAIL)
    disk.crash(random.Random(seed))
    assert recover(disk, RecoveryMode.TAIL).damage == []


def test_junk_as_the_only_segment() -> None:
    """Also a log of which nothing else is left opens, in `tail` and in `salvage`."""
    storage = MemoryStorage()
    name = "00000000000000000001-00000000000000000005.seg"
    for options in (LogOptions(), SALVAGE):
        storage.directory("m", create=True).files[name] = bytearray(JUNK)
        with BlockingLog("m", options, storage=storage) as log:
            assert len(log.damage) == 1
            assert log.append("new") > 1
    with pytest.raises(CorruptionError, match="wrong magic: not a segment of a lorogo log"):
        BlockingLog("m", LogOptions(recovery=RecoveryMode.STRICT), storage=storage)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000002-00000000000000000005.seg",
        "prepared-9.new",
        "00000000000000000002-00000000000000000005.seg.tmp",
    ],
)
def test_a_directory_in_the_place_of_a_file(name: str, path: str) -> None:
    """Opening, listing and reading say so in one sentence, and never in the kernel's words."""
    with BlockingLog(path) as log:
        log.append("a")
    Path(path, name).mkdir()
    with pytest.raises(FormatError, match=f"{name} is a directory"):
        BlockingLog(path)
    if name.endswith(".seg"):
        reader = Reader.open(path)
        for use in (reader.segments, lambda: list(reader.read()), lambda: reader.lookup(2)):
            with pytest.raises(FormatError, match=f"{name} is a directory"):
                use()
        with pytest.raises(FormatError, match=f"{name} is a directory"):
            list(sealed_segments.scrub(reader.directory))
