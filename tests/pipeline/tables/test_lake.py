"""A lake: what is committed counts, what is not does not, and of two jobs one wins."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from lorogo_pipeline.errors import BadOption, LakeBusy, NoLake, OtherVersion, PipelineError
from lorogo_pipeline.tables import lake as lakes
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import FREE_BYTES_MIN, LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake, file_name
from lorogo_pipeline.tables.schemas import EVENTS


def write(lake: Lake, run: str, ids: list[str], *, bucket: int = 0) -> DataFile:
    """A data file of `events` without a commit."""
    writer = parquet.DataFileWriter(lake.files, run)
    rows = [
        {
            "document_id": one,
            "kind": "erased",
            "accepted_at": 0,
            "accepted_ns": 0,
            "lease": 0,
            "generation": 0,
            "bytes": 0,
            "bucket": bucket,
            "identity": 0,
        }
        for one in ids
    ]
    writer.put("events", bucket, pa.Table.from_pylist(rows, schema=EVENTS))
    return writer.written["events"][0]


def ids(lake: Lake) -> list[str]:
    found = []
    for file in lake.table("events").list():
        found += parquet.read(lake.files, "events", file, ["document_id"])["document_id"].to_pylist()
    return sorted(found)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(str(tmp_path / "lake"), create=True)


# --- making and opening ---------------------------------------------------------------------------


def test_a_lake_is_made_and_opened_again(tmp_path: Path) -> None:
    """A lake keeps its number of buckets; a table that was never written is empty."""
    made = Lake.open(str(tmp_path / "new" / "lake"), create=True, buckets=4)
    again = Lake.open(str(tmp_path / "new" / "lake"))
    assert made.buckets == again.buckets == 4
    assert again.table("updates").version == -1 and again.table("updates").list() == []
    assert again.table("updates").rows() == 0 and again.table("updates").position("x") is None
    assert Lake.open(f"file://{tmp_path}/new/lake").buckets == 4


def test_no_lake(tmp_path: Path) -> None:
    """The error of a missing lake names the command that creates one."""
    with pytest.raises(NoLake, match=r"there is no lake in .*`lorogo pipeline ingest` creates one"):
        Lake.open(str(tmp_path))
    with pytest.raises(BadOption, match="name a lake"):
        Lake.open("")


def test_a_folder_of_strangers(tmp_path: Path) -> None:
    """A folder with other things in it does not become a lake."""
    (tmp_path / "thesis.doc").write_text("mine")
    with pytest.raises(BadOption, match=r"is not a lake and not empty \(thesis.doc"):
        Lake.open(str(tmp_path), create=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


def test_a_file(tmp_path: Path) -> None:
    """Nor does a file."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PipelineError, match=r"file.*(is a file|Not a directory)"):
        Lake.open(str(tmp_path / "file"), create=True)


@pytest.mark.parametrize("buckets", [0, -1, 4097])
def test_buckets_out_of_range(tmp_path: Path, buckets: int) -> None:
    """There are 1 to 4096 buckets."""
    with pytest.raises(BadOption, match=f"buckets is {buckets}; it must be 1 to 4096"):
        Lake.open(str(tmp_path / "lake"), create=True, buckets=buckets)
    assert not (tmp_path / "lake").exists()


def test_buckets_are_for_good(lake: Lake) -> None:
    """The number of buckets of a lake that is there cannot be changed."""
    with pytest.raises(BadOption, match="has 16 buckets: their number cannot change"):
        Lake.open(lake.files.root, create=True, buckets=8)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"version": 1}', '{"version": "a", "buckets": 2}']
    + [json.dumps({"version": 1, "buckets": number}) for number in (0, -4, 5000)],
)
def test_a_broken_lake_json(lake: Lake, text: str) -> None:
    """The error of an invalid lake.json names the file, also for a job that would create a lake."""
    Path(lake.files.at("lake.json")).write_text(text)
    for create in (False, True):
        with pytest.raises(NoLake, match=r"lake\.json does not parse"):
            Lake.open(lake.files.root, create=create)


def test_another_version(lake: Lake) -> None:
    """Tables of a version that we do not know are left alone."""
    Path(lake.files.at("lake.json")).write_text(json.dumps({"version": 9, "buckets": 16}))
    with pytest.raises(
        OtherVersion, match="tables of version 9, this lorogo reads version 1: use the lorogo that"
    ):
        Lake.open(lake.files.root)


def test_a_making_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake.json is there whole or not at all, and the next job makes the lake."""

    def dies(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            Lake.open(str(tmp_path / "lake"), create=True)
    with pytest.raises(NoLake, match="there is no lake"):
        Lake.open(str(tmp_path / "lake"))
    assert Lake.open(str(tmp_path / "lake"), create=True).buckets == 16


# --- commits --------------------------------------------------------------------------------------


def test_a_file_counts_when_it_is_committed(lake: Lake) -> None:
    """A data file that no version names is no part of the table."""
    file = write(lake, "run", ["a", "b"])
    assert lake.files.list("events/data") and ids(lake) == []
    lake.table("events").commit([file])
    assert ids(lake) == ["a", "b"] and lake.table("events").rows() == 2


def test_added_and_removed_at_once(lake: Lake) -> None:
    """A version adds and removes files in one step; older readers keep their version."""
    first, second = write(lake, "one", ["a"]), write(lake, "two", ["b"])
    lake.table("events").commit([first])
    before = lake.table("events")
    lake.table("events").commit([second], [first])
    assert ids(lake) == ["b"] and [file.path for file in before.list()] == [first.path]


def test_nothing_to_commit(lake: Lake) -> None:
    """A commit without anything makes a table that is not there, and no new version of one that is."""
    lake.table("events").commit([])
    version = lake.table("events").version
    lake.table("events").commit([], facts={"job": "idle"})
    assert version >= 0 and lake.table("events").version == version


def test_names_of_files_have_facts() -> None:
    """The name of a data file contains its bucket and its label."""
    file = DataFile(file_name(17, "asof5", "fold-more.1f.0"), 1, 2)
    assert (file.bucket, file.label) == (17, "asof5")
    assert DataFile.from_json(json.loads(json.dumps(file.to_json()))) == file


def test_positions_survive(lake: Lake) -> None:
    """The commit has the read position, over more commits than fit between two checkpoints."""
    for number in range(25):
        file = write(lake, f"run{number}", [f"d{number}"])
        lake.table("events").commit([file], positions={f"segment/{number % 7}": number})
    table = Lake.open(lake.files.root).table("events")
    assert [table.position(f"segment/{number}") for number in range(8)] == [21, 22, 23, 24, 18, 19, 20, None]
    assert list(Path(lake.files.at("events/_delta_log")).glob("*.checkpoint.parquet")), (
        "else this shows little"
    )
    assert ids(lake) == sorted(f"d{number}" for number in range(25))
    table.commit([], positions={"segment/0": 99})
    assert (
        lake.table("events").position("segment/0") == 99 and lake.table("events").position("segment/1") == 22
    )


def test_readable_by_others(lake: Lake) -> None:
    """Any reader of Delta finds the same rows."""
    from deltalake import DeltaTable  # noqa: PLC0415 - the other reader

    lake.table("events").commit([write(lake, "one", ["a", "b"]), write(lake, "two", ["c"], bucket=3)])
    found = DeltaTable(lake.files.at("events")).to_pyarrow_table()
    assert sorted(found["document_id"].to_pylist()) == ["a", "b", "c"]


# --- two jobs at once -----------------------------------------------------------------------------


def test_a_stale_version(lake: Lake) -> None:
    """A job that read a version which is not the newest any more commits nothing."""
    lake.table("events").commit([write(lake, "zero", ["z"])])
    one, other = lake.table("events"), lake.table("events")
    one.commit([write(lake, "one", ["a"])])
    with pytest.raises(LakeBusy, match="another job changed the table events meanwhile: nothing was written"):
        other.commit([write(lake, "two", ["b"])], positions={"x": 1})
    assert ids(lake) == ["a", "z"] and lake.table("events").position("x") is None
    assert LakeBusy.retriable


def test_two_that_make_the_table(lake: Lake) -> None:
    """Also where there was no table when both began."""
    one, other = lake.table("events"), lake.table("events")
    one.commit([write(lake, "one", ["a"])])
    with pytest.raises(LakeBusy, match="meanwhile"):
        other.commit([write(lake, "two", ["b"])])
    assert ids(lake) == ["a"]


def test_the_lock(lake: Lake) -> None:
    """On a local disk the second job does not begin; its error names the running job."""
    busy = r"is being written by ingest, process \d+ on .*: wait for it, or stop it"
    with lake.writing("ingest"), pytest.raises(LakeBusy, match=busy), Lake.open(lake.files.root).writing("x"):
        pass
    with lake.writing("erase"):
        pass


def test_the_lock_of_another_process(lake: Lake) -> None:
    """The lock is between processes, and is free when its holder is killed."""
    code = (
        "import sys; from lorogo_pipeline.tables.lake import Lake\n"
        "with Lake.open(sys.argv[1]).writing('materialise'):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, lake.files.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(LakeBusy, match=f"materialise, process {holder.pid}"), lake.writing("ingest"):
            pass
    finally:
        holder.kill()
        holder.communicate(timeout=30)
    with lake.writing("ingest"):
        pass


def test_a_job_that_fails_frees_the_lock(lake: Lake) -> None:
    """After an error the lock names no job."""
    with pytest.raises(ValueError, match="no"), lake.writing("ingest"):
        raise ValueError("no")
    assert Path(lake.files.at("lake.lock")).read_text() == ""


def test_a_table_that_cannot_be_opened(lake: Lake) -> None:
    """The error of a broken Delta log names the table."""
    lake.table("events").commit([write(lake, "one", ["a"])])
    for path in Path(lake.files.at("events/_delta_log")).glob("*.json"):
        path.write_text("{nothing")
    with pytest.raises(PipelineError, match=r"the table .*events cannot be opened"):
        lake.table("events").list()


# --- room -----------------------------------------------------------------------------------------


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_room(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that will not have room does not begin: what is there, what it needs, what to do."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 40, 0, FREE_BYTES_MIN + 1))
    lake.files.require_space()
    with pytest.raises(
        PipelineError, match=r"has 64 MiB of free space and this job needs about 1024 MiB: free disk space"
    ):
        lake.files.require_space(1 << 30)
    with pytest.raises(PipelineError, match="free disk space"):
        LakeFiles(lake.files.at("not/yet/there")).require_space(1 << 30)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB, where this machine allows it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None:
        pytest.skip("there is no mount here")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run([umount, str(folder)], check=True)


def fill(lake: Lake) -> None:
    with lake.files.create("events/data/large.parquet") as file:
        for _ in range(64):
            file.write(bytes(1 << 16))


def commit_for_ever(lake: Lake) -> None:
    for number in count():
        lake.table("events").commit([write(lake, f"run{number}", [f"d{number}"])])


def test_a_full_disk(small_disk: Path) -> None:
    """A disk that fills up during a commit is an error of one sentence; the table stays unchanged."""
    files = LakeFiles(str(small_disk / "lake"))
    with pytest.raises(PipelineError, match="MiB of free space and this job needs about 64 MiB"):
        Lake.open(files.root, create=True)
    with files.create("lake.json") as file:
        file.write(json.dumps({"version": 1, "buckets": 16}).encode())
    lake = Lake.open(files.root)
    lake.table("events").commit([write(lake, "one", ["a"])])
    with pytest.raises(PipelineError, match=r"the disk of .* is full: free space and run it again"):
        fill(lake)
    with pytest.raises(PipelineError):
        commit_for_ever(lake)
    lake.files.remove("events/data/large.parquet")
    rows = lake.table("events").rows()
    assert len(ids(lake)) == rows >= 1
    lake.table("events").commit([write(lake, "after", ["z"])])
    assert len(ids(lake)) == rows + 1


def test_a_place_that_cannot_be_used() -> None:
    """A URL without a driver is an error of one sentence."""
    with pytest.raises(PipelineError, match="gopher://x cannot be used here"):
        Lake.open("gopher://x")


def test_lakes_of_one_module() -> None:
    """The page's numbers are the module's."""
    assert (lakes.BUCKETS, lakes.BUCKETS_MAX) == (16, 4096)


def test_litter_goes_after_a_day(lake: Lake) -> None:
    """Files that no table names are removed when they are old; those that are named, and young ones, stay."""
    named, old, young = "0000-all-named.parquet", "0000-all-old.parquet", "0000-all-young.parquet"
    folder = Path(lake.files.at("updates/data"))
    folder.mkdir(parents=True)
    for name in (named, old, young):
        (folder / name).write_bytes(b"rows")
    lake.table("updates").commit([DataFile(f"data/{named}", 1, 4)])
    for name in (named, old):
        os.utime(folder / name, (1, 1))
    assert lake.sweep() == 1
    assert sorted(path.name for path in folder.iterdir()) == sorted([named, young])
