"""Inspect the installation of Spark's workers: Python version, lorogo code, libraries.

for worker in survey(spark): print(worker)      # Worker(python='3.11.7', code='...', missing=())
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARIES = ("crc32c", "deltalake", "fsspec", "loro", "msgpack", "nats", "xxhash", "zstandard")
_ROW = pa.schema([("python", pa.string()), ("code", pa.string()), ("missing", pa.list_(pa.string()))])


@dataclass(frozen=True, slots=True)
class Worker:
    """One kind of worker installation."""

    python: str
    code: str  # the file that the worker imported this module from
    missing: tuple[str, ...]  # required libraries that it cannot import


def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one row about this process."""
    for _ in batches:
        pass
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    yield pa.RecordBatch.from_pylist(
        [{"python": platform.python_version(), "code": __file__, "missing": missing}], schema=_ROW
    )


def survey(spark: "SparkSession", tasks: int = 8) -> list[Worker]:
    """Run small tasks; return the distinct installations of the workers that ran them."""
    rows = (
        spark.range(tasks, numPartitions=tasks)
        .mapInArrow(describe, "python string, code string, missing array<string>")
        .distinct()
        .collect()
    )
    return sorted(
        (Worker(row.python, row.code, tuple(row.missing)) for row in rows),
        key=lambda worker: (worker.python, worker.code),
    )
