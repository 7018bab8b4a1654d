"""The tables of a lake as DataFrames, and as views for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.schemas import TABLES, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: the view `documents` has the latest state only, `documents_as_of` every materialised state
VIEWS = (*TABLES, "documents_as_of")


def dataframe(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """Return the newest version of a table; without rows if it was never written."""
    schema = spark_schema(TABLES[name])
    paths = [lake.files.spark_uri(f"{name}/{file.path}") for file in lake.table(name).list()]
    if not paths:
        return _nothing(spark, schema)
    return spark.read.schema(schema).parquet(*paths)


def _nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty DataFrame that Spark optimises away, unlike one of `createDataFrame`."""
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - heavy; its name everywhere

    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return spark.range(0).where(F.lit(False)).select(*columns)


def open_views(spark: SparkSession, lake: Lake) -> None:
    """Create every view in the session."""
    for name in TABLES:
        rows = dataframe(spark, lake, name)
        if name == "documents":
            rows.createOrReplaceTempView("documents_as_of")
            rows = rows.where("latest")
        rows.createOrReplaceTempView(name)
