"""What is not the log's is left alone, and what cannot be understood is refused before anything is done."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from lorogo_log import (
    BlockingLog,
    CorruptionError,
    FormatError,
    Log,
    LogOptions,
    Reader,
    RecoveryMode,
    StaleEpochError,
    limits,
)
from lorogo_log.replication.coordinator import Coordinator
from tests.log.replicas import copy_of


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def tree(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.suffix != ".lock"}


# -- strangers' files ---------------------------------------------------------------------------------------

THEIRS = ["thesis.odt.tmp", "video.mkv.part", "x.seg.tmp", "1-2.seg.part", ".tmp", "append.lock.tmp"]
OURS = [
    "00000000000000000009-00000000000000000000.seg.tmp",
    "00000000000000000009-00000000000000000000.seg.0.broken.tmp",
    "00000000000000000009-00000000000000000000.seg.128-2.broken.tmp",
    "prepared-3.new.0.broken.tmp",
    "replica.state.tmp",
]


async def test_files_of_others_stay(tmp_path: Path) -> None:
    """Only names that this code makes are removed, by a writer or by a replica; the others are listed."""
    here = tmp_path / "project"
    here.mkdir()
    for name in THEIRS + OURS:
        (here / name).write_text("the only copy")
    (here / "00000000000000000009-00000000000000000000.seg.part").write_text("half a segment")
    with BlockingLog(here) as log:
        assert log.recovered.foreign == sorted(THEIRS)
    assert not [name for name in OURS if (here / name).exists()]
    async with (
        Log.open(tmp_path / "log") as source,
        Coordinator(source) as coordinator,
        copy_of(here, coordinator.address) as replica,
    ):
        await source.append(1)
        await replica.caught_up(10)
    assert {file.name for file in here.iterdir()} >= set(THEIRS)
    assert all((here / name).read_text() == "the only copy" for name in THEIRS)


# -- a newer version ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prepared-1.new", f"{2:020d}-{0:020d}.seg"])
@pytest.mark.parametrize("recovery", list(RecoveryMode))
def test_a_newer_version_is_refused_and_nothing_is_changed(
    tmp_path: Path, name: str, recovery: RecoveryMode
) -> None:
    """Also where the newer file waits for its name, and where older ones before it want mending."""
    with BlockingLog(tmp_path) as log:
        log.append("old")
    file = segments(tmp_path)[0]
    data = file.read_bytes()
    head = bytearray(data[:128])
    struct.pack_into("<H", head, 8, 2)
    struct.pack_into("<I", head, 124, crc32c(bytes(head[:124])))
    file.write_bytes(data[: data.index(b"LGTRAIL1")])  # not sealed
    (tmp_path / f"{file.name}.tmp").write_bytes(b"left by a crash")
    (tmp_path / name).write_bytes(bytes(head) + b"LGF2" + b"acknowledged records of version 2" * 10)
    before = tree(tmp_path)
    with pytest.raises(FormatError, match=f"{name}: format version 2, this program reads version 1"):
        BlockingLog(tmp_path, LogOptions(recovery=recovery))
    with pytest.raises(FormatError, match="format version 2"):
        list(Reader.open(tmp_path).read())
    assert tree(tmp_path) == before


# -- cleaning -----------------------------------------------------------------------------------------------


async def _async(path: str, record: object) -> bool:
    return False


class _Judge:
    async def __call__(self, path: str, record: object) -> bool:
        return False


@pytest.mark.parametrize("answer", [None, 0, 1, "no", _async, _Judge(), lambda *_: _async("", None)])
async def test_only_true_and_false_are_answers(tmp_path: Path, answer: Any) -> None:
    """A cleaning function that says anything else, or is asynchronous, drops nothing: TypeError."""
    async with Log.open(tmp_path) as log:
        for number in range(4):
            await log.append(number)
        await log.rotate()
        before = segments(tmp_path)[0].read_bytes()
        function = answer if callable(answer) else lambda *_: answer
        with pytest.raises(TypeError, match="clean"):
            await log.clean(function)
        assert segments(tmp_path)[0].read_bytes() == before
        assert (await log.clean(lambda _, record: record.value == 1)).dropped == 1


# -- links that lead nowhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_broken_link(tmp_path: Path, which: int) -> None:
    """It is damage: told by all who meet it, waited for by nobody, and the rest is served."""
    with BlockingLog(tmp_path) as log:
        for number in range(3):
            log.append(number)
            log.rotate()
    link = segments(tmp_path)[which]
    frame = link.read_bytes()[128:208]
    link.rename(tmp_path.parent / "away.seg")
    link.symlink_to(tmp_path.parent / "nowhere")
    reader = Reader.open(tmp_path)
    offset = struct.unpack_from("<Q", frame, 48)[0]
    with pytest.raises(CorruptionError, match="broken link"):
        reader.lookup(which + 1)
    for other in {0, 1, 2} - {which}:
        assert reader.lookup(other + 1).value == other
    with pytest.raises(CorruptionError, match="broken link"):
        reader.lookup_bytes(offset, 8)
    with pytest.raises(CorruptionError, match="broken link"):
        BlockingLog(tmp_path, LogOptions(recovery=RecoveryMode.STRICT))
    for recovery in (RecoveryMode.TAIL, RecoveryMode.SALVAGE):
        with BlockingLog(tmp_path, LogOptions(recovery=recovery)) as log:
            assert [damage.path for damage in log.damage] == [str(link)]
            assert log.append("new") > 3
            assert [report.name for report in log.scrub() if report.damage] == [link.name]
            assert log.clean(lambda *_: False).damaged == (link.name,)
            assert log.expire(keep_bytes=1 << 40) == []
    link.unlink()
    (tmp_path.parent / "away.seg").rename(link)
    with BlockingLog(tmp_path) as log:
        assert log.damage == []
        assert log.lookup(which + 1).value == which
        sequences = [record.sequence for batch in log.read() for record in batch.records()]
        assert sequences == sorted(set(sequences)) and sequences[:3] == [1, 2, 3]


def test_a_prepared_file_that_is_a_broken_link(tmp_path: Path) -> None:
    """The sentence names it."""
    with BlockingLog(tmp_path) as log:
        log.append(1)
    (tmp_path / "prepared-1.new").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FormatError, match=r"prepared-1\.new: .*broken link"):
        BlockingLog(tmp_path)


# -- epochs -------------------------------------------------------------------------------------------------


def test_epochs_have_a_top(tmp_path: Path) -> None:
    """None above 2^56 is taken at any door, and where none is left above the newest, opening says so."""
    with BlockingLog(tmp_path) as log:
        for epoch in (limits.EPOCH_MAX + 1, (1 << 64) - 1):
            with pytest.raises(ValueError, match="at most"):
                log.fence(epoch)
            with pytest.raises(ValueError, match="at most"):
                LogOptions(epoch=epoch)
        log.append(1)
        log.fence(limits.EPOCH_MAX)
        log.append(2)
    with pytest.raises(StaleEpochError, match="no epoch above"):
        BlockingLog(tmp_path)
    with BlockingLog(tmp_path, LogOptions(epoch=limits.EPOCH_MAX)) as log:
        assert log.append(3) == 3
