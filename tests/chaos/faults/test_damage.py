"""Damage: one bit, one tail, one folder; and nothing outside the stack's own."""

import random
from pathlib import Path

import pytest

from lorogo_chaos.errors import ChaosError, FaultUnavailable
from lorogo_chaos.faults import damage


@pytest.fixture
def stack_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "stack"
    folder.mkdir()
    return folder


def bits(one: bytes, other: bytes) -> int:
    return sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_flip_changes_one_bit_of_what_was_written(stack_folder: Path, seed: int) -> None:
    """The flip never hits preallocated zeros, where it would have no effect."""
    path = stack_folder / "a.seg"
    before = random.Random(seed).randbytes(100) + b"\x01" + bytes(5000)
    path.write_bytes(before)
    done = damage.flip_bit([path], random.Random(seed), within=stack_folder)
    after = path.read_bytes()
    assert bits(before, after) == 1
    assert before[done.at] != after[done.at]
    assert done.at <= 100
    assert str(done.at) in done.words


@pytest.mark.parametrize("seed", range(20))
def test_a_lost_tail_is_lost_from_what_was_written_to_the_newest_file(stack_folder: Path, seed: int) -> None:
    old, new = stack_folder / "1.blk", stack_folder / "2.blk"
    old.write_bytes(b"x" * 100)
    new.write_bytes(b"y" * 1000 + bytes(5000))
    done = damage.cut_tail([old, new], random.Random(seed), within=stack_folder)
    assert (done.path, old.stat().st_size) == (new, 100)
    assert new.read_bytes() == b"y" * (1000 - done.lost_bytes)
    assert 1 <= done.lost_bytes <= 1000


@pytest.mark.parametrize("how", [damage.flip_bit, damage.cut_tail])
def test_nothing_is_possible_where_nothing_is_written(stack_folder: Path, how: object) -> None:
    path = stack_folder / "a.seg"
    path.write_bytes(bytes(100))
    assert callable(how)
    for files in ([], [path]):
        with pytest.raises(FaultUnavailable):
            how(files, random.Random(0), within=stack_folder)
    assert path.read_bytes() == bytes(100)


@pytest.mark.parametrize("how", [damage.flip_bit, damage.cut_tail])
def test_no_file_outside_the_folder_is_touched(tmp_path: Path, stack_folder: Path, how: object) -> None:
    """Not by its path, not by a way upwards, not through a link to it, not through a linked folder."""
    assert callable(how)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.seg").write_bytes(b"precious")
    (stack_folder / "link.seg").symlink_to(outside / "a.seg")
    (stack_folder / "linked").symlink_to(outside)
    for path in (
        outside / "a.seg",
        stack_folder / ".." / "outside" / "a.seg",
        stack_folder / "link.seg",
        stack_folder / "linked" / "a.seg",
    ):
        with pytest.raises(ChaosError, match="not inside"):
            how([path], random.Random(0), within=stack_folder)
    for folder in (outside, stack_folder, stack_folder / "linked", stack_folder / ".."):
        with pytest.raises(ChaosError, match="not inside"):
            damage.lose_folder(folder, within=stack_folder)
    assert (outside / "a.seg").read_bytes() == b"precious"


def test_a_folder_is_lost_with_all_that_is_in_it(stack_folder: Path) -> None:
    (stack_folder / "nats-1" / "jetstream").mkdir(parents=True)
    (stack_folder / "nats-1" / "jetstream" / "1.blk").write_bytes(b"x")
    damage.lose_folder(stack_folder / "nats-1" / "jetstream", within=stack_folder)
    assert list((stack_folder / "nats-1").iterdir()) == []


def test_files_are_found_where_processes_write_them(stack_folder: Path) -> None:
    """Blocks of the WAL and no other stream's, segments and no files beside them."""
    streams = stack_folder / "jetstream" / "$G" / "streams"
    for stream in ("loro-wal", "KV_loro-document-status"):
        (streams / stream / "msgs").mkdir(parents=True)
        (streams / stream / "msgs" / "1.blk").write_bytes(b"x")
    (streams / "loro-wal" / "msgs" / "2.blk").write_bytes(b"")
    assert damage.wal_blocks(stack_folder) == [streams / "loro-wal" / "msgs" / "1.blk"]
    journal = stack_folder / "journal"
    (journal / "00").mkdir(parents=True)
    segment = journal / "00" / f"{1:020d}-{1:020d}.seg"
    for path in (segment, segment.with_suffix(".seg.5.broken"), journal / "00" / "prepared-1.new"):
        path.write_bytes(b"x")
    (journal / "00" / f"{9:020d}-{9:020d}.seg").write_bytes(bytes(100))
    (journal / "ledger").write_bytes(b"x")
    assert damage.segments(journal) == [segment]
