"""`lorogo log dump`, `tail` and `export`: records, while another process may be writing them."""

import base64
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lorogo_cli.log import export, values
from lorogo_log import BlockingLog, Record
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import AnswersRecord, DeletedRecord
from tests.cli.logs import SECOND, START, Cli, flip, frames, segments, write
from tests.cli.support import COMMAND, Running, environment, until

pq = pytest.importorskip("pyarrow.parquet")


def sequences(records: list[dict[str, Any]]) -> list[int]:
    return [record["sequence"] for record in records]


# -- dump ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], list(range(1, 61))),
        (["--from-seq", "58"], [58, 59, 60]),
        (["--from-seq", "1000"], []),
        (["--from-time", str(START + 57 * SECOND)], [58, 59, 60]),
        (["--from-time", "2023-11-14T22:14:18+00:00"], [59, 60]),
        (["--from-time", "10m"], []),
        (["--key", "doc-1"], list(range(2, 61, 3))),
        (["--key", "doc-1", "--from-seq", "55"], [56, 59]),
        (["--key-base64", base64.b64encode(b"doc-2").decode(), "--limit", "2"], [3, 6]),
        (["--key", "nobody"], []),
        (["--limit", "0"], []),
        (["--limit", "5"], [1, 2, 3, 4, 5]),
    ],
)
def test_dump_gives_what_was_asked_for(
    tmp_path: Path, cli: Cli, options: list[str], expected: list[int]
) -> None:
    """Records are JSON lines, from a sequence or a time, of one key, no more than a limit."""
    write(tmp_path / "log", 60)
    assert sequences(cli.lines("dump", tmp_path / "log", *options)) == expected


def test_answers_of_a_server_can_be_read(tmp_path: Path, cli: Cli) -> None:
    """In a journal they stand under a key of their own, in words, for every command that shows records."""
    record = AnswersRecord("server-1", START, START + SECOND, 3, (0, 1, 2), {"deleted": 4})
    with BlockingLog(tmp_path / "log") as log:
        log.append(records.encode(DeletedRecord("tombstone", (), 1, 0, START)), key=b"doc", ts=START)
        log.append(records.encode(record), key=records.ANSWERS_KEY, ts=record.until_ns)
    value = ["s", 2, "server-1", START, START + SECOND, 3, [0, 1, 2], {"deleted": 4}]
    both = cli.lines("dump", tmp_path / "log")
    (alone,) = cli.lines("dump", tmp_path / "log", "--key", "-answers")
    assert [one["key"] for one in both] == ["doc", "-answers"]
    assert both[1] == alone
    assert (alone["time_ns"], alone["value"]) == (record.until_ns, value)
    assert cli("tail", tmp_path / "log", "-n", "1") == 0
    assert f"  2  -answers  {json.dumps(value, separators=(',', ':'))}\n" in cli.out
    cli.json("export", tmp_path / "log", "--to", tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    assert table["key"].to_pylist() == [b"doc", b"-answers"]
    assert records.decode(msgpack.unpackb(table["value"].to_pylist()[1])) == record
    assert cli("verify", tmp_path / "log") == 0
    assert cli("ls", tmp_path / "log") == 0


def test_dump_shows_a_record(tmp_path: Path, cli: Cli) -> None:
    """Sequence, time for people, time in nanoseconds, key, value."""
    write(tmp_path / "log", 1)
    (record,) = cli.lines("dump", tmp_path / "log")
    assert record["time"].startswith("2023-11-1")
    del record["time"]
    assert record == {"sequence": 1, "time_ns": START, "key": "doc-0", "value": {"n": 0}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from-time", "yesterday"], "'yesterday' is not a time: write 2026-11-16T10:30"),
        (["--from-seq", "1", "--from-time", "10m"], "--from-seq and --from-time contradict each other"),
        (["--key", "a", "--key-base64", "YQ=="], "--key and --key-base64 contradict each other"),
        (["--key-base64", "?"], "'?' is not base64"),
        (["--from-seq", "-1"], "--from-seq"),
        (["--from-seq", str(1 << 70)], "is too large: the highest sequence is"),
        (["--limit", "many"], "--limit"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path: Path, cli: Cli, options: list[str], words: str) -> None:
    """Each mistake has its own words."""
    write(tmp_path / "log", 1)
    assert words in cli.refused("dump", tmp_path / "log", *options)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text \x1b[31m", "text \x1b[31m"),
        (b"\x00\x01", {"$bytes": "AAE="}),
        ([1, -2, 2.5, None, True], [1, -2, 2.5, None, True]),
        ({"a": {"b": b""}}, {"a": {"b": {"$bytes": ""}}}),
        ({1: "x", b"k": 2}, {"$pairs": [[1, "x"], [{"$bytes": "aw=="}, 2]]}),
        ({"$bytes": "mine"}, {"$pairs": [["$bytes", "mine"]]}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (msgpack.ExtType(5, b"x"), {"$extension": 5, "$bytes": "eA=="}),
        (msgpack.Timestamp(1, 0), {"$extension": -1, "$bytes": "AAAAAQ=="}),
    ],
)
def test_values_as_json(value: Any, shown: Any) -> None:
    """A value outside JSON becomes an object with a `$` name, without loss and without ambiguity."""
    text = values.line(Record(1, 0, b"", msgpack.packb(value)), short=False)
    parsed = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert parsed["value"] == shown
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x01\x02", b"\x91" * 600 + b"\x01", b"\xa1\xff", b"\x81\x91\x01"]
)
def test_payloads_that_are_not_what_they_should_be(payload: bytes) -> None:
    """A payload that is no msgpack, or is nested too deep to be shown, is given as it is."""
    shown = values.value(payload, short=False)
    assert shown == {"$payload": base64.b64encode(payload).decode()}


def test_keys_and_times_of_all_kinds() -> None:
    """A key is text if it can be read; every 64-bit time can be shown."""
    assert values.key(b"", short=False) is None
    assert values.key("ключ".encode(), short=False) == "ключ"
    assert values.key(b"a\nb", short=False) == {"$bytes": "YQpi"}
    assert values.key(b"\xff", short=False) == {"$bytes": "/w=="}
    shown = json.loads(values.line(Record(1, -(1 << 63), b"", b"\x01"), short=False))
    assert (shown["time"][:4], shown["time_ns"]) == ("1677", -(1 << 63))
    assert values.human(Record(1, (1 << 63) - 1, b"\xff", b"\x01")).startswith("2262-")


def test_a_terminal_gets_long_bytes_cut_short(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe and --json get all of them."""
    with BlockingLog(tmp_path / "log") as log:
        log.append(b"x" * 1000)
    everything = {"$bytes": base64.b64encode(b"x" * 1000).decode()}
    assert cli.lines("dump", tmp_path / "log")[0]["value"] == everything
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = cli.lines("dump", tmp_path / "log")[0]["value"]
    assert shown["$length"] == 1000
    assert len(shown["$bytes"]) < 50
    assert cli.lines("dump", tmp_path / "log", "--json")[0]["value"] == everything


def test_dump_into_a_pipe_that_closes(tmp_path: Path) -> None:
    """`lorogo log dump | head` ends without a traceback."""
    with BlockingLog(tmp_path / "log") as log:
        log.append_many([(b"", "x" * 1000) for _ in range(2000)])
    process = subprocess.Popen(
        [*COMMAND, "log", "dump", str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith(b'{"sequence":1,')
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 1


# -- tail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [False, True])
def test_tail_shows_the_last_records(tmp_path: Path, cli: Cli, is_open: bool) -> None:
    """The default is ten; a shorter log has fewer; filtering by key and reading a log in use work too."""
    write(tmp_path / "log", 60)
    log = BlockingLog(tmp_path / "log") if is_open else None
    try:
        if log is not None:
            log.append({"n": 60}, key=b"doc-0", ts=START + 60 * SECOND)
        end = 62 if is_open else 61
        assert sequences(cli.lines("tail", "--json", tmp_path / "log")) == list(range(end - 10, end))
        assert sequences(cli.lines("tail", "--json", "-n", "3", tmp_path / "log")) == [
            end - 3,
            end - 2,
            end - 1,
        ]
        assert len(cli.lines("tail", "--json", "-n", "1000", tmp_path / "log")) == end - 1
        assert cli.lines("tail", "--json", "-n", "0", tmp_path / "log") == []
        of_one = sequences(cli.lines("tail", "--json", "-n", "20", "--key", "doc-1", tmp_path / "log"))
        assert of_one == list(range(2, 61, 3))
        assert cli("tail", "-n", "1", tmp_path / "log") == 0
        assert cli.out.endswith(f'{end - 1}  {"doc-0" if is_open else "doc-2"}  {{"n":{end - 2}}}\n')
    finally:
        if log is not None:
            log.close()


def test_tail_follows_another_process(tmp_path: Path) -> None:
    """Records show when they are written, across rotation, each once; Ctrl-C ends it."""
    write(tmp_path / "log", 5)
    following = Running(
        ["log", "tail", "-f", "-n", "2", "--json", str(tmp_path / "log")], cwd=tmp_path, name="tail"
    )
    try:
        following.wait_for('"sequence":5,')
        write(tmp_path / "log", 80, first=5)
        following.wait_for('"sequence":85,')
        assert following.stop(2) == 130
        seen = sequences([json.loads(text) for text in following.out.read_text().splitlines()])
        assert seen == list(range(4, 86))
        assert following.err.read_text() == ""
    finally:
        following.kill()


def test_tail_follows_a_log_that_has_nothing_yet(tmp_path: Path) -> None:
    """A log without a record is followed from its first."""
    BlockingLog(tmp_path / "log").close()
    following = Running(["log", "tail", "-f", str(tmp_path / "log")], cwd=tmp_path, name="tail")
    try:
        write(tmp_path / "log", 2)
        assert "doc-1" in following.wait_for('{"n":1}')
    finally:
        following.kill()


def test_damage_on_the_way_is_reported_once(tmp_path: Path, cli: Cli) -> None:
    """Tail continues after damage, reports it on stderr, and ends with 1."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[1]
    flip(victim, frames(victim)[3][0] + 90)
    shown = cli.lines("tail", "--json", "-n", "1000", tmp_path / "log", code=1)
    assert len(shown) == 59
    assert cli.err.count("at byte") == 1


def test_a_torn_tail_is_reported(tmp_path: Path, cli: Cli) -> None:
    """A half-written record is not shown, and a line on stderr reports it."""
    write(tmp_path / "log", 3)
    (segment,) = segments(tmp_path / "log")
    with segment.open("r+b") as file:
        file.truncate(frames(segment)[-1][1] - 9)
    for name in ("dump", "tail"):
        assert sequences(cli.lines(name, "--json", tmp_path / "log", code=1)) == [1, 2]
        assert "a commit is incomplete or damaged; it is not shown" in cli.err
        assert cli.err.count("\n") == 1


# -- export ----------------------------------------------------------------------------------------------


def test_export_writes_parquet(tmp_path: Path, cli: Cli) -> None:
    """Sequence, time, key and msgpack value of every record, in one file."""
    write(tmp_path / "log", 60)
    target = tmp_path / "out.parquet"
    report = cli.json("export", tmp_path / "log", "--to", target)
    assert report == {"file": str(target), "records": 60, "bytes": target.stat().st_size, "whole": True}
    table = pq.read_table(target)
    assert table.column_names == ["sequence", "time", "key", "value"]
    assert table["sequence"].to_pylist() == list(range(1, 61))
    assert table["time"].cast("int64").to_pylist() == [START + n * SECOND for n in range(60)]
    assert table["key"].to_pylist()[:3] == [b"doc-0", b"doc-1", b"doc-2"]
    assert [msgpack.unpackb(value) for value in table["value"].to_pylist()] == [{"n": n} for n in range(60)]
    assert table.schema.metadata[b"lorogo.value"] == b"msgpack"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "log", target]
    assert cli("export", tmp_path / "log", "--to", target, "--force", "--key", "doc-1", "--limit", "4") == 0
    assert pq.read_table(target)["sequence"].to_pylist() == [2, 5, 8, 11]


def test_export_streams_in_row_groups(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by a row group, not by the log."""
    write(tmp_path / "log", 60)
    monkeypatch.setattr(export, "_GROUP_ROWS", 25)
    assert cli("export", tmp_path / "log", "--to", tmp_path / "out.parquet") == 0
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)] == [25, 25, 10]


def test_export_of_nothing_is_an_empty_table(tmp_path: Path, cli: Cli) -> None:
    """A log without records is a table without rows, with its columns."""
    BlockingLog(tmp_path / "log").close()
    assert cli("export", tmp_path / "log", "--to", tmp_path / "out.parquet") == 0
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_export_past_damage(tmp_path: Path, cli: Cli) -> None:
    """Export writes the other records, reports the damage and ends with 1."""
    write(tmp_path / "log", 60)
    victim = segments(tmp_path / "log")[0]
    flip(victim, frames(victim)[3][0] + 90)
    report = cli.json("export", tmp_path / "log", "--to", tmp_path / "out.parquet", code=1)
    assert (report["records"], report["whole"]) == (59, False)
    assert f"{victim} at byte" in cli.err


def test_export_refuses_bad_targets(tmp_path: Path, cli: Cli) -> None:
    """A file that is there, a directory, a folder that is missing, the log itself: a sentence each."""
    write(tmp_path / "log", 1)
    (tmp_path / "there").write_text("mine")
    for target, words in [
        ("there", "there already exists: --force overwrites it"),
        ("log", "log is a directory: name a file in it"),
        ("no/such/x.parquet", "no/such/x.parquet: No such file or directory"),
        ("log/x.parquet", "is in the log's own directory"),
    ]:
        assert words in cli.refused("export", tmp_path / "log", "--to", tmp_path / target)
    assert (tmp_path / "there").read_text() == "mine"
    assert "--to" in cli.refused("export", tmp_path / "log")


def test_export_without_space(tmp_path: Path) -> None:
    """A full disk is one sentence; no half file is left, and a file that was there stays."""
    with BlockingLog(tmp_path / "log") as log:
        for _ in range(4):
            log.append(os.urandom(300_000))
    target = tmp_path / "out.parquet"
    target.write_text("yesterday's")

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = subprocess.run(
        [*COMMAND, "log", "export", str(tmp_path / "log"), "--to", str(target), "--force"],
        capture_output=True,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        preexec_fn=small_disk,
        timeout=60,
        check=False,
    )
    words = result.stderr.decode()
    assert result.returncode == 2, words
    assert words.startswith(f"lorogo: no space left for {target}"), words
    assert words.count("\n") == 1
    assert target.read_text() == "yesterday's"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "log", target]


@pytest.mark.parametrize(
    ("missing", "arguments", "words"),
    [
        (
            "pyarrow",
            ["export", "--to", "x.parquet"],
            "`lorogo log` needs pyarrow: pip install 'lorogo[export]'",
        ),
        ("crc32c", ["ls"], "`lorogo log` needs crc32c: pip install 'lorogo[server]'"),
    ],
)
def test_a_missing_library_is_named(tmp_path: Path, missing: str, arguments: list[str], words: str) -> None:
    """Without the library, the command prints the install command and leaves no file."""
    write(tmp_path / "log", 1)
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\nfrom lorogo_cli.app import run\n"
        f"sys.exit(run(['log', *{arguments!r}, 'log']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stderr.decode()) == (2, f"lorogo: {words}\n")
    assert not (tmp_path / "x.parquet").exists()


def test_readers_race_a_writer(tmp_path: Path, cli: Cli) -> None:
    """While another process appends and rotates, all commands see a whole prefix and no damage."""
    code = (
        "import time\nfrom lorogo_log import BlockingLog, LogOptions, Sync\n"
        "log = BlockingLog('log', LogOptions(segment_bytes=20000, sync=Sync.os()))\n"
        "number = 0\n"
        "while True:\n    log.append_many([(b'k', number + n) for n in range(7)])\n    number += 7\n"
        "    time.sleep(0.001)\n"  # so that the test, not the disk, decides how much there is to read
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment())
    try:
        until("two segments", lambda: (tmp_path / "log").exists() and len(segments(tmp_path / "log")) > 2)
        counts = []
        for turn in range(4):
            records = cli.lines("dump", tmp_path / "log")
            assert sequences(records) == list(range(1, len(records) + 1))
            assert all(record["value"] == record["sequence"] - 1 for record in records)
            assert cli("ls", tmp_path / "log") == 0
            assert cli.json("verify", tmp_path / "log")["good"] is True
            target = tmp_path / f"{turn}.parquet"
            assert cli("export", tmp_path / "log", "--to", target) == 0, cli.err
            counts += [len(records), pq.read_metadata(target).num_rows]
        assert counts == sorted(counts)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(30)


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    """`lorogo log --help` needs neither the log nor pyarrow."""
    code = (
        "import sys\nfrom lorogo_cli.app import run\ncode = run(['log', 'export', '--help'])\n"
        "heavy = {'lorogo_log', 'msgpack', 'pyarrow', 'asyncio', 'rich.progress'} & sys.modules.keys()\n"
        "sys.exit(f'{heavy}' if heavy - {'rich.progress'} else code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
