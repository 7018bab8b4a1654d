"""`lorogo log ls` and `verify`: what there is, what is wrong, what is still served."""

import struct
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from lorogo_log import BlockingLog, LogOptions
from lorogo_log.recovery import sealed_segments
from lorogo_log.storage.disk import DiskDirectory
from tests.cli.logs import SECOND, START, Cli, flip, frames, segments, tree, write

# -- ls --------------------------------------------------------------------------------------------------


def test_ls_shows_every_segment(tmp_path: Path, cli: Cli) -> None:
    """A row per segment: name, first and last sequence, times, records, bytes, and the state from
    the footer.
    """
    write(tmp_path / "log", 60)
    listing = cli.json("ls", tmp_path / "log")["segments"]
    files = segments(tmp_path / "log")
    assert [row["name"] for row in listing] == [file.name for file in files]
    assert len(files) > 1
    assert listing[0]["first_sequence"] == 1
    assert listing[-1]["last_sequence"] == 60
    assert listing[0]["first_time_ns"] == START
    assert listing[-1]["last_time_ns"] == START + 59 * SECOND
    assert sum(row["records"] for row in listing) == 60
    assert [row["bytes"] for row in listing] == [file.stat().st_size for file in files]
    assert all(row["sealed"] and row["state"] == "sealed" for row in listing)
    assert cli("ls", tmp_path / "log") == 0
    table = cli.out.splitlines()
    assert " ".join(table[0].split()) == "SEGMENT FIRST LAST FROM TO RECORDS SIZE STATE"
    assert len(table) == 1 + len(files)
    assert table[1].startswith(files[0].name)


def test_ls_and_verify_while_a_writer_is_at_it(tmp_path: Path, cli: Cli) -> None:
    """The segment that is being written is called so, counted as far as it is, and no damage."""
    with BlockingLog(tmp_path / "log", LogOptions(ahead_bytes=64 << 10)) as log:
        log.append_many([(b"k", n) for n in range(7)])
        (row,) = cli.json("ls", tmp_path / "log")["segments"]
        assert (row["state"], row["sealed"], row["records"], row["last_sequence"]) == (
            "being written",
            False,
            7,
            7,
        )
        assert cli.json("verify", tmp_path / "log")["good"] is True
        log.append(8)
        assert cli.json("verify", tmp_path / "log")["served"] == 8


def test_ls_of_a_log_without_records(tmp_path: Path, cli: Cli) -> None:
    """A log without appended records is valid."""
    BlockingLog(tmp_path / "log").close()
    assert cli("ls", tmp_path / "log") == 0
    assert cli.out == "no segments yet\n"
    assert cli("verify", tmp_path / "log") == 0
    assert cli.lines("dump", tmp_path / "log") == []
    assert cli.lines("tail", tmp_path / "log") == []


def test_in_a_terminal_there_are_tables_and_progress(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar and remarks are on stderr of a terminal only; foreign files are named, not touched."""
    write(tmp_path / "log", 3)
    (tmp_path / "log" / "notes.txt").write_text("mine")
    assert cli("verify", tmp_path / "log") == 0
    assert cli.err == ""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli("verify", tmp_path / "log") == 0
    assert "SEGMENT" in cli.out
    assert "verifying" in cli.err
    assert "notes.txt" in cli.err
    assert cli("ls", tmp_path / "log") == 0
    assert "1 segment, 3 records" in cli.err


def test_verify_says_where_segments_are_missing(tmp_path: Path, cli: Cli) -> None:
    """A missing segment may be retention or a loss: verify shows its sequences, and --no-gaps makes it
    damage.
    """
    write(tmp_path / "log", 90)
    files = segments(tmp_path / "log")
    assert len(files) > 2
    files[1].unlink()
    report = cli.json("verify", tmp_path / "log")
    first, last = int(files[1].name[:20]), int(files[2].name[:20]) - 1
    assert report["gaps"] == [[first, last]]
    assert cli("verify", tmp_path / "log") == 0
    gap = f"no segment has sequences {first} to {last}: retention removed a segment, or a file was lost"
    assert gap in cli.out
    assert "all present segments are good" in cli.out
    assert cli.json("verify", "--no-gaps", tmp_path / "log", code=1)["good"] is False
    assert cli("repair", tmp_path / "log") == 0
    assert f"no segment has sequences {first} to {last}" in cli.out


def test_cleaned_segments_are_good(tmp_path: Path, cli: Cli) -> None:
    """Records that were cleaned away are not lost ones."""
    write(tmp_path / "log", 60)
    sealed_segments.clean(DiskDirectory(tmp_path / "log"), lambda _, record: record.key == b"doc-1")
    report = cli.json("verify", tmp_path / "log")
    assert (report["good"], report["served"], report["lost"]) == (True, 40, 0)
    assert cli("ls", tmp_path / "log") == 0
    assert "sealed, rewritten" in cli.out


# -- verify: damage --------------------------------------------------------------------------------------


def test_one_flipped_bit_in_the_middle(tmp_path: Path, cli: Cli) -> None:
    """The report has the path and the offset; only the records of that frame are lost, all others
    are served.
    """
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[1]
    places = frames(victim)
    start, end = places[len(places) // 2]
    first = int(victim.name[:20])
    flip(victim, start + 90)
    before = tree(tmp_path / "log")
    report = cli.json("verify", tmp_path / "log", code=1)
    (fault,) = [fault for row in report["segments"] for fault in row["damage"]]
    bad = first + len(places) // 2
    assert fault == {
        "kind": "corrupt",
        "path": str(victim),
        "offset": start,
        "reason": "the frame's body does not match its checksum",
        "goes_on": end,
        "lost": [bad, bad],
        "bound": False,
    }
    assert (report["served"], report["lost"]) == (59, 1)
    assert cli("verify", tmp_path / "log") == 1
    assert f"{victim} at byte {start}: " in cli.out
    assert f"record {bad} is lost; good again from byte {end}" in cli.out
    assert "59 records served, 1 lost: everything else is good and served" in cli.out
    assert f"nothing was changed; next: `lorogo log repair {tmp_path}/log` shows possible repairs" in cli.out
    served = [record["sequence"] for record in cli.lines("dump", tmp_path / "log", code=1)]
    assert served == [number for number in range(1, 61) if number != bad]
    assert f"{victim} at byte {start}" in cli.err
    assert tree(tmp_path / "log") == before


def test_every_cut_in_the_last_frame(tmp_path: Path, cli: Cli) -> None:
    """Wherever a crash cut the last commit, it is torn, everything before it is served, nothing changes."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")
    start, end = frames(segment)[-1]
    whole = segment.read_bytes()
    for size in range(start, end):
        segment.write_bytes(whole[:size])
        report = cli.json("verify", tmp_path / "log", code=0 if size == start else 1)
        (row,) = report["segments"]
        assert (report["served"], report["lost"]) == (2, 0)
        assert row["last_sequence"] == 2
        if size == start:  # cut between two frames: the end of an open segment
            assert row["state"] == "not closed"
        else:
            assert row["state"] == "torn"
            assert [(fault["kind"], fault["offset"]) for fault in row["damage"]] == [("torn", start)]
        assert segment.read_bytes() == whole[:size]
    segment.write_bytes(whole[:end])
    assert cli.json("verify", tmp_path / "log")["served"] == 3


@pytest.mark.slow
@pytest.mark.timeout(400)  # two commands for each byte
def test_every_flipped_byte_is_found(tmp_path: Path, cli: Cli) -> None:
    """No byte of a sealed segment can change unseen; what verify counts as served is what dump gives."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")
    whole = segment.read_bytes()
    for at in range(len(whole)):
        flip(segment, at)
        report = cli.json("verify", tmp_path / "log", code=1)
        assert report["served"] + report["lost"] == 3, (at, report)
        given = cli.lines("dump", tmp_path / "log", code=_seen_by_dump(cli))
        assert len(given) == report["served"], (at, report)
        segment.write_bytes(whole)


def _seen_by_dump(cli: Cli) -> int:
    """Dump reads frames and headers: damage of the trailer does not hurt it."""
    return 1 if '"goes_on":null' not in cli.out or '"lost":null' not in cli.out else 0


@pytest.mark.parametrize("keep", ["frames", "trailer", "footer"])
def test_a_middle_segment_that_ends_too_early(tmp_path: Path, cli: Cli, keep: str) -> None:
    """Records missing before the next segment are lost; a trailer that is not whole loses nothing."""
    write(tmp_path / "log", 60)
    files = segments(tmp_path / "log")
    places = frames(files[0])
    size = {"frames": places[-2][1], "trailer": places[-1][1] + 20, "footer": files[0].stat().st_size - 4}[
        keep
    ]
    with files[0].open("r+b") as file:
        file.truncate(size)
    report = cli.json("verify", tmp_path / "log", code=1)
    (fault,) = report["segments"][0]["damage"]
    if keep == "frames":
        last = int(files[1].name[:20]) - 1
        assert (fault["kind"], fault["lost"], report["served"]) == ("corrupt", [last, last], 59)
    else:
        assert (fault["kind"], fault["lost"], report["served"]) == ("seal", None, 60)


def test_several_bad_places_are_all_reported(tmp_path: Path, cli: Cli) -> None:
    """Each damaged place has its line."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[0]
    places = frames(victim)
    for number in (2, 3, 9, len(places) - 1):
        flip(victim, places[number][0] + 8)
    report = cli.json("verify", tmp_path / "log", code=1)
    lost = [fault["lost"] for fault in report["segments"][0]["damage"]]
    assert lost == [[3, 4], [10, 10], [len(places), len(places)]]
    assert report["served"] == 56


# -- what cannot be read ---------------------------------------------------------------------------------


def test_a_directory_that_is_no_log(tmp_path: Path, cli: Cli, command: list[str]) -> None:
    """Missing, a file, empty, full of other things, the parent of a log: one sentence each, nothing made."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for name in "abcde":
        (tmp_path / "other" / name).write_text("x")
    write(tmp_path / "parent" / "p0", 1)
    write(tmp_path / "data" / "worker-0" / "journal" / "00", 1)
    write(tmp_path / "data" / "worker-0" / "replicas" / "other" / "00", 1)
    journals = f"{tmp_path}/data/worker-0/journal/00, {tmp_path}/data/worker-0/replicas/other/00"
    for name, words in [
        ("missing", "missing does not exist: check the path"),
        ("file", "file is a file, not a log directory"),
        ("empty", "empty is empty: it has no log; check the path"),
        ("other", "other is not a log: it has only other files (a, b, c and 2 others); check the path"),
        ("parent", f"parent is not a log: use {tmp_path}/parent/p0, the log inside it"),
        ("data", f"data is not a log: choose one of the 2 logs inside it: {journals}"),
        ("data/worker-0", f"worker-0 is not a log: choose one of the 2 logs inside it: {journals}"),
    ]:
        assert cli.refused(*command, tmp_path / name).endswith(words)
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (tmp_path / "missing").exists()
    assert not (tmp_path / "x.parquet").exists()


def newer(segment: Path) -> None:
    """Make it a segment of format version 9."""
    data = bytearray(segment.read_bytes())
    struct.pack_into("<H", data, 8, 9)
    struct.pack_into("<I", data, 124, crc32c(bytes(data[:124])))
    segment.write_bytes(data)


def test_a_newer_version(tmp_path: Path, cli: Cli, command: list[str]) -> None:
    """A log of a later lorogo is refused with its version, and not changed."""
    write(tmp_path / "log", 3)
    newer(segments(tmp_path / "log")[0])
    before = tree(tmp_path / "log")
    words = cli.refused(*command, tmp_path / "log")
    assert "format version 9, this program reads version 1: use a newer lorogo; nothing was changed" in words
    assert tree(tmp_path / "log") == before
    assert not (tmp_path / "x.parquet").exists()


def test_no_permission(tmp_path: Path, cli: Cli, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that this user may not open is named."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")

    def refuse(self: DiskDirectory, name: str, *, write: bool = False) -> None:
        raise PermissionError(13, "Permission denied", f"{self.path}/{name}")

    monkeypatch.setattr(DiskDirectory, "open", refuse)
    words = f"{segment} cannot be opened: permission denied; run this as the user who owns the log"
    assert cli.refused(*command, tmp_path / "log") == words


def test_no_permission_for_the_directory(
    tmp_path: Path, cli: Cli, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a directory."""
    write(tmp_path / "log", 3)

    def refuse(self: DiskDirectory) -> None:
        raise PermissionError(13, "Permission denied", self.path)

    monkeypatch.setattr(DiskDirectory, "list", refuse)
    words = f"{tmp_path}/log cannot be opened: permission denied; run this as the user who owns the log"
    assert cli.refused(*command, tmp_path / "log") == words


def test_one_unreadable_segment_of_several(tmp_path: Path, cli: Cli) -> None:
    """The others are listed and checked all the same; the exit code is 2."""
    write(tmp_path / "log", 60)
    newer(segments(tmp_path / "log")[1])
    for name in ("ls", "verify"):
        assert cli(name, tmp_path / "log") == 2
        assert cli.out.count("sealed" if name == "ls" else "good") >= 1
        assert "unreadable" in cli.out
        assert cli.err.count("\n") == 1
        assert "format version 9" in cli.err


def test_a_foreign_file_with_a_segment_name(tmp_path: Path, cli: Cli) -> None:
    """Wrong magic and no frame in it: damaged, with its path; the rest is served; salvage keeps its place."""
    write(tmp_path / "log", 90)
    victim = segments(tmp_path / "log")[1]
    victim.write_bytes(b"PK\x03\x04 something else entirely" * 20)
    report = cli.json("verify", tmp_path / "log", code=1)
    row = report["segments"][1]
    assert row["state"] == "damaged"
    (fault,) = row["damage"]
    assert fault["path"] == str(victim)
    assert "wrong magic: not a segment of a lorogo log" in fault["reason"]
    assert report["served"] + report["lost"] == 90
    assert len(cli.lines("dump", tmp_path / "log", code=1)) == report["served"]
    before = victim.read_bytes()
    assert cli("repair", "--apply", tmp_path / "log") == 1
    assert victim.read_bytes() == before
    assert cli("repair", "--salvage", "--apply", tmp_path / "log") == 0
    assert (tmp_path / "log" / f"{victim.name}.0.broken").read_bytes() == before
    after = cli.json("verify", tmp_path / "log", "--no-gaps")
    assert (after["served"], after["gaps"]) == (report["served"], [])
    with BlockingLog(tmp_path / "log") as log:
        assert (log.damage, log.append("after")) == ([], 91)


def test_a_foreign_file_as_the_only_or_newest_segment(tmp_path: Path, cli: Cli) -> None:
    """Then it is no log at all; and a repair that cannot know better changes nothing."""
    path = tmp_path / "log"
    write(path, 60)
    newest = segments(path)[-1]
    newest.write_bytes(b"not a segment at all" * 20)
    before = tree(path)
    assert cli("verify", path) == 1
    assert "wrong magic: not a segment of a lorogo log" in cli.refused("repair", "--apply", path)
    assert tree(path) == before
    for file in segments(path)[:-1]:
        file.unlink()
    assert "is not a segment of a lorogo log (wrong magic)" in cli.refused("verify", path)
