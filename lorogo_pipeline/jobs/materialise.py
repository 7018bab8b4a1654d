"""Replay updates into the tables `documents` and `changes`, bucket by bucket, latest or as of a time.

A bucket with unchanged input is skipped: the names of its output files contain a fingerprint of the input
files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from lorogo_pipeline.decode import changes as changing
from lorogo_pipeline.decode.bucket_rows import bucket_rows
from lorogo_pipeline.decode.replay import ReplayOptions, by_document, document_row, replay_document
from lorogo_pipeline.errors import BadOption
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.files import LakeFiles
from lorogo_pipeline.tables.lake import DataFile, Lake
from lorogo_pipeline.tables.schemas import DOCUMENTS
from lorogo_pipeline.tables.table_rows import bucket_of
from lorogo_protocol.errors import CrdtError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST = "latest"
TARGETS = ("documents", "changes")
_OUT_BYTES = 8 << 20  # buffered by one task
_OUT_ROWS = 50_000
_SMALL_BYTES = 4 << 20  # of updates; below this, replaying them takes less time than starting workers


@dataclass(slots=True)
class MaterialiseReport:
    """The result of a run."""

    as_of: str = LATEST
    documents: int = 0  # replayed in this run
    updates: int = 0  # in them
    deleted: int = 0
    incomplete: int = 0
    changes: int = 0
    buckets: int = 0  # replayed in this run
    unchanged: int = 0  # buckets that an earlier run replayed from the same files
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)  # of the first incomplete documents

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def label_of(as_of_ns: int | None) -> str:
    """Return the label of files as of a time."""
    return LATEST if as_of_ns is None else f"asof{as_of_ns}"


def materialise(
    spark: SparkSession,
    lake: Lake,
    *,
    as_of_ns: int | None = None,
    documents: Sequence[str] | None = None,
    tables: Sequence[str] = TARGETS,
    progress: Progress | None = None,
) -> MaterialiseReport:
    """Replay changed buckets; `documents` needs `as_of_ns`, because the latest state covers all documents."""
    if not tables or set(tables) - set(TARGETS):
        raise BadOption(f"tables must be some of {' and '.join(TARGETS)}")
    if documents is not None and as_of_ns is None:
        raise BadOption("a choice of documents needs --as-of: the latest state covers all documents")
    if as_of_ns is not None:
        tables = ("documents",)  # changes have no as-of time
    began = time.monotonic()
    with lake.writing("materialise"):
        done = _materialise(spark, lake, as_of_ns, documents, tables, progress)
        lake.sweep()
    done.seconds = round(time.monotonic() - began, 3)
    return done


def _materialise(
    spark: SparkSession,
    lake: Lake,
    as_of_ns: int | None,
    documents: Sequence[str] | None,
    tables: Sequence[str],
    progress: Progress | None,
) -> MaterialiseReport:
    label = label_of(as_of_ns)
    done = MaterialiseReport(
        LATEST if as_of_ns is None else str(pa.scalar(as_of_ns, pa.timestamp("ns", "UTC")))
    )
    into = {name: lake.table(name) for name in tables}
    updates, events = lake.table("updates").list(), lake.table("events").list()
    old = {name: [file for file in table.list() if file.label == label] for name, table in into.items()}
    lake.files.require_space(sum(file.bytes for file in updates))
    specs = []
    buckets = _buckets(lake, documents)
    kept = {file for files in old.values() for file in files if file.bucket not in buckets}
    for bucket in buckets:
        inputs = [[file for file in files if file.bucket == bucket] for files in (updates, events)]
        spec: dict[str, Any] = {
            "lake": lake.files.root,
            "buckets": lake.buckets,
            "bucket": bucket,
            "label": label,
            "as_of_ns": as_of_ns,
            "documents": None if documents is None else sorted(set(documents)),
            "updates": [file.to_json() for file in inputs[0]],
            "events": [file.to_json() for file in inputs[1]],
            "tables": list(tables),
        }
        whole = _fingerprint({**spec, "documents": None})
        spec["fingerprint"] = _fingerprint(spec)
        known = {name: _made_of(old[name], bucket, whole) for name in tables}
        if not any(inputs):
            continue
        if all(known.values()):
            done.unchanged += 1
            kept.update(file for files in known.values() for file in files)
        else:
            specs.append(spec)
    done.buckets = len(specs)
    added: dict[str, list[DataFile]] = {name: [] for name in tables}
    small = sum(file[2] for spec in specs for file in spec["updates"]) < _SMALL_BYTES
    for answer in tasks.run(spark, replay_bucket, specs, what="replaying", progress=progress, small=small):
        for name, files in answer["files"].items():
            added[name] += map(DataFile.from_json, files)
        for name in ("documents", "updates", "deleted", "incomplete", "changes"):
            setattr(done, name, getattr(done, name) + answer[name])
        done.problems = (done.problems + answer["problems"])[:_PROBLEMS_MAX]
    for name, table in into.items():
        gone = [file for file in old[name] if file not in kept]
        table.commit(added[name], gone, facts={"job": "materialise", "as_of": done.as_of})
    return done


_PROBLEMS_MAX = 20


def _buckets(lake: Lake, documents: Sequence[str] | None) -> list[int]:
    if documents is None:
        return list(range(lake.buckets))
    return sorted({bucket_of(one, lake.buckets) for one in documents})


def _fingerprint(spec: dict[str, Any]) -> str:
    """Hash the names of the input files, and the chosen documents if any."""
    parts = [file[0] for name in ("updates", "events") for file in spec[name]]
    parts += [f"only {document_id}" for document_id in spec["documents"] or ()]
    return xxhash.xxh64_hexdigest("\0".join(sorted(parts)).encode())


def _made_of(files: Sequence[DataFile], bucket: int, fingerprint: str) -> list[DataFile]:
    return [file for file in files if file.bucket == bucket and f"-{fingerprint}." in file.path]


# --- on a worker -----------------------------------------------------------------------------------


def replay_bucket(spec: dict[str, Any]) -> dict[str, Any]:
    """Replay the documents of one bucket and write their rows."""
    files = LakeFiles(spec["lake"])
    writer = parquet.DataFileWriter(files, tasks.attempt(spec["fingerprint"]))
    options = ReplayOptions(spec["as_of_ns"], spec["buckets"])
    counts = {"documents": 0, "updates": 0, "deleted": 0, "incomplete": 0, "changes": 0}
    problems: list[str] = []
    with_changes = "changes" in spec["tables"]
    batches = bucket_rows(
        files,
        [DataFile.from_json(one) for one in spec["updates"]],
        [DataFile.from_json(one) for one in spec["events"]],
        documents=spec["documents"],
        spans=with_changes,
    )
    with ExitStack() as stack:
        into = {
            name: stack.enter_context(writer.growing(name, spec["bucket"], label=spec["label"]))
            for name in spec["tables"]
        }
        out = _Out(into)
        for document_id, records in by_document(batches):
            replayed = replay_document(document_id, records, options.as_of_ns)
            if replayed is None:
                continue
            if with_changes:
                try:
                    rows = changing.change_rows(replayed, spec["buckets"])
                except CrdtError as error:
                    replayed.problems.append(f"its history cannot be read: {error}")
                else:
                    counts["changes"] += len(rows)
                    out.put("changes", rows)
            row = document_row(replayed, options)
            if "documents" in spec["tables"]:
                out.put("documents", [row], len(row["snapshot"] or b"") + 2 * len(row["json"] or ""))
            counts["documents"] += 1
            counts["updates"] += row["updates"]
            counts["deleted"] += replayed.deleted
            counts["incomplete"] += not row["complete"]
            if not row["complete"] and len(problems) < _PROBLEMS_MAX:
                problems.append(f"{document_id}: {row['problem']}")
        out.flush()
    written = {name: [file.to_json() for file in found] for name, found in writer.written.items()}
    return {"files": written, **counts, "problems": problems}


class _Out:
    """Buffer rows and write them in the order of documents, so that files are sorted."""

    def __init__(self, into: Mapping[str, Callable[[pa.Table], None]]) -> None:
        self._into = into
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._bytes = 0

    def put(self, table: str, rows: list[dict[str, Any]], size: int = 0) -> None:
        self._rows.setdefault(table, []).extend(rows)
        self._bytes += size
        if self._bytes >= _OUT_BYTES or len(self._rows[table]) >= _OUT_ROWS:
            self.flush()

    def flush(self) -> None:
        for table, rows in self._rows.items():
            batch = changing.batch_of(rows) if table == "changes" else _documents(rows)
            self._into[table](pa.Table.from_batches([batch]))
        self._rows.clear()
        self._bytes = 0


def _documents(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENTS)
