"""The jobs on one lake and one Spark session; the caller makes the session.

    pipeline = build(spark, Settings(lake="lake", journals=(".lorogo/server",)))
    pipeline.ingest()
    pipeline.materialise()
    pipeline.dataframe("documents").show()

The command makes its session with `lorogo_pipeline.spark.session`; a notebook or a cluster has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lorogo_pipeline.audit.audit_report import AuditReport
from lorogo_pipeline.audit.job import run_audit
from lorogo_pipeline.decode.segments import FAIL, SKIP
from lorogo_pipeline.errors import BadOption, NoLake
from lorogo_pipeline.jobs import erase as erasing
from lorogo_pipeline.jobs import export as exporting
from lorogo_pipeline.jobs import ingest as ingesting
from lorogo_pipeline.jobs import live_ingest
from lorogo_pipeline.jobs import materialise as materialising
from lorogo_pipeline.jobs import sql as questions
from lorogo_pipeline.jobs.erase import ErasureReport
from lorogo_pipeline.jobs.export import ExportReport
from lorogo_pipeline.jobs.ingest import IngestReport
from lorogo_pipeline.jobs.materialise import MaterialiseReport
from lorogo_pipeline.report import facts as report_facts
from lorogo_pipeline.report import model, page
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.spark.progress import Progress
from lorogo_pipeline.tables.lake import BUCKETS_MAX, Lake
from lorogo_pipeline.tables.schemas import TABLES
from lorogo_pipeline.tables.views import dataframe, open_views
from lorogo_server.recovery.restore_sources import NoSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Settings:
    """The lake, the journals, and what to do about damage."""

    lake: str
    journals: tuple[str, ...] = ()
    buckets: int | None = None  # of a new lake
    makes_lake: bool = False  # create a missing lake; implied by journals
    damaged: str = SKIP

    def check(self) -> None:
        """Validate before Spark starts. Raises BadOption, NoSource, NoLake."""
        if self.damaged not in {FAIL, SKIP}:
            raise BadOption(f"damaged is {self.damaged!r}; it must be {FAIL} or {SKIP}")
        if self.buckets is not None and not 1 <= self.buckets <= BUCKETS_MAX:
            raise BadOption(f"buckets is {self.buckets}; it must be 1 to {BUCKETS_MAX}")
        for place in self.journals:
            if "://" not in place and not Path(place).is_dir():
                raise NoSource(f"{place} is not a folder")
        if self.lake:
            try:
                Lake.open(self.lake, buckets=self.buckets)
            except NoLake:
                if not self.journals and not self.makes_lake:
                    raise


#: below this, code generation and shuffle partitions cost Spark more time than the query itself
_ROWS_SMALL = 1_000_000
_FEW_ROWS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def _few_rows(spark: SparkSession) -> Iterator[None]:
    """Configure the session for queries over few rows while the block runs."""
    before = {name: spark.conf.get(name, None) for name in _FEW_ROWS}
    try:
        for name, value in _FEW_ROWS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


class Pipeline:
    """The jobs, on one lake and one session."""

    def __init__(self, spark: SparkSession, settings: Settings, progress: Progress | None) -> None:
        self.spark = spark
        self.settings = settings
        self._progress = progress

    def lake(self, *, create: bool = False) -> Lake:
        """Open the lake. Raises NoLake, OtherVersion."""
        return Lake.open(self.settings.lake, create=create, buckets=self.settings.buckets if create else None)

    def ingest(self) -> IngestReport:
        """Read journals into the tables `updates`, `events` and `answers`."""
        return ingesting.ingest(
            self.spark,
            self.lake(create=True),
            self.settings.journals,
            damaged=self.settings.damaged,
            progress=self._progress,
        )

    def materialise(
        self,
        *,
        as_of_ns: int | None = None,
        documents: Sequence[str] | None = None,
        tables: Sequence[str] = materialising.TARGETS,
    ) -> MaterialiseReport:
        """Replay `updates` into the tables `documents` and `changes`."""
        return materialising.materialise(
            self.spark,
            self.lake(),
            as_of_ns=as_of_ns,
            documents=documents,
            tables=tables,
            progress=self._progress,
        )

    def erase(self, documents: Sequence[str] = (), *, unknown: bool = False) -> ErasureReport:
        """Remove documents from every table and file; `unknown` allows ids that the lake does not have."""
        return erasing.erase(self.spark, self.lake(), documents, unknown=unknown, progress=self._progress)

    def ingest_stream(self, nats: str) -> IngestReport:
        """Read the current content of the WAL stream into `updates`."""
        return live_ingest.ingest_stream(self.spark, self.lake(create=True), nats, progress=self._progress)

    def follow_stream(
        self, nats: str, *, every_seconds: float, on_batch: Callable[[IngestReport], None], once: bool = False
    ) -> None:
        """Read new messages of the WAL stream into `updates` until interrupted."""
        live_ingest.follow_stream(
            self.spark,
            self.lake(create=True),
            nats,
            every_seconds=every_seconds,
            on_batch=on_batch,
            once=once,
        )

    def report(
        self, *, now: datetime, tz: str = "UTC", problems: Sequence[str] = (), name: str = ""
    ) -> tuple[str, dict[str, Any]]:
        """Return the HTML page and its totals; `problems`: sentences about unreadable segments."""
        lake = self.lake()
        tables = {name: table for name in TABLES if (table := lake.table(name)).version >= 0}
        shown = {name: dataframe(self.spark, lake, name) for name in tables}
        versions = {name: table.version for name, table in tables.items()}
        about = model.LakeSummary(name or lake.files.root, versions, tuple(problems))
        small = sum(table.rows() for table in tables.values()) < _ROWS_SMALL
        with _few_rows(self.spark) if small else nullcontext():
            facts = report_facts.gather(shown, now=now, tz=tz, lake=about)
        return page.render(facts), {"totals": asdict(facts.totals)}

    def audit(self, nats: str, *, through_servers: bool = False, scratch: Path | None = None) -> AuditReport:
        """Compare every document of the journals with the live system."""
        return run_audit(
            self.spark,
            self.settings.journals,
            nats,
            through_servers=through_servers,
            scratch=None if scratch is None else str(scratch),
            progress=self._progress,
        )

    def export(
        self,
        out: Path,
        *,
        format: str = "jsonl",  # noqa: A002 - the option's name
        as_of_ns: int | None = None,
        documents: Sequence[str] | None = None,
    ) -> ExportReport:
        """Export documents; replay those that are not up to date first."""
        self.materialise(
            as_of_ns=as_of_ns, documents=documents if as_of_ns is not None else None, tables=("documents",)
        )
        return exporting.export(self.lake(), out, format=format, documents=documents, as_of_ns=as_of_ns)

    def answer(self, query: str, rows_max: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the columns and first rows of a query; times are UTC, structs are dicts.

        Raises BadOption if the query writes, JobFailed with Spark's message.
        """
        with tasks.translated_errors():
            open_views(self.spark, self.lake())
            questions.check(self.spark, query)
            found = self.spark.sql(query)
            rows = found.limit(rows_max).collect() if found.columns else []
            return found.columns, [questions.plain(row, found.schema) for row in rows]

    def dataframe(self, table: str) -> DataFrame:
        """The newest version of a table."""
        return dataframe(self.spark, self.lake(), table)

    def sql(self, query: str) -> DataFrame:
        """Run a query over the tables, by their names."""
        open_views(self.spark, self.lake())
        return self.spark.sql(query)


def build(spark: SparkSession, settings: Settings, *, progress: Progress | None = None) -> Pipeline:
    """Return the jobs on the caller's session; the caller stops it."""
    return Pipeline(spark, settings, progress)
