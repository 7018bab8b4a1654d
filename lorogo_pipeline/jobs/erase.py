"""Erase documents from every table and every file, and verify that nothing is left.

Erased are the named documents and those with an erasure record in the journals. One row in `events` with
the id remains, so that the next ingest does not restore the document from a journal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lorogo_pipeline.errors import BadOption, PipelineError
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake
from lorogo_pipeline.tables.schemas import EVENTS
from lorogo_pipeline.tables.table_rows import bucket_of, identity
from lorogo_protocol.ids import check_document_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_BYTES = 16 << 20  # of all tables; below this, reading them takes less time than starting workers
TABLES = ("updates", "events", "changes", "documents")


@dataclass(slots=True)
class TableErasure:
    """The effect on one table."""

    rows_before: int = 0  # of the erased documents
    rows_after: int = 0  # counted by reading every remaining file
    files_rewritten: int = 0
    files_removed: int = 0
    files_checked: int = 0


@dataclass(slots=True)
class ErasureReport:
    """The result of an erasure, and its verification."""

    documents: list[str] = field(default_factory=list)
    tables: dict[str, TableErasure] = field(default_factory=dict)
    named_in_logs: int = 0  # entries of the Delta logs that name one of the documents

    @property
    def proved(self) -> bool:
        return not self.named_in_logs and not any(table.rows_after for table in self.tables.values())

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "proved": self.proved}


def erase(
    spark: SparkSession,
    lake: Lake,
    documents: Sequence[str] = (),
    *,
    unknown: bool = False,
    progress: Progress | None = None,
) -> ErasureReport:
    """Erase the named documents and those that journals erased. Raises BadOption, LakeBusy, JobFailed.

    A named document without rows in the lake is taken for a typing error; with `unknown` it is accepted, and
    later ingests leave it out.
    """
    for document_id in documents:
        check_document_id(document_id)
    with lake.writing("erase"):
        known = _known(lake)
        for document_id in documents:
            if not unknown and document_id not in known and not _holds(lake, document_id):
                raise BadOption(f"the lake has no rows of {document_id!r}; nothing was erased")
        ids = sorted({*documents, *known})
        done = ErasureReport(ids, {name: TableErasure() for name in TABLES})
        if not ids:
            return done
        _remember(lake, documents)
        old = {path for name in TABLES for path in lake.files.list(f"{name}/data")}
        _rewrite_all(spark, lake, done, progress)
        _remove_files(lake, done, old)
        _prove(spark, lake, done, progress)
    return done


def _is_small(lake: Lake) -> bool:
    return sum(file.bytes for name in TABLES for file in lake.table(name).list()) < _SMALL_BYTES


def _holds(lake: Lake, document_id: str) -> bool:
    bucket = bucket_of(document_id, lake.buckets)
    return any(
        pc.any(
            pc.equal(parquet.read(lake.files, name, file, ["document_id"])["document_id"], document_id)
        ).as_py()
        for name in TABLES
        for file in lake.table(name).list()
        if file.bucket == bucket
    )


def _known(lake: Lake) -> set[str]:
    found: set[str] = set()
    for file in lake.table("events").list():
        rows = parquet.read(lake.files, "events", file, ["document_id", "kind"])
        found.update(rows.filter(pc.equal(rows["kind"], "erased"))["document_id"].to_pylist())
    return found


def _remember(lake: Lake, documents: Sequence[str]) -> None:
    """Record the erasures before removing rows, so that no ingest restores them."""
    new = sorted(set(documents) - _known(lake))
    if not new:
        return
    now = time.time_ns()
    events = lake.table("events")
    writer = parquet.DataFileWriter(lake.files, tasks.attempt("erase"))
    for document_id in new:
        bucket = bucket_of(document_id, lake.buckets)
        row = {
            "document_id": document_id,
            "kind": "erased",
            "accepted_at": now // 1000,
            "accepted_ns": now,
            "lease": 0,
            "generation": 0,
            "bytes": 0,
            "bucket": bucket,
            "identity": identity(document_id, "erased", "0", ""),
        }
        writer.put("events", bucket, pa.Table.from_pylist([row], schema=EVENTS))
    events.commit(writer.written["events"], facts={"job": "erase"})


def _rewrite_all(spark: SparkSession, lake: Lake, done: ErasureReport, progress: Progress | None) -> None:
    """Commit a new version of every table, even of unchanged ones.

    Without a lock (object stores), a job that began earlier may be about to add rows: this makes its commit
    fail.
    """
    buckets = {bucket_of(document_id, lake.buckets) for document_id in done.documents}
    tables = {name: lake.table(name) for name in TABLES}
    found = {
        name: [file for file in table.list() if file.bucket in buckets] for name, table in tables.items()
    }
    specs = [
        {"lake": lake.files.root, "table": name, "file": file.to_json(), "documents": done.documents}
        for name, files in found.items()
        for file in files
    ]
    answers = tasks.run(spark, rewrite_file, specs, what="erasing", progress=progress, small=_is_small(lake))
    for name, table in tables.items():
        mine = [answer for answer in answers if answer["table"] == name and answer["rows"]]
        facts = done.tables[name]
        facts.rows_before = sum(answer["rows"] for answer in mine)
        facts.files_rewritten = len(mine)
        table.commit(
            [DataFile.from_json(file) for answer in mine for file in answer["added"]],
            [DataFile.from_json(answer["file"]) for answer in mine],
            positions={"erase": time.time_ns()},
            facts={"job": "erase"},
        )


def _remove_files(lake: Lake, done: ErasureReport, old: set[str]) -> None:
    """Remove every old file that no table names: replaced versions and files of crashed jobs.

    Newer files may belong to a job that has yet to commit them. A job that wrote before our commits can no
    longer commit.
    """
    for name in TABLES:
        named = {f"{name}/{file.path}" for file in lake.table(name).list()}
        for path in sorted(old - named):
            if path.startswith(f"{name}/"):
                lake.files.remove(path)
                done.tables[name].files_removed += 1


def _prove(spark: SparkSession, lake: Lake, done: ErasureReport, progress: Progress | None) -> None:
    """Count rows of the documents in every remaining file, named or not, and in the Delta logs."""
    specs = [
        {"lake": lake.files.root, "table": name, "path": path, "documents": done.documents}
        for name in TABLES
        for path in sorted(lake.files.list(name))
        if not path.startswith(f"{name}/_delta_log/")
    ]
    for answer in tasks.run(
        spark, count_rows, specs, what="checking", progress=progress, small=_is_small(lake)
    ):
        facts = done.tables[answer["table"]]
        facts.files_checked += 1
        facts.rows_after += answer["rows"]
    for name in TABLES:
        for path in lake.files.list(f"{name}/_delta_log"):
            body = lake.files.read(path) or b""
            done.named_in_logs += sum(f'"{one}"'.encode() in body for one in done.documents)


# --- on a worker -----------------------------------------------------------------------------------


def rewrite_file(spec: dict[str, Any]) -> dict[str, Any]:
    """Write the file without the documents; `rows` counts the removed ones."""
    files, table, file = LakeFiles(spec["lake"]), spec["table"], DataFile.from_json(spec["file"])
    answer: dict[str, Any] = {"table": table, "file": spec["file"], "rows": 0, "added": []}
    columns = ["document_id", "kind"] if table == "events" else ["document_id"]
    mask = _of_documents(table, parquet.read(files, table, file, columns), spec["documents"])
    answer["rows"] = int(mask.sum())
    if answer["rows"]:
        writer = parquet.DataFileWriter(files, tasks.attempt("erase"))
        rows = parquet.read(files, table, file).filter(pa.array(~mask))
        writer.put(table, file.bucket, rows, label=file.label)
        answer["added"] = [one.to_json() for one in writer.written.get(table, [])]
    return answer


def count_rows(spec: dict[str, Any]) -> dict[str, Any]:
    """Count the rows of the documents in a file."""
    columns = ["document_id", "kind"] if spec["table"] == "events" else ["document_id"]
    with LakeFiles(spec["lake"]).open(spec["path"]) as opened:
        try:
            rows = pq.ParquetFile(opened).read(columns=columns)
            mask = _of_documents(spec["table"], rows, spec["documents"])
        except (pa.ArrowException, KeyError) as error:
            raise PipelineError(
                f"{spec['path']} cannot be read, so the erasure is not verified: {error}"
            ) from None
    return {"table": spec["table"], "rows": int(mask.sum())}


def _of_documents(table: str, rows: pa.Table, documents: Sequence[str]) -> np.ndarray:
    mask = pc.is_in(rows["document_id"], pa.array(documents, pa.string()))
    if table == "events":
        mask = pc.and_(mask, pc.not_equal(rows["kind"], "erased"))
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)
