"""Decide the origin of the session, and the settings of a local one."""

import os
import re
import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

GIB = 1 << 30
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?$")
_QUIET = Path(__file__).parents[1] / "log4j2.properties"

# Required in every session.
NEEDED = {
    "spark.sql.python.filterPushdown.enabled": "true",  # without it Spark rejects sources with filters
}
# Additional settings of sessions created here: the same results everywhere.
OURS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",  # an error beats a silent slow path
}
CLASSIC_ONLY = {
    "spark.sql.execution.arrow.pyspark.fallback.enabled"
}  # Connect does not know this setting, and warns
# Halves the start time: little data enters the JVM, so the simple collector and compiler are enough.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class SessionOrigin(Enum):
    """The origin of the session."""

    GIVEN = "given"  # a notebook or spark-submit: it exists, or getOrCreate returns it
    REMOTE = "remote"  # Spark Connect
    OURS = "ours"


def session_origin(remote: str | None, active: bool, environ: Mapping[str, str]) -> SessionOrigin:
    """Choose the origin: an explicit remote, else an existing session, else a new one."""
    if remote is not None:
        return SessionOrigin.REMOTE
    if active or "PYSPARK_GATEWAY_PORT" in environ or "SPARK_ENV_LOADED" in environ:
        return SessionOrigin.GIVEN
    return SessionOrigin.REMOTE if environ.get("SPARK_REMOTE") else SessionOrigin.OURS


def is_local(master: str) -> bool:
    """True if Spark runs on this machine only."""
    return master.startswith("local")


def cores(master: str, available: int) -> int:
    """Return the parallel tasks of `local`, `local[4]`, `local[*]`; `available` for any other master."""
    found = _LOCAL.match(master)
    if found is None or found[1] == "*":
        return available
    return int(found[1] or 1)


def heap_bytes(memory_bytes: int) -> int:
    """Return the heap size: a quarter of the memory, 1 to 4 GiB; Python needs the rest."""
    return min(max(memory_bytes // 4, GIB), 4 * GIB)


def memory_bytes() -> int:
    """Return the memory of this machine or container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total


def settings(
    master: str,
    work: Path,
    *,
    cores_available: int,
    memory: int,
    quiet: bool,
    java_options: tuple[str, ...] = (),
    conf: Mapping[str, str],
) -> dict[str, str]:
    """Return all settings of a new session; `conf` overrides them.

    `spark.driver.extraJavaOptions` of `conf` is appended instead: of two equal flags Java uses the last.
    """
    options = list(java_options)
    made = {"spark.master": master, "spark.app.name": "lorogo", **NEEDED, **OURS}
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
        made["spark.ui.showConsoleProgress"] = "false"  # the jobs report their own progress
    if is_local(master):
        options = [*QUICK, f"-Djava.io.tmpdir={work / 'tmp'}", *options]
        made |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{heap_bytes(memory) >> 20}m",
            "spark.local.dir": str(work / "local"),
            "spark.sql.shuffle.partitions": str(4 * cores(master, cores_available)),
            "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
            "spark.ui.enabled": "false",
        }
    made |= conf
    theirs = conf.get(JAVA_OPTIONS, "")
    made[JAVA_OPTIONS] = " ".join([*map(shlex.quote, options), theirs]).strip()
    return made


def prepare(work: Path) -> None:
    """Create the folders in `work` that Java and Spark expect."""
    for name in ("local", "tmp", "warehouse"):
        (work / name).mkdir()


def environment(
    environ: Mapping[str, str], *, master: str, python: str, java_home: Path, spark_home: Path, code: Path
) -> dict[str, str]:
    """Return the environment variables for starting Spark.

    `code` is the folder of the lorogo packages: workers must import the same code as the driver, and see only
    the environment, not the driver's sys.path.
    """
    path = [str(code), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    variables = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "SPARK_HOME": str(spark_home),  # another Spark version would be incompatible
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
    }
    if is_local(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"  # avoids a slow lookup of the host name
    return variables
