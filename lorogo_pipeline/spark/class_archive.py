"""A class data archive of Spark's classes, which the JVM maps: a session starts in half the time.

    python -m lorogo_pipeline.spark.class_archive  # once; takes half a minute, and 190 MB in the user's cache

Later sessions of this package use the archive. It belongs to one Java and one PySpark, which the JVM checks.
The JVM crashes on a damaged archive, so its name contains a digest of its bytes, which we check.
It is only made on request: making it costs as much as ten starts save.
"""

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from lorogo_pipeline.spark import cache, workers
from lorogo_pipeline.spark.java import Java
from lorogo_protocol.errors import LorogoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAKE_SECONDS = 300.0
_SILENT = "-Xlog:disable"  # a JVM that rejects the archive would print a warning and continue


class NoArchive(LorogoError):
    """No archive can be made; sessions start without one."""

    code = "no-archive"


def name(java: Java, spark: str, digest: str) -> str:
    """Return the archive's name, unique by Java, PySpark and content."""
    place = xxhash.xxh64_hexdigest(str(java.home).encode())[:8]
    return f"spark-{spark}-java-{java.version}-{place}-{digest}.jsa"


def find(java: Java) -> Path | None:
    """Return the intact archive for this Java and PySpark; None if there is none."""
    folder = cache.folder()
    for path in () if folder is None else folder.glob(name(java, version("pyspark"), "*")):
        with suppress(OSError):
            if path.name == name(java, version("pyspark"), digest(path)):
                return path
    return None


def flags(java: Java) -> tuple[str, ...]:
    """Return the JVM flags for the archive; empty without one."""
    path = find(java)
    return () if path is None else (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", _SILENT)


def digest(path: Path) -> str:
    """Return xxh3 of the file: 190 MB take 50 ms, and the JVM reads them anyway."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def make() -> Path:
    """Make the archive for this user's Java and PySpark. Raises NoArchive, NoJava or NoSpark."""
    from lorogo_pipeline.spark import java as javas  # noqa: PLC0415 - it and the session use this module
    from lorogo_pipeline.spark.session import open_session  # noqa: PLC0415 - the same

    java = javas.find()
    folder = cache.folder()
    if folder is None:
        raise NoArchive("no cache folder is exclusively writable for this user: set XDG_CACHE_HOME to one")
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():
        raise NoArchive(
            f"the Java in {java.home} ({java.source}) has no base archive (classes.jsa): use another Java"
        )
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=folder) as passing:
        made = Path(passing, "spark.jsa")
        options = f"'-XX:ArchiveClassesAtExit={made}' {_SILENT}"
        with open_session(
            "local[2]", conf={"spark.driver.extraJavaOptions": options}, stop_seconds=MAKE_SECONDS
        ) as spark:
            _exercise(spark, Path(passing))
        if not made.is_file():
            raise NoArchive(
                f"the Java in {java.home} wrote no archive; is there room for 200 MB in {folder}?"
            )
        target = folder / name(java, version("pyspark"), digest(made))
        for old in folder.glob("spark-*.jsa"):
            old.unlink(missing_ok=True)
        made.replace(target)
    return target


def _exercise(spark: "SparkSession", folder: Path) -> None:
    """Run small versions of the jobs' queries, so that their classes are loaded."""
    workers.survey(spark, tasks=2)
    rows = spark.range(100).selectExpr("id % 7 as k", "cast(id as string) as s", "timestamp_seconds(id) as t")
    rows.write.parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("rows")
    for each in _questions():
        spark.sql(each).toArrow()


def _questions() -> Iterator[str]:
    yield "select k, count(*) as n, max(t) as t from rows group by k order by n desc limit 3"
    yield "select a.k, sum(length(b.s)) as n from rows a join rows b on a.s = b.s where a.k > 2 group by a.k"
    yield "select *, row_number() over (partition by k order by t) as n from rows"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{make()}\n")
    except LorogoError as error:
        sys.exit(f"lorogo: {error}")
