"""The jobs on one lake and one Spark session that somebody else made.

    pipeline = build(spark, Settings(lake="lake", journals=(".lorogo/server",)))
    pipeline.ingest()
    pipeline.materialise()
    pipeline.dataframe("documents").show()

Nothing here makes a session: that is the door's (`lorogo_pipeline.session`), or a notebook's, or a cluster's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lorogo_pipeline import erase as erasing
from lorogo_pipeline import ingest as ingesting
from lorogo_pipeline import materialise as materialising
from lorogo_pipeline.erase import Erased
from lorogo_pipeline.ingest import Ingested
from lorogo_pipeline.lake import Lake
from lorogo_pipeline.materialise import Materialised
from lorogo_pipeline.progress import Progress
from lorogo_pipeline.segments import SKIP
from lorogo_pipeline.views import dataframe, open_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are."""

    lake: str
    journals: tuple[str, ...] = ()
    buckets: int | None = None  # of a lake that is made now
    damaged: str = SKIP


class Pipeline:
    """One lake, one session."""

    def __init__(self, spark: SparkSession, settings: Settings, progress: Progress | None) -> None:
        self.spark = spark
        self.settings = settings
        self._progress = progress

    def lake(self, *, create: bool = False) -> Lake:
        """The lake. Raises NoLake, OtherVersion."""
        return Lake.open(self.settings.lake, create=create, buckets=self.settings.buckets if create else None)

    def ingest(self) -> Ingested:
        """Journals into `updates`, `events` and `answers`."""
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
    ) -> Materialised:
        """`updates` into `documents` and `changes`."""
        return materialising.materialise(
            self.spark,
            self.lake(),
            as_of_ns=as_of_ns,
            documents=documents,
            tables=tables,
            progress=self._progress,
        )

    def erase(self, documents: Sequence[str] = ()) -> Erased:
        """Documents out of every table and every file."""
        return erasing.erase(self.spark, self.lake(), documents, progress=self._progress)

    def dataframe(self, table: str) -> DataFrame:
        """The table's newest version."""
        return dataframe(self.spark, self.lake(), table)

    def sql(self, query: str) -> DataFrame:
        """A question about the tables, by their names."""
        open_views(self.spark, self.lake())
        return self.spark.sql(query)


def build(spark: SparkSession, settings: Settings, *, progress: Progress | None = None) -> Pipeline:
    """The jobs, on a session that is yours: make it and stop it where you like."""
    return Pipeline(spark, settings, progress)
