"""`lorogo log` in unusual places: foreign files, a full pipe, a live writer, a lost newest segment."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lorogo_cli.log import found
from lorogo_cli.log.found import writer_of
from lorogo_cli.log.survey import LEFT_OUT
from lorogo_log import BlockingLog, LogOptions
from tests.cli.logs import Cli, flip, frames, segments, tree, write
from tests.cli.support import COMMAND, Running, environment, until

# -- foreign files ---------------------------------------------------------------------------------------


def _directory(victim: Path) -> None:
    victim.unlink()
    victim.mkdir()


def _pipe(victim: Path) -> None:
    victim.unlink()
    os.mkfifo(victim)


def _dangling(victim: Path) -> None:
    victim.unlink()
    victim.symlink_to("nowhere")


def _renamed(victim: Path) -> None:
    victim.rename(victim.with_name("00000000000000000040-01700000000000000000.seg"))


def _of_another_log(victim: Path) -> None:
    write(victim.parent.parent / "other", 90)
    shutil.copy(victim.parent.parent / "other" / victim.name, victim)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_directory, "is a directory, not a file of the log"),
        (_pipe, "is not a regular file"),
        (_dangling, "is a broken link"),
        (_renamed, "has another segment's name (by its header it is 000"),
        (_of_another_log, "belongs to another log"),
    ],
)
def test_what_is_no_segment_is_named_and_the_rest_served(
    tmp_path: Path, cli: Cli, command: list[str], spoil: Callable[[Path], None], words: str
) -> None:
    """Under a segment's name: each command names it and what to do, reads the rest, changes nothing."""
    path = tmp_path / "log"
    write(path, 90)
    victim = segments(path)[1]
    rest = 90 - len(frames(victim))
    spoil(victim)
    before = sorted(file.name for file in path.iterdir())
    applying = "--apply" in command
    assert cli(*command, path) == (2 if applying else 1)
    said = cli.out + cli.err
    assert words in said
    assert "move it" in said
    if command == ["dump"]:
        assert len(cli.out.splitlines()) == rest
        assert cli.err.count("\n") == 1
    if command == ["verify"]:
        assert f"{rest} records served: all present segments are good" in cli.out
    if applying:
        assert cli.out == ""
        assert cli.err.endswith("move it away first; nothing was changed\n")
    assert sorted(file.name for file in path.iterdir()) == before


@pytest.mark.parametrize("name", ["prepared-9.new", "replica.state.tmp", "append.lock"])
def test_directories_under_other_names_of_the_log(tmp_path: Path, cli: Cli, name: str) -> None:
    """Such directories would block the next writer, so verify reports them."""
    write(tmp_path / "log", 3)
    (tmp_path / "log" / name).unlink(missing_ok=True)
    (tmp_path / "log" / name).mkdir()
    report = cli.json("verify", tmp_path / "log", code=1)
    assert (report["good"], report["served"]) == (False, 3)
    assert report["blocking"] == [
        {"path": f"{tmp_path}/log/{name}", "reason": "is a directory, not a file of the log"}
    ]


def test_two_files_that_begin_with_one_record(tmp_path: Path, cli: Cli) -> None:
    """Both are named, one is served, and which of them to keep is left to people."""
    path = tmp_path / "log"
    write(path, 3)
    shutil.copytree(path, tmp_path / "restored")
    write(path, 3, first=3)
    write(tmp_path / "restored", 2, first=10)
    longer, twin = segments(path)[-1], segments(tmp_path / "restored")[-1]
    shutil.copy(twin, path)
    report = cli.json("verify", path, code=1)
    assert (report["good"], report["served"]) == (False, 6)
    reason = f"starts with the same record as {longer.name}, which is served instead"
    assert report["blocking"] == [{"path": str(path / twin.name), "reason": reason}]
    before = tree(path)
    assert cli("repair", path, "--apply") == 2
    assert twin.name in cli.err
    assert tree(path) == before


def test_a_segment_given_instead_of_its_directory(tmp_path: Path, cli: Cli) -> None:
    """The sentence names the directory."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")
    words = cli.refused("verify", segment)
    assert words == f"{segment} is a file, not a log directory: use its directory, {tmp_path}/log"


# -- json ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["missing", "file", "empty", "other"])
def test_an_error_is_json_too(tmp_path: Path, cli: Cli, command: list[str], what: str) -> None:
    """With --json stdout gets {"error": ...}, stderr the same sentence; the exit code is 2."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("x")
    answer = cli.json(*command, tmp_path / what, code=2)
    assert answer["directory"] == str(tmp_path / what)
    assert cli.err == f"lorogo: {answer['error']}\n"


def test_an_error_of_ship_is_json_too(tmp_path: Path, cli: Cli) -> None:
    """Every command with --json reports its error in the same form."""
    answer = cli.json("ship", tmp_path / "missing", f"file://{tmp_path}/archive", code=2)
    assert answer["directory"] == str(tmp_path / "missing")
    assert cli.err == f"lorogo: {answer['error']}\n"


def test_one_document_also_where_a_segment_cannot_be_read(tmp_path: Path, cli: Cli) -> None:
    """Both ls and verify print their JSON once; the problem is in it."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[0]
    data = bytearray(victim.read_bytes())
    data[10] = 99  # an unknown checksum kind: nothing can be checked
    victim.write_bytes(data)
    for name in ("ls", "verify"):
        assert cli(name, "--json", tmp_path / "log") in {1, 2}
        assert len(json.loads(cli.out)["segments"]) == len(segments(tmp_path / "log"))


# -- what is lost ----------------------------------------------------------------------------------------


def test_one_loss_counts_once(tmp_path: Path, cli: Cli) -> None:
    """A bad header and a bad first frame are two places and one lost record."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[1]
    flip(victim, 40)
    flip(victim, frames(victim)[0][0] + 90)
    report = cli.json("verify", tmp_path / "log", code=1)
    first = int(victim.name[:20])
    assert [fault["lost"] for fault in report["segments"][1]["damage"]] == [None, [first, first]]
    assert (report["served"], report["lost_at_least"], report["lost_at_most"]) == (59, 1, 1)


@pytest.mark.parametrize("spoiled", ["zeros", "empty", "header"])
def test_a_newest_segment_that_holds_nothing(tmp_path: Path, cli: Cli, spoiled: str) -> None:
    """Their number is unknown; --apply alone changes nothing, --salvage keeps the place and
    repairs the log.
    """
    path = tmp_path / "log"
    write(path, 60)
    newest = segments(path)[-1]
    whole = newest.read_bytes()
    newest.write_bytes({"zeros": bytes(len(whole)), "empty": b"", "header": whole[:128]}[spoiled])
    first = int(newest.name[:20])
    report = cli.json("verify", path, code=1)
    assert (report["served"], report["lost_at_least"], report["lost_at_most"]) == (first - 1, 1, None)
    assert cli("verify", path) == 1
    assert f"record {first} and an unknown number of later records are lost" in cli.out
    assert "at least 1 lost: everything else is good and served" in cli.out
    before = tree(path)
    assert cli("repair", path) == 1
    assert "nothing was changed; --apply alone would not change anything either" in cli.out
    assert f"best: `lorogo log repair {path} --from HOST:PORT --apply`" in cli.out
    assert cli("repair", "--apply", path) == 1
    assert f"record {first} and an unknown number of later records" in cli.out
    assert tree(path) == before
    assert cli("repair", "--salvage", path) == 1
    assert "set aside" in cli.out
    assert cli("repair", "--salvage", "--apply", path) == 0, cli.out
    assert f"kept: {newest.name}.0.broken" in cli.out
    assert "unless a replica or a backup has them" in cli.out
    assert (path / f"{newest.name}.0.broken").read_bytes() == before[newest.name]
    assert cli.json("verify", path)["served"] == first - 1
    with BlockingLog(path) as log:
        assert log.damage == []
        assert log.append("after") >= first + LEFT_OUT


def test_junk_as_the_newest_segment(tmp_path: Path, cli: Cli) -> None:
    """The plan names the file to move away; --apply changes nothing before that."""
    path = tmp_path / "log"
    write(path, 60)
    newest = segments(path)[-1]
    newest.write_bytes(b"PK\x03\x04 no segment" * 30)
    before = tree(path)
    assert cli("repair", path) == 1
    assert "not a segment of a lorogo log: move it away manually, or --from or --salvage" in cli.out
    assert cli.refused("repair", "--apply", path).endswith("move it away first; nothing was changed")
    assert tree(path) == before
    shutil.copytree(path, tmp_path / "other")
    assert cli("repair", "--salvage", "--apply", tmp_path / "other") == 0
    newest.rename(tmp_path / "away")
    assert cli("repair", "--apply", path) == 0


def test_a_plan_says_that_nothing_was_changed(tmp_path: Path, cli: Cli) -> None:
    """The plan also has the commands that would repair the log."""
    path = tmp_path / "log"
    write(path, 60)
    victim = segments(path)[0]
    flip(victim, frames(victim)[4][0] + 90)
    assert cli("repair", path) == 1
    assert "nothing was changed; --apply alone would not change anything either" in cli.out
    assert f"best: `lorogo log repair {path} --from HOST:PORT --apply`" in cli.out
    assert f"else: `lorogo log repair {path} --salvage --apply`" in cli.out
    assert cli("repair", "--salvage", path) == 1
    assert "nothing was changed; --apply runs these steps" in cli.out


# -- a live log ------------------------------------------------------------------------------------------


def test_the_writer_is_seen_without_touching_its_lock(tmp_path: Path) -> None:
    """The kernel tells which process holds the append lock; without a writer there is none."""
    if not found._LOCKS.exists():
        pytest.skip("this system has no list of locks")
    with BlockingLog(tmp_path / "log") as log:
        log.append(1)
        assert writer_of(tmp_path / "log") == os.getpid()
    assert writer_of(tmp_path / "log") is None
    assert writer_of(tmp_path / "missing") is None


def test_the_end_of_a_live_segment_is_no_damage(tmp_path: Path, cli: Cli) -> None:
    """Half a commit where a writer is at work is `being written`; the same without a writer is torn."""
    if not found._LOCKS.exists():
        pytest.skip("this system has no list of locks")
    path = tmp_path / "log"
    with BlockingLog(path, LogOptions(ahead_bytes=64 << 10)) as log:
        log.append_many([(b"k", n) for n in range(7)])
        (segment,) = segments(path)
        whole = segment.read_bytes()
        ((start, end),) = frames(segment)
        half = whole[:end] + whole[start : start + 60] + whole[end + 60 :]
        shutil.copytree(path, tmp_path / "dead")
        (tmp_path / "dead" / segment.name).write_bytes(half)
        segment.write_bytes(half)
        for name in ("ls", "verify"):
            (row,) = cli.json(name, path)["segments"]
            assert (row["state"], row["records"], row["last_sequence"]) == ("being written", 7, 7)
        assert cli("verify", path) == 0
        assert "a process is writing to the log" in cli.out
        assert len(cli.lines("dump", path)) == 7
        plan = cli.json("repair", path)
        assert (plan["steps"], plan["writer"]) == ([], os.getpid())
        assert cli("repair", path) == 0
        assert "is writing to the log: stop it before you use --apply" in cli.out
        segment.write_bytes(whole)
    (row,) = cli.json("verify", tmp_path / "dead", code=1)["segments"]
    assert row["state"] == "torn"


def test_rows_of_a_live_log_agree_with_themselves(tmp_path: Path, cli: Cli) -> None:
    """Records, first and last sequence of each row are of one moment, however fast the writer is."""
    code = (
        "from lorogo_log import BlockingLog, LogOptions, Sync\n"
        "log = BlockingLog('log', LogOptions(segment_bytes=50000, sync=Sync.os()))\n"
        "for _ in range(20000):\n    log.append_many([(b'k', n) for n in range(7)])\n"
        "input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdin=subprocess.PIPE
    )
    try:
        until("three segments", lambda: (tmp_path / "log").exists() and len(segments(tmp_path / "log")) > 3)
        for name in ("ls", "verify", "ls", "verify"):
            rows = cli.json(name, tmp_path / "log")["segments"]
            for row in rows:
                assert row["records"] == (row["last_sequence"] or 0) - row["first_sequence"] + 1, row
                assert row["state"] in {"sealed", "good", "being written"}
            for one, other in itertools.pairwise(rows):
                assert one["last_sequence"] + 1 == other["first_sequence"]
    finally:
        process.kill()
        process.communicate(timeout=30)


# -- pipes, terminals, Ctrl-C ----------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A log that does not fit into a pipe."""
    with BlockingLog(tmp_path / "log", LogOptions(segment_bytes=200_000)) as log:
        for _ in range(40):
            log.append_many([(b"", os.urandom(1000)) for _ in range(100)])
    return tmp_path / "log"


def run_to(arguments: list[str], out: int, cwd: Path) -> tuple[int, str]:
    result = subprocess.run(
        [*COMMAND, "log", *arguments],
        stdout=out,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=cwd,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stderr.decode()


def test_export_into_a_pipe_is_parquet(tmp_path: Path, large: Path, cli: Cli) -> None:
    """`--to -` writes the file's bytes to stdout and makes no file named `-`."""
    pq = pytest.importorskip("pyarrow.parquet")
    with (tmp_path / "out.parquet").open("wb") as file:
        assert run_to(["export", "log", "--to", "-"], file.fileno(), tmp_path) == (0, "")
    assert pq.read_table(tmp_path / "out.parquet")["sequence"].to_pylist() == list(range(1, 4001))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "out.parquet"]
    assert "both use stdout" in cli.json("export", large, "--to", "-", code=2)["error"]


def test_export_into_a_terminal_is_refused(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet is not readable on a screen."""
    pytest.importorskip("pyarrow")
    write(tmp_path / "log", 1)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "Parquet is binary" in cli.refused("export", tmp_path / "log", "--to", "-")


@pytest.mark.parametrize("name", ["ls", "verify", "dump", "tail -n 4000", "repair", "export --to -"])
def test_output_that_cannot_be_written(tmp_path: Path, large: Path, name: str) -> None:
    """A full disk behind stdout is one sentence that does not blame the log; a closed pipe is silence."""
    if name.startswith("export"):
        pytest.importorskip("pyarrow")
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("wb") as full:
        code, words = run_to([*name.split(), "log"], full.fileno(), tmp_path)
    assert code == 2
    assert words == "lorogo: the output is incomplete: it could not be written: No space left on device\n"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run_to([*name.split(), "log"], writing, tmp_path) == (1, "")
    finally:
        os.close(writing)


@pytest.mark.parametrize("name", ["verify log", "dump log", "export log --to x.parquet", "repair log"])
def test_ctrl_c_ends_quietly(tmp_path: Path, large: Path, name: str) -> None:
    """Exit code 130, not a word, no file left behind, the log as it was."""
    before = tree(large)
    code = (
        "import os, signal, sys\nfrom lorogo_log.storage import segment\nfrom lorogo_cli import main\n"
        "kept = segment.Frames.next\n"
        "def pressed(self):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return kept(self)\n"
        "segment.Frames.next = pressed\n"
        f"sys.argv = ['lorogo', 'log', *{name.split()!r}]\nmain()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr.decode()) == (130, "")
    assert tree(large) == before
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_following_ends_with_ctrl_c_also_for_people(tmp_path: Path) -> None:
    """No traceback, code 130."""
    write(tmp_path / "log", 2)
    following = Running(["log", "tail", "-f", str(tmp_path / "log")], cwd=tmp_path, name="tail")
    try:
        following.wait_for('{"n":1}')
        assert following.stop(signal.SIGINT) == 130
        assert following.err.read_text() == ""
    finally:
        following.kill()
