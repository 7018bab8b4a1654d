"""`lorogo log repair`: nothing without --apply, nothing thrown away with it."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_log import BlockingLog
from lorogo_log.storage.disk import DiskFile
from lorogo_log.transfer.segment_transfer import SegmentServer
from tests.cli.logs import Cli, flip, frames, segments, tree, write


def appends_again(path: Path, expected_next: int) -> None:
    """The log opens and goes on where it should."""
    with BlockingLog(path) as log:
        assert log.damage == []
        assert log.append("after") == expected_next


def test_a_good_log_needs_nothing(tmp_path: Path, cli: Cli) -> None:
    """With or without --apply, no byte changes."""
    write(tmp_path / "log", 60)
    before = tree(tmp_path / "log")
    for options in ([], ["--apply"], ["--apply", "--salvage"]):
        assert cli("repair", *options, tmp_path / "log") == 0
        assert cli.out == "nothing to repair\n"
    assert tree(tmp_path / "log") == before


def test_a_torn_tail_is_cut_and_kept(tmp_path: Path, cli: Cli) -> None:
    """The plan names the byte; --apply cuts there, keeps the bytes as .broken, and seals."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")
    start, end = frames(segment)[-1]
    with segment.open("r+b") as file:
        file.truncate(end - 5)
    before = tree(tmp_path / "log")
    plan = cli.json("repair", tmp_path / "log", code=1)
    assert [(step["name"], step["action"]) for step in plan["steps"]] == [(segment.name, "cut")]
    assert f"from byte {start} on" in plan["steps"][0]["why"]
    assert plan["applied"] is False
    assert tree(tmp_path / "log") == before
    done = cli.json("repair", "--apply", tmp_path / "log")
    assert (done["applied"], done["damage"], done["steps"]) == (True, [], plan["steps"])
    (broken,) = (tmp_path / "log").glob("*.broken")
    assert broken.read_bytes() == before[segment.name][start:]
    assert cli.json("verify", tmp_path / "log")["served"] == 2
    assert cli.json("ls", tmp_path / "log")["broken"] == [broken.name]
    appends_again(tmp_path / "log", 3)


def test_corruption_is_left_alone_unless_salvage_is_asked_for(tmp_path: Path, cli: Cli) -> None:
    """--apply alone does not touch a damaged segment; --salvage rewrites it and keeps the original."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[0]
    flip(victim, frames(victim)[4][0] + 90)
    original = victim.read_bytes()
    assert cli("repair", tmp_path / "log") == 1
    assert "leave" in cli.out
    assert "--from or --salvage repairs it" in cli.out
    assert cli("repair", "--apply", tmp_path / "log") == 1
    assert "record 5 is lost" in cli.out
    assert cli.out.endswith("damage remains\n")
    assert victim.read_bytes() == original
    assert cli("repair", "--salvage", tmp_path / "log") == 1
    assert victim.read_bytes() == original
    assert cli("repair", "--salvage", "--apply", tmp_path / "log") == 0
    (broken,) = (tmp_path / "log").glob("*.broken")
    assert cli.out.endswith(
        f"kept: {broken.name}\n"
        "record 5 is lost, unless a replica or a backup has it\nthe remaining records are good\n"
    )
    assert broken.read_bytes() == original
    served = [record["sequence"] for record in cli.lines("dump", tmp_path / "log")]
    assert served == [number for number in range(1, 61) if number != 5]
    appends_again(tmp_path / "log", 61)


@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("place", ["magic", "header", "first", "last", "trailer", "footer"])
def test_salvage_repairs_any_place(tmp_path: Path, cli: Cli, which: int, place: str) -> None:
    """Whatever part of whatever segment is damaged: then everything checks and the log goes on."""
    write(tmp_path / "log", 70)
    victim = segments(tmp_path / "log")[which]
    places = frames(victim)
    at = {
        "magic": 0,
        "header": 60,
        "first": places[0][0] + 85,
        "last": places[-1][0] + 20,
        "trailer": places[-1][1] + 12,
        "footer": victim.stat().st_size - 20,
    }[place]
    flip(victim, at)
    served = cli.json("verify", tmp_path / "log", code=1)["served"]
    assert served == (69 if place in {"first", "last"} else 70)
    assert cli("repair", "--salvage", "--apply", tmp_path / "log") == 0, (cli.out, cli.err)
    assert cli.json("verify", tmp_path / "log")["served"] == served
    assert len(cli.lines("dump", tmp_path / "log")) == served
    appends_again(tmp_path / "log", 71)


def test_leftovers_and_open_segments(tmp_path: Path, cli: Cli) -> None:
    """Repair removes leftovers of a crash and seals open segments."""
    write(tmp_path / "log", 60)
    last = segments(tmp_path / "log")[-1]
    with last.open("r+b") as file:
        file.truncate(frames(last)[-1][1])
    (tmp_path / "log" / f"{last.name}.tmp").write_bytes(b"half")
    (tmp_path / "log" / "prepared-7.new").write_bytes(bytes(4096))
    plan = cli.json("repair", tmp_path / "log")
    assert [(step["name"], step["action"]) for step in plan["steps"]] == [
        (f"{last.name}.tmp", "remove"),
        ("prepared-7.new", "remove"),
        (last.name, "seal"),
    ]
    assert cli("repair", "--apply", tmp_path / "log") == 0
    listing = cli.json("ls", tmp_path / "log")["segments"]
    assert all(row["sealed"] for row in listing)
    assert not list((tmp_path / "log").glob("*.tmp")) + list((tmp_path / "log").glob("*.new"))
    assert cli("repair", tmp_path / "log") == 0
    assert cli.out == "nothing to repair\n"


def test_a_segment_whose_rename_was_lost_gets_its_name(tmp_path: Path, cli: Cli) -> None:
    """The file under its prepared name is shown, served and renamed."""
    write(tmp_path / "log", 60)
    last = segments(tmp_path / "log")[-1]
    last.rename(tmp_path / "log" / "prepared-3.new")
    assert len(cli.lines("dump", tmp_path / "log")) == 60
    (step,) = cli.json("repair", tmp_path / "log")["steps"]
    assert (step["name"], step["action"]) == ("prepared-3.new", "rename")
    assert cli("repair", "--apply", tmp_path / "log") == 0
    assert last.exists()


def test_a_log_that_is_written_is_not_repaired(tmp_path: Path, cli: Cli) -> None:
    """The plan is shown; --apply is refused while another process holds the lock."""
    with BlockingLog(tmp_path / "log") as log:
        log.append(1)
        assert cli("repair", tmp_path / "log") == 0
        words = cli.refused("repair", "--apply", tmp_path / "log")
        assert words == f"another process uses {tmp_path}/log: stop it first, or wait until it ends"
        log.append(2)


def test_no_space_loses_nothing(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repair cuts nothing while it cannot store a copy of the cut bytes; with space, it cuts."""
    write(tmp_path / "log", 60)
    files = segments(tmp_path / "log")
    flip(files[0], frames(files[0])[4][0] + 90)
    with files[-1].open("r+b") as file:
        file.truncate(frames(files[-1])[-1][1] - 3)
    before = tree(tmp_path / "log")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "pwrite", full)
        words = cli.refused("repair", "--apply", "--salvage", tmp_path / "log")
        assert words.startswith(f"no space left for {tmp_path}/log")
    after = tree(tmp_path / "log")
    assert all(after[name] == data for name, data in before.items())
    assert cli("repair", "--apply", "--salvage", tmp_path / "log") == 0
    assert cli.json("verify", tmp_path / "log")["served"] == 58


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[str]:
    """The address of another process's copy of a log of 90 records, which is also in `log`."""
    write(tmp_path / "log", 90)
    shutil.copytree(tmp_path / "log", tmp_path / "replica")
    with BlockingLog(tmp_path / "replica") as core, SegmentServer(core) as server:
        yield "{}:{}".format(*server.address)


def test_damaged_segments_come_from_a_replica(tmp_path: Path, cli: Cli, replica: str) -> None:
    """Every byte is as it was, the damaged files are kept, and without --apply nothing happens."""
    path = tmp_path / "log"
    whole = tree(path)
    first, second = segments(path)[:2]
    flip(first, 500)
    second.write_bytes(b"overwritten by something else" * 10)
    damaged = tree(path)
    plan = cli.json("repair", "--from", replica, path, code=1)
    assert [(step["name"], step["action"]) for step in plan["steps"]] == [
        (first.name, "fetch"),
        (second.name, "fetch"),
    ]
    assert tree(path) == damaged
    done = cli.json("repair", "--from", replica, "--apply", path)
    assert done["damage"] == []
    after = tree(path)
    assert {name: data for name, data in after.items() if not name.endswith(".broken")} == whole
    broken = [data for name, data in sorted(after.items()) if name.endswith(".broken")]
    assert broken == [damaged[first.name], damaged[second.name]]
    appends_again(path, 91)


def test_a_replica_that_has_no_good_copy(tmp_path: Path, cli: Cli, replica: str) -> None:
    """Segments that the replica lacks stay damaged, unless --salvage is set too."""
    path = tmp_path / "log"
    first = segments(path)[0]
    (tmp_path / "replica" / first.name).unlink()
    flip(first, frames(first)[2][0] + 90)
    assert cli("repair", "--from", replica, "--apply", path) == 1
    assert "damage remains" in cli.out
    assert cli("repair", "--from", replica, "--salvage", "--apply", path) == 0
    assert cli.json("verify", path)["served"] == 89


def test_a_replica_of_another_log(tmp_path: Path, cli: Cli, replica: str) -> None:
    """It is refused, and nothing changes."""
    write(tmp_path / "other", 90)
    flip(segments(tmp_path / "other")[0], 500)
    before = tree(tmp_path / "other")
    words = cli.refused("repair", "--from", replica, "--apply", tmp_path / "other")
    assert words.startswith(f"the replica at {replica} failed: ")
    assert "another log" in words
    assert tree(tmp_path / "other") == before


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no replica answers at 127.0.0.1:1: Connection refused"),
        ("nowhere", "'nowhere' is not an address: write HOST:PORT, as in 10.0.0.5:7400"),
        ("host:99999", "is not an address"),
        ("host:", "is not an address"),
        ("host:" + "9" * 5000, "is not an address"),
    ],
)
def test_an_address_that_does_not_answer(tmp_path: Path, cli: Cli, address: str, words: str) -> None:
    """One sentence, before anything else is done."""
    write(tmp_path / "log", 1)
    assert words in cli.refused("repair", "--from", address, tmp_path / "log")
