"""A process with a session of its own, for tests that kill it: `session_child.py once|query|hang|lose`.

The first printed line has the facts of the session: {"java": ..., "jvm": process id, "mapped": [archives]}.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext

from lorogo_pipeline.spark import java
from lorogo_pipeline.spark.session import NoSpark, open_session

if TYPE_CHECKING:
    import pyarrow as pa

CONF = {"spark.driver.memory": "1g"}


def hang(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """A task that takes longer than any test."""
    for batch in batches:
        time.sleep(600)
        yield batch


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def archives(process: int) -> list[str]:
    """The class archives that the JVM has mapped; none where the system has no /proc."""
    maps = Path(f"/proc/{process}/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    return sorted({Path(line.split()[-1]).name for line in lines if line.endswith(".jsa")})


def introduce() -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc.pid
    say(json.dumps({"java": java.find().source, "jvm": process, "mapped": archives(process)}))


def once() -> int:
    with open_session("local[2]", conf=CONF) as spark:
        introduce()
        total: int = spark.range(1000).selectExpr("sum(id) as total").collect()[0].total
    return total


def query() -> None:
    total = once()
    with open_session("local[1]", conf=CONF) as spark:
        again = spark.range(10).selectExpr("sum(id) as total").collect()[0].total
    say(json.dumps({"sum": total, "again": again}))


def wait() -> None:
    with open_session("local[2]", conf=CONF) as spark:
        introduce()
        spark.range(2).mapInArrow(hang, "id long").count()


def lose() -> None:
    try:
        wait()
    except NoSpark as error:
        sys.stderr.write(f"{error}\n")
        with open_session("local[1]", conf=CONF) as spark:
            say(f"NoSpark {spark.range(3).count()}")


if __name__ == "__main__":
    try:
        {"once": lambda: say(str(once())), "query": query, "hang": wait, "lose": lose}[sys.argv[1]]()
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
