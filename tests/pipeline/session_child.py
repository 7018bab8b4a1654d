"""A process with a session of its own, for tests that kill it: `python session_child.py query|hang|lose`.

The first line that it prints says which processes it has: {"java": ..., "jvm": process id}.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import SparkContext

from lorogo_pipeline import java
from lorogo_pipeline.session import NoSpark, open_session

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


def introduce() -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    say(json.dumps({"java": java.find().source, "jvm": gateway.proc.pid}))


def query() -> None:
    with open_session("local[2]", conf=CONF) as spark:
        introduce()
        total = spark.range(1000).selectExpr("sum(id) as total").collect()[0].total
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
        {"query": query, "hang": wait, "lose": lose}[sys.argv[1]]()
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
