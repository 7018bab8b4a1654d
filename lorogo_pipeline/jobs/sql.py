"""What people may ask of the tables in SQL: anything that only reads; and the answer as plain values.

Views look writable to Spark: `insert overwrite table updates ...` would remove a file that the lake names.
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
    """BadOption if it is more than a question; Spark's own error if it is not even SQL. Nothing is run."""
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - heavy

    if _SHOWING.match(query):
        return
    try:
        # What is no query cannot stand in brackets. Connect looks at it when the columns are wanted.
        _ = spark.sql(f"select * from (\n{query.rstrip().removesuffix(';')}\n)").columns  # noqa: S608 - theirs
    except ParseException:
        spark.sql(f"explain {query}")  # raises if it is a slip of the pen
        raise BadOption(
            "only questions (select, with, show, describe, explain) are asked here: the jobs write the tables"
        ) from None
    except AnalysisException:
        return  # it is a query; Spark says what is wrong with it when it is asked as it was typed


def plain(row: Row, schema: StructType) -> tuple[Any, ...]:
    """The values of a row: times with their zone, records by name."""
    from pyspark.sql.types import TimestampType  # noqa: PLC0415 - heavy

    return tuple(
        # PySpark gives it in the zone of this process, and does not say so
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
