"""A cursor on a directory whose files are replaced by longer ones, as a replica does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lorogo_log import BlockingLog, CorruptionError, Cursor, Log, Reader
from lorogo_log.replication.coordinator import Coordinator
from tests.log.replicas import copy_of


class Growing:
    """A log at three moments: its first segment short, longer but open, and sealed with another behind."""

    def __init__(self, where: Path) -> None:
        source = where / "source"
        self.views = [where / f"view-{number}" for number in range(3)]
        with BlockingLog(source) as log:
            for view in self.views:
                for number in range(3):
                    log.append(number, key=b"k")
                if view is self.views[-1]:
                    log.rotate()
                    log.append("next", key=b"k")
                shutil.copytree(source, view, ignore=shutil.ignore_patterns("*.lock", "prepared-*"))
        self.sealed = where / "sealed"
        shutil.copytree(self.views[0], self.sealed)
        with BlockingLog(self.sealed):
            pass

    def put(self, source: Path, target: Path) -> None:
        """All files of one view take their names in another, the oldest last."""
        for file in sorted(source.glob("*.seg"), reverse=True):
            shutil.copy(file, target / "new")
            (target / "new").rename(target / file.name)


def read(cursor: Cursor) -> list[int]:
    return [record.sequence for batch in cursor for record in batch.records()]


@pytest.mark.parametrize("key", [None, b"k"])
@pytest.mark.parametrize("began", ["sealed", "open"])
@pytest.mark.parametrize("steps", [(1, 2), (2,)])
def test_a_longer_file_of_the_same_name(
    tmp_path: Path, key: bytes | None, began: str, steps: tuple[int, ...]
) -> None:
    """What a cursor has read to its end and finds longer later is read on, every record once."""
    growing = Growing(tmp_path)
    here = growing.sealed if began == "sealed" else growing.views[0]
    with Reader.open(here).cursor(key=key) as cursor:
        assert read(cursor) == [1, 2, 3]
        assert read(cursor) == []
        for step in steps:
            growing.put(growing.views[step], here)
            got = read(cursor)
            assert got == ([4, 5, 6] if step == 1 else list(range(4 if len(steps) == 1 else 7, 11)))
            assert read(cursor) == []


def test_the_next_segment_comes_before_the_longer_file(tmp_path: Path) -> None:
    """A gap before the next segment makes the cursor look once more at the file it came from."""
    growing = Growing(tmp_path)
    here, whole = growing.sealed, growing.views[2]
    with Reader.open(here).cursor() as cursor:
        assert next(iter(cursor)).header.first_sequence == 1
        growing.put(whole, here)  # while the cursor is within the short one
        assert read(cursor) == list(range(2, 11))


def test_a_true_gap_is_no_error(tmp_path: Path) -> None:
    """What was cleaned away or expired between two segments is passed over silently."""
    with BlockingLog(tmp_path) as log:
        for number in range(6):
            log.append(number)
            log.rotate()
    for file in sorted(tmp_path.glob("*.seg"))[1:3]:
        file.unlink()
    with Reader.open(tmp_path).cursor() as cursor:
        assert read(cursor) == [1, 4, 5, 6]
        assert read(cursor) == []


def test_missing_records_are_told_once(tmp_path: Path) -> None:
    """A file that stays too short is damage, told once; mended later, the cursor is already behind it."""
    growing = Growing(tmp_path)
    here = growing.views[0]
    shutil.copy(sorted(growing.views[2].glob("*.seg"))[1], here)
    with Reader.open(here).cursor() as cursor:
        assert [cursor.next().header.first_sequence for _ in range(3)] == [1, 2, 3]
        with pytest.raises(CorruptionError, match="zeros where a frame should be"):
            cursor.next()
        assert read(cursor) == [10]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_cursor_on_a_replica_that_connects_again(tmp_path: Path, inside: bool) -> None:
    """Every acknowledged record is given, whichever file it is in by then: in the replica and elsewhere."""
    here, last = tmp_path / "replica", 0
    async with Log.open(tmp_path / "log") as log, Coordinator(log) as coordinator:
        async with copy_of(here, coordinator.address):
            for number in range(10):
                last = await log.append(number)
            await coordinator.wait(last, replicas=1, timeout=10)
        for number in range(10):
            last = await log.append(number)
        async with copy_of(here, ("127.0.0.1", 1)) as replica:
            cursor = replica.core.cursor() if inside else Reader.open(here).cursor()
            got = read(cursor)
            assert got == list(range(1, 11))
            replica.follow(coordinator.address)
            await coordinator.wait(last, replicas=1, timeout=10)
            got += read(cursor)
            await log.rotate()
            last = await log.append("next")
            await coordinator.wait(last, replicas=1, timeout=10)
            got += read(cursor)
            cursor.close()
    assert got == list(range(1, 22))
