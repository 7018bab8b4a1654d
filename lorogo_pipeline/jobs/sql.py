"""Check that SQL only reads, and convert result rows to plain values.

Spark would accept `insert overwrite table updates ...` on a view and remove a data file of the lake.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import TYPE_CHECKING, Any

from lorogo_pipeline.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

_SHOWING = re.compile(r"\s*(show|describe|desc|explain)\b", re.IGNORECASE)  # commands that change nothing


def check(spark: SparkSession, query: str) -> None:
    """Raise BadOption if the query writes, Spark's error if it does not parse; run nothing."""
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - heavy

    if _SHOWING.match(query):
        return
    try:
        # Only a query can be a subquery. Connect parses it when the columns are read.
        _ = spark.sql(f"select * from (\n{query.rstrip().removesuffix(';')}\n)").columns  # noqa: S608 - theirs
    except ParseException:
        spark.sql(f"explain {query}")  # raises if the syntax is wrong
        raise BadOption(
            "only select, with, show, describe and explain are allowed: the jobs write the tables"
        ) from None
    except AnalysisException:
        return  # it is a query; Spark reports the error when it runs as typed


def plain(row: Row, schema: StructType) -> tuple[Any, ...]:
    """Return the values of a row: times in UTC, structs as dicts."""
    from pyspark.sql.types import TimestampType  # noqa: PLC0415 - heavy

    return tuple(
        # PySpark returns local time without a zone
        value.astimezone(UTC) if isinstance(field.dataType, TimestampType) and value else _named(value)
        for value, field in zip(row, schema.fields, strict=True)
    )


def _named(value: Any) -> Any:
    from pyspark.sql import Row  # noqa: PLC0415 - heavy

    match value:
        case Row():
            return {name: _named(one) for name, one in zip(value.__fields__, value, strict=True)}
        case list():
            return [_named(one) for one in value]
        case dict():
            return {key: _named(one) for key, one in value.items()}
        case _:
            return value
