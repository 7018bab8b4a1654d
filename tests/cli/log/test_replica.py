"""`lorogo log repair --from`: repair gives up no record that a replica has, and fetches whole segments."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lorogo_cli.log.survey import LEFT_OUT
from lorogo_log import BlockingLog, LogOptions
from lorogo_log.transfer.segment_transfer import SegmentServer
from tests.cli.logs import START, Cli, flip, frames, segments, tree, write


@contextmanager
def serving(path: Path, secret: bytes | None = None) -> Iterator[str]:
    """The address of a process that has the log in `path`."""
    with BlockingLog(path) as core, SegmentServer(core, secret=secret) as server:
        yield "{}:{}".format(*server.address)


def seg_files(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(path).items() if name.endswith(".seg")}


def copied(tmp_path: Path, count: int = 90) -> Path:
    """A log, and the same as `replica`."""
    write(tmp_path / "log", count)
    shutil.copytree(tmp_path / "log", tmp_path / "replica")
    return tmp_path / "log"


# -- torn ------------------------------------------------------------------------------------------------


def test_a_torn_end_is_fetched_before_it_is_cut(tmp_path: Path, cli: Cli) -> None:
    """Repair fetches the segment from a replica that has more of it, and cuts only records that no replica
    has.
    """
    path = copied(tmp_path)
    whole = seg_files(path)
    newest = segments(path)[-1]
    with newest.open("r+b") as file:
        file.truncate(frames(newest)[-1][1] - 3)
    torn = newest.read_bytes()
    assert cli("repair", path) == 1
    assert f"best: `lorogo log repair {path} --from HOST:PORT --apply`" in cli.out
    with serving(tmp_path / "replica") as address:
        (step,) = cli.json("repair", "--from", address, path, code=1)["steps"]
        assert (step["name"], step["action"]) == (newest.name, "fetch")
        assert newest.read_bytes() == torn
        assert cli("repair", "--from", address, "--apply", path) == 0
    assert seg_files(path) == whole
    assert (path / f"{newest.name}.0.broken").read_bytes() == torn


def test_a_torn_end_of_which_the_replica_has_no_more_is_cut(tmp_path: Path, cli: Cli) -> None:
    """It holds the same good records and nothing behind them."""
    write(tmp_path / "log", 3)
    (newest,) = segments(tmp_path / "log")
    shutil.copytree(tmp_path / "log", tmp_path / "replica")
    with newest.open("r+b") as file:
        file.truncate(frames(newest)[-1][1])
        file.seek(0, 2)
        file.write(b"half a commit")
    with serving(tmp_path / "replica") as address:
        (step,) = cli.json("repair", "--from", address, "--apply", tmp_path / "log")["steps"]
    assert step["action"] == "cut"
    assert cli.json("verify", tmp_path / "log")["served"] == 3


@pytest.mark.parametrize("spoiled", ["torn", "zeros"])
def test_a_segment_that_is_open_at_the_replica_is_fetched_and_sealed(
    tmp_path: Path, cli: Cli, spoiled: str
) -> None:
    """Repair fetches the replica's bytes exactly, also while the replica still writes the segment."""
    with BlockingLog(tmp_path / "replica") as core, SegmentServer(core) as server:
        for number in range(5):
            core.append(number)
        shutil.copytree(tmp_path / "replica", tmp_path / "log")
        (newest,) = segments(tmp_path / "log")
        end = frames(newest)[-1][1]
        data = newest.read_bytes()
        newest.write_bytes(data[: end - 3] if spoiled == "torn" else bytes(len(data)))
        address = "{}:{}".format(*server.address)
        assert cli("repair", "--from", address, "--apply", tmp_path / "log") == 0, (cli.out, cli.err)
    report = cli.json("verify", tmp_path / "log")
    assert (report["served"], report["good"], report["segments"][0]["sealed"]) == (5, True, True)
    assert newest.read_bytes()[:end] == data[:end]
    with BlockingLog(tmp_path / "log") as log:
        assert log.append("after") == 6


def test_a_replica_with_other_records_is_not_believed(tmp_path: Path, cli: Cli) -> None:
    """The same segment with another history is refused, and nothing changes."""
    with BlockingLog(tmp_path / "log", LogOptions(log_id=b"i" * 16), now=lambda: START) as log:
        log.append("one")
        log.append("two")
    with BlockingLog(tmp_path / "replica", LogOptions(log_id=b"i" * 16), now=lambda: START) as log:
        for number in range(3):
            log.append(number)
    (newest,) = segments(tmp_path / "log")
    with newest.open("r+b") as file:
        file.truncate(frames(newest)[-1][1] - 3)
    before = tree(tmp_path / "log")
    with serving(tmp_path / "replica") as address:
        words = cli.refused("repair", "--from", address, "--apply", tmp_path / "log")
    assert words.endswith("it is a different log")
    assert tree(tmp_path / "log") == before


# -- gaps ------------------------------------------------------------------------------------------------


def test_missing_segments_come_back_with_fill_gaps(tmp_path: Path, cli: Cli) -> None:
    """Without --fill-gaps, missing segments are only reported, because retention may have removed them."""
    path = copied(tmp_path, 180)
    whole = seg_files(path)
    files = segments(path)
    assert len(files) >= 5
    for file in (files[1], files[2], files[-1]):
        file.unlink()
    left = tree(path)
    with serving(tmp_path / "replica") as address:
        assert cli("repair", "--from", address, "--apply", path) == 0
        assert "--fill-gaps fetches them" in cli.out
        assert tree(path) == left
        plan = cli.json("repair", "--from", address, "--fill-gaps", path)
        assert [step["name"] for step in plan["steps"]] == [files[1].name, files[2].name, files[-1].name]
        assert {step["action"] for step in plan["steps"]} == {"fetch"}
        assert tree(path) == left
        assert cli("repair", "--from", address, "--fill-gaps", "--apply", path) == 0, (cli.out, cli.err)
        assert cli.out.endswith("everything is good now\n")
        assert seg_files(path) == whole
        assert cli("repair", "--from", address, "--fill-gaps", path) == 0
        assert cli.out == "nothing to repair\n"
    assert "needs a replica to fetch segments from" in cli.refused("repair", "--fill-gaps", path)


# -- what is left out ------------------------------------------------------------------------------------


def test_what_a_writer_left_out_is_a_bound_and_no_lost_file(tmp_path: Path, cli: Cli) -> None:
    """A lost newest segment costs at least one record; fetched back, the rest was never given."""
    path = copied(tmp_path)
    newest = segments(path)[-1]
    newest.write_bytes(bytes(4096))
    first = int(newest.name[:20])
    write(path, 2, first=90)
    report = cli.json("verify", path, code=1)
    assert (report["lost_at_least"], report["lost_at_most"]) == (1, LEFT_OUT)
    assert cli("verify", path) == 1
    assert f"records from {first} on (at least 1, at most {LEFT_OUT}) are lost" in cli.out
    assert f"at least 1, at most {LEFT_OUT} lost: everything else is good" in cli.out
    with serving(tmp_path / "replica") as address:
        assert cli("repair", "--from", address, "--apply", path) == 0, (cli.out, cli.err)
    assert "a file was lost" not in cli.out
    assert f"left out: sequences 91 to {first + LEFT_OUT - 1} were never assigned" in cli.out
    report = cli.json("verify", "--no-gaps", path)
    assert (report["served"], report["gaps"]) == (92, [])
    assert report["left_out"] == [[91, first + LEFT_OUT - 1]]


# -- secrets ---------------------------------------------------------------------------------------------


def test_a_secret_comes_from_a_file_or_the_environment(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the secret the replica sends nothing; with it the log is repaired."""
    path = copied(tmp_path)
    file = tmp_path / "secret"
    file.write_bytes(b"open sesame\n")
    with serving(tmp_path / "replica", b"open sesame") as address:
        flip(segments(path)[0], 500)
        assert "secret" in cli.refused("repair", "--from", address, path)
        assert cli("repair", "--from", address, "--secret-file", file, "--apply", path) == 0
        flip(segments(path)[1], 500)
        monkeypatch.setenv("LOROGO_LOG_SECRET", "open sesame")
        assert cli("repair", "--from", address, "--apply", path) == 0
        missing = tmp_path / "missing"
        words = cli.refused("repair", "--from", address, "--secret-file", missing, path)
        assert words == f"cannot read the secret in {missing}: No such file or directory"


# -- small things ----------------------------------------------------------------------------------------


def test_a_printed_time_given_back_finds_its_record(tmp_path: Path, cli: Cli) -> None:
    """Whatever the digits behind the milliseconds are."""
    with BlockingLog(tmp_path / "log") as log:
        for number in range(3):
            log.append(number, ts=START + number * 1_000_000_000 + 999_999)
    for record in cli.lines("dump", tmp_path / "log"):
        again = cli.lines("dump", tmp_path / "log", "--from-time", record["time"], "--limit", "1")
        assert again == [record]


def test_a_segment_that_begins_with_an_epoch_has_its_first_records_time(tmp_path: Path, cli: Cli) -> None:
    """Or none, if there is no record; never 1970."""
    with BlockingLog(tmp_path / "log", LogOptions(epoch=5)):
        pass
    (row,) = cli.json("ls", tmp_path / "log")["segments"]
    assert row["first_time_ns"] is None
    with BlockingLog(tmp_path / "other", LogOptions(epoch=5)) as log:
        log.append(1, ts=START)
        (row,) = cli.json("ls", tmp_path / "other")["segments"]
        assert row["first_time_ns"] == START
    for name in ("log", "other"):
        assert cli("ls", tmp_path / name) == 0
        assert "1970" not in cli.out


def test_broken_files_are_named_by_verify(tmp_path: Path, cli: Cli) -> None:
    """In the text and in the JSON; a copy under its segment's name in a directory of its own can be read."""
    path = tmp_path / "log"
    write(path, 60)
    victim = segments(path)[0]
    flip(victim, frames(victim)[4][0] + 90)
    assert cli("repair", "--salvage", "--apply", path) == 0
    broken = f"{victim.name}.0.broken"
    assert cli("verify", path) == 0
    assert f"set aside earlier, in 1 file: {broken}" in cli.out
    assert cli.json("verify", path)["broken"] == [broken]
    (tmp_path / "look").mkdir()
    shutil.copy(path / broken, tmp_path / "look" / victim.name)
    assert len(cli.lines("dump", tmp_path / "look", code=1)) == len(frames(victim))


def test_a_directory_of_logs_names_them(tmp_path: Path, cli: Cli) -> None:
    """One by its path, several with their number."""
    write(tmp_path / "all" / "a", 1)
    assert cli.refused("ls", tmp_path / "all").endswith(f"use {tmp_path}/all/a, the log inside it")
    for name in "bcd":
        write(tmp_path / "all" / name, 1)
    assert "choose one of the 4 logs inside it: " in cli.refused("ls", tmp_path / "all")


def test_an_export_past_damage_says_so(tmp_path: Path, cli: Cli) -> None:
    """The file has the readable records, and stderr reports that it is incomplete."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[0]
    flip(victim, frames(victim)[4][0] + 90)
    target = tmp_path / "out.parquet"
    done = cli.json("export", tmp_path / "log", "--to", target, code=1)
    assert (done["records"], done["whole"]) == (59, False)
    assert "the rest is exported; `lorogo log verify" in cli.err
    assert f"{target} is incomplete: damaged records are left out" in cli.err
