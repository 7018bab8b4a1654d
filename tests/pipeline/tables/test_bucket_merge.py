"""One bucket put in order: no fact twice, nothing erased, few files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.bucket_merge import dedupe_bucket
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile
from lorogo_pipeline.tables.schemas import EVENTS
from lorogo_pipeline.tables.table_rows import identity


def event(document_id: str, kind: str, **facts: Any) -> dict[str, Any]:
    row = {
        "document_id": document_id,
        "kind": kind,
        "accepted_at": 1,
        "accepted_ns": 1000,
        "lease": 0,
        "generation": 0,
        "bytes": 0,
        "bucket": 3,
        "identity": identity(document_id, kind),
    }
    return row | facts


class Bucket:
    """Bucket 3 of the table `events`."""

    def __init__(self, folder: Path) -> None:
        self.files = LakeFiles(str(folder))
        self._number = 0

    def write(self, *rows: dict[str, Any]) -> DataFile:
        self._number += 1
        writer = parquet.DataFileWriter(self.files, f"run{self._number}")
        writer.put("events", 3, pa.Table.from_pylist(list(rows), schema=EVENTS))
        return writer.written["events"][0]

    def settle(self, there: list[DataFile], staged: list[DataFile]) -> tuple[list[DataFile], dict[str, Any]]:
        """The files of the bucket afterwards, and what was answered."""
        answer = dedupe_bucket(
            {
                "lake": self.files.root,
                "bucket": 3,
                "there": {"events": [file.to_json() for file in there]},
                "staged": {"events": [file.to_json() for file in staged]},
            }
        )
        added = [DataFile.from_json(one) for one in answer["added"].get("events", [])]
        removed = [DataFile.from_json(one) for one in answer["removed"].get("events", [])]
        assert set(removed) <= set(there) and not set(added) & set(there)
        return [file for file in there if file not in removed] + added, answer

    def ids(self, files: list[DataFile]) -> list[tuple[str, str]]:
        found = []
        for file in files:
            rows = parquet.read(self.files, "events", file)
            pairs = list(zip(rows["document_id"].to_pylist(), rows["kind"].to_pylist(), strict=True))
            assert pairs == sorted(pairs), "files are sorted"
            found += pairs
        return sorted(found)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def test_staged_files_become_part(bucket: Bucket) -> None:
    """A staged file without repeated rows is taken unchanged."""
    old, new = bucket.write(event("a", "deleted")), bucket.write(event("b", "deleted"))
    after, answer = bucket.settle([old], [new])
    assert after == [old, new] and answer["new"] == {"events": 1} and answer["repeated"] == 0


def test_what_is_known_is_left_out(bucket: Bucket) -> None:
    """Only the new rows of a staged file are taken; a file without new rows is not taken at all."""
    old = bucket.write(event("a", "deleted"))
    both, again = (
        bucket.write(event("a", "deleted"), event("b", "deleted")),
        bucket.write(event("a", "deleted")),
    )
    after, answer = bucket.settle([old], [both, again])
    assert old in after and bucket.ids(after) == [("a", "deleted"), ("b", "deleted")]
    assert answer["repeated"] == 2 and answer["new"] == {"events": 1}


def test_a_better_row_takes_the_place(bucket: Bucket) -> None:
    """A better row of a known fact replaces it, and is not called new."""
    old = bucket.write(event("a", "base", digest="d"), event("b", "base", digest="e"))
    new = bucket.write(event("a", "base", digest="d", bytes=3, content=b"abc"))
    after, answer = bucket.settle([old], [new])
    assert old not in after and bucket.ids(after) == [("a", "base"), ("b", "base")]
    contents = [
        one for file in after for one in parquet.read(bucket.files, "events", file)["content"].to_pylist()
    ]
    assert sorted(contents, key=str) == [None, b"abc"] and answer["new"] == {"events": 0}


def test_erased(bucket: Bucket) -> None:
    """An erasure takes every row of its document, old and new, and stays itself."""
    old = bucket.write(event("a", "deleted"), event("b", "deleted"))
    new = bucket.write(event("a", "restored", generation=1), event("a", "erased"))
    after, answer = bucket.settle([old], [new])
    assert bucket.ids(after) == [("a", "erased"), ("b", "deleted")]
    assert answer["erased"] == 2 and answer["new"] == {"events": 1}


def test_nothing_is_left_of_a_file(bucket: Bucket) -> None:
    """A file of which every row goes is gone, and none is written in its place."""
    old, new = bucket.write(event("a", "deleted")), bucket.write(event("a", "erased"))
    after, _ = bucket.settle([old], [new])
    assert after == [new]


def test_small_files_become_one(bucket: Bucket) -> None:
    """More than a handful of small files become one."""
    old = [bucket.write(event(f"d{number}", "deleted")) for number in range(8)]
    after, _ = bucket.settle(old, [bucket.write(event("x", "deleted"))])
    assert len(after) == 1 and len(bucket.ids(after)) == 9
