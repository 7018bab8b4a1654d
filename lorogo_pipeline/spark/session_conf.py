"""The settings of a session, decided: whose session it is, and what a local one is started with."""

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

# What every session of ours must have, wherever it runs.
NEEDED = {
    "spark.sql.python.filterPushdown.enabled": "true",  # without it our sources fail, by Spark's own decision
}
# What a session that we make has besides: the same rows wherever it runs.
OURS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",  # slow by surprise is worse than an error
}
CLASSIC_ONLY = {
    "spark.sql.execution.arrow.pyspark.fallback.enabled"
}  # Connect knows no such thing, and warns
# Start in half the time: bytes hardly enter the JVM, so it needs neither its best collector nor compiler.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


class SessionOrigin(Enum):
    """Who makes the session."""

    GIVEN = "given"  # a notebook or spark-submit: it is there, or getOrCreate finds the way
    REMOTE = "remote"  # Spark Connect
    OURS = "ours"


def session_origin(remote: str | None, active: bool, environ: Mapping[str, str]) -> SessionOrigin:
    """Who makes the session: what was asked for, else who is there already, else we do."""
    if remote is not None:
        return SessionOrigin.REMOTE
    if active or "PYSPARK_GATEWAY_PORT" in environ or "SPARK_ENV_LOADED" in environ:
        return SessionOrigin.GIVEN
    return SessionOrigin.REMOTE if environ.get("SPARK_REMOTE") else SessionOrigin.OURS


def is_local(master: str) -> bool:
    """True if all of Spark runs on this machine."""
    return master.startswith("local")


def cores(master: str, available: int) -> int:
    """How many tasks run at once in `local`, `local[4]`, `local[*]`; `available` for any other master."""
    found = _LOCAL.match(master)
    if found is None or found[1] == "*":
        return available
    return int(found[1] or 1)


def heap_bytes(memory_bytes: int) -> int:
    """How much the JVM may take: a quarter of the memory, from 1 to 4 GiB; Python needs the rest."""
    return min(max(memory_bytes // 4, GIB), 4 * GIB)


def memory_bytes() -> int:
    """The memory of this machine, or of the container that we are in."""
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
    """All settings of a session that we make; what is in `conf` wins.

    `spark.driver.extraJavaOptions` of `conf` comes after ours instead: of two flags Java takes the last.
    """
    options = list(java_options)
    made = {"spark.master": master, "spark.app.name": "lorogo", **NEEDED, **OURS}
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
        made["spark.ui.showConsoleProgress"] = "false"  # the jobs have a progress of their own
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
    """The folders in `work` that Java and Spark expect to find."""
    for name in ("local", "tmp", "warehouse"):
        (work / name).mkdir()


def environment(
    environ: Mapping[str, str], *, master: str, python: str, java_home: Path, spark_home: Path, code: Path
) -> dict[str, str]:
    """What the environment must say while Spark is started.

    `code` is the folder that our packages lie in: workers must import the very code that drives them, and
    they see only the environment, not this process's sys.path.
    """
    path = [str(code), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    variables = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "SPARK_HOME": str(spark_home),  # an older Spark elsewhere would not understand this PySpark
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK),
    }
    if is_local(master):
        variables["SPARK_LOCAL_IP"] = (
            "127.0.0.1"  # else it looks up the name of this machine, which may take long
        )
    return variables
