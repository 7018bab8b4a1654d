"""What Spark's workers have: their Python, our code, our libraries. On a cluster that is another machine's.

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
    """One kind of worker that answered."""

    python: str
    code: str  # the file that our code was imported from, there
    missing: tuple[str, ...]  # libraries of ours that cannot be imported there


def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row about the process that this runs in."""
    for _ in batches:
        pass
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    yield pa.RecordBatch.from_pylist(
        [{"python": platform.python_version(), "code": __file__, "missing": missing}], schema=_ROW
    )


def survey(spark: "SparkSession", tasks: int = 8) -> list[Worker]:
    """What the workers have that ran `tasks` small tasks, each kind once."""
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
