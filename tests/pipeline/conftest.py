"""The Spark session of the pipeline's tests: one per test process, opened by the first test that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lorogo_pipeline.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with two tasks at once. Share it: use names of your own, and do not stop it."""
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with open_session("local[2]", conf=conf) as session:
        yield session
