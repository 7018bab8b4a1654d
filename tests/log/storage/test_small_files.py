"""Small files beside a log are replaced as a whole, whatever happens meanwhile."""

import random
from pathlib import Path

import pytest

from lorogo_log import FileStorage, MemoryStorage, Storage, read_file, replace_file
from tests.log.simdisk import PowerCut, SimDisk


@pytest.mark.parametrize("make", [FileStorage, MemoryStorage])
def test_a_file_holds_what_it_was_given_last(tmp_path: Path, make: type[Storage]) -> None:
    """Also over a draft that somebody left, and nothing is left beside it."""
    directory = make().directory(str(tmp_path), create=True)
    with pytest.raises(FileNotFoundError):
        read_file(directory, "note")
    directory.create("note.new").close()
    for data in (b"first" * 1000, b"", b"second"):
        replace_file(directory, "note", data)
        assert read_file(directory, "note") == data
    assert directory.list() == ["note"]


@pytest.mark.parametrize("call", range(1, 7))
def test_a_crash_leaves_the_old_or_the_new_and_a_done_one_the_new(call: int) -> None:
    """Whichever call the power cut comes in, and whatever of the unsynced is lost."""
    found = set()
    for seed in range(40):
        disk = SimDisk()
        replace_file(disk, "note", b"old" * 600)
        disk.plan[disk.calls + call] = "crash"
        done = False
        try:
            replace_file(disk, "note", b"new" * 600)
            done = True
        except PowerCut:
            pass
        disk.crash(random.Random(seed))
        data = read_file(disk, "note")
        assert data in ({b"new" * 600} if done else {b"old" * 600, b"new" * 600})
        found.add(data[:3])
        replace_file(disk, "note", b"after")
        assert read_file(disk, "note") == b"after"
    assert (b"old" in found) == (call < 6)
