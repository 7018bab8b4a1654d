"""The job `audit`: replay the journals and compare every document with the live system.

The journals are ingested into a temporary lake, so the audit does not depend on earlier jobs. A document
that differs is read from the journals again (`again`), because it may have been edited meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lorogo_pipeline.audit.audit_report import AuditReport
from lorogo_pipeline.audit.comparison import JournalDocument, rows
from lorogo_pipeline.audit.difference import BadRecord, Difference, damaged_segment
from lorogo_pipeline.audit.live_documents import LiveReadSettings, live
from lorogo_pipeline.audit.run import audit
from lorogo_pipeline.decode.bucket_rows import formed
from lorogo_pipeline.decode.records import record_rows
from lorogo_pipeline.decode.replay import ReplayOptions, by_document, document_row, replay_document
from lorogo_pipeline.decode.segments import JournalFilter, SegmentReading, find_segments
from lorogo_pipeline.jobs.ingest import ingest
from lorogo_pipeline.jobs.materialise import LATEST, materialise
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.dedupe import columns_of, losers, repeated
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.table_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BAD = ["document_id", "log_id", "epoch", "sequence", "digest_ok", "changes"]
_ERASED = "erased"
_BAD_MAX = 10_000  # documents with unusable updates; further ones are reported by their `problem` only


def run_audit(
    spark: SparkSession,
    journals: Sequence[str],
    nats: str,
    *,
    through_servers: bool = False,
    scratch: str | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Replay the journals and compare. Raises NoSource, JobFailed, Unreachable, LiveReadFailed."""
    with TemporaryDirectory(prefix="lorogo-audit-", dir=scratch) as folder:
        lake = Lake.open(folder, create=True)
        done = ingest(spark, lake, journals, progress=progress)
        materialise(spark, lake, tables=("documents",), progress=progress)
        damaged = [_damage(words) for words in done.damage]
        return asyncio.run(_compare(lake, journals, nats, damaged, through_servers, progress))


async def _compare(
    lake: Lake,
    journals: Sequence[str],
    nats: str,
    damaged: Sequence[Difference],
    through_servers: bool,
    progress: Progress | None,
) -> AuditReport:
    async def again(document_id: str) -> JournalDocument | None:
        return await asyncio.to_thread(reread, journals, document_id)

    async with live(nats, LiveReadSettings(through_servers=through_servers)) as seen:
        return await audit(
            chain(rows(_documents(lake), _bad(lake)), _erased(lake)),
            seen,
            again=again,
            damaged=damaged,
            on_progress=progress or (lambda *_: None),
        )


def _damage(words: str) -> Difference:
    name, _, problem = words.partition(": ")
    return damaged_segment(name, problem or "it cannot be read")


def _documents(lake: Lake) -> Iterator[pa.RecordBatch]:
    columns = ["document_id", "latest", "state", "generation", "complete", "problem", "version", "frontiers"]
    for file in lake.table("documents").list():
        if file.label == LATEST:
            for group in parquet.groups(lake.files, "documents", file, [*columns, "content_hash", "json"]):
                yield from group.to_batches()


def _erased(lake: Lake) -> Iterator[JournalDocument]:
    """Yield erased documents: they must not exist anywhere but as their row in `events`."""
    for file in lake.table("events").list():
        events = parquet.read(lake.files, "events", file, ["document_id", "kind"])
        for name in events.filter(pc.equal(events["kind"], _ERASED))["document_id"].to_pylist():
            yield JournalDocument(name, _ERASED)


def _bad(lake: Lake) -> dict[str, list[BadRecord]]:
    found: dict[str, list[BadRecord]] = {}
    for file in lake.table("updates").list():
        for one in _bad_of(parquet.read(lake.files, "updates", file, _BAD)):
            found.setdefault(one[0], []).append(one[1])
            if len(found) > _BAD_MAX:
                return found
    return found


def _bad_of(updates: pa.Table) -> Iterator[tuple[str, BadRecord]]:
    wrong = pc.or_(pc.invert(updates["digest_ok"]), pc.is_null(updates["changes"]))
    for row in updates.filter(wrong).to_pylist():
        where = f"epoch {row['epoch']}, sequence {row['sequence']}"
        problem = "" if not row["digest_ok"] else "it does not decode"
        yield row["document_id"], BadRecord(row["log_id"], where, problem)


def reread(journals: Sequence[str], document_id: str) -> JournalDocument | None:
    """Replay one document from the current journals; None if they have no records of it."""
    wanted = JournalFilter(frozenset([document_id.encode()]))
    found: dict[str, list[pa.RecordBatch]] = {}
    for facts in find_segments(journals):
        reading = SegmentReading(facts, wanted)
        for records in record_rows(reading.batches(), facts.log, wanted):
            for name, table_rows in rows_of(records, 1).items():
                found.setdefault(name, []).append(table_rows)
    tables = {name: _once(name, pa.Table.from_batches(batches)) for name, batches in found.items()}
    batches = [
        batch
        for name in ("updates", "events")
        if name in tables
        for batch in formed(name, tables[name]).to_batches()
    ]
    for name, records in by_document(batches):
        replayed = replay_document(name, records)
        if replayed is None:
            return JournalDocument(name, _ERASED)
        row = document_row(replayed, ReplayOptions(None, 1, snapshots=False))
        bad = [one for _, one in _bad_of(tables["updates"].select(_BAD))] if "updates" in tables else []
        return JournalDocument.of_row(row, bad)
    return None


def _once(name: str, table: pa.Table) -> pa.Table:
    """Deduplicate rows, as the tables do."""
    candidates = repeated([table["identity"].to_numpy()])
    drop = losers(name, [table.select(columns_of(name))], candidates)[0]
    kept = np.ones(table.num_rows, bool)
    kept[drop] = False
    return table.filter(pa.array(kept))
