"""The ways to run a job on Spark: a process of our own, spark-submit to a cluster, a Spark Connect server."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lorogo_pipeline.tables import parquet
from lorogo_pipeline.tables.lake import Lake
from lorogo_pipeline.tables.schemas import TABLES
from lorogo_pipeline.tables.table_rows import ORDER
from tests.pipeline import clusters
from tests.pipeline.journals import Made, journal, session, texts

JOB = Path(__file__).parents[1] / "cluster_job.py"

pytestmark = [pytest.mark.deep, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def updates() -> list[Made]:
    return session(12, 600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, updates: list[Made]) -> Path:
    """A journal of several segments, and room for a lake of each way."""
    place = tmp_path_factory.mktemp("ways")
    journal(place / "journal", updates, segment_bytes=32 << 10)
    return place


def said(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def check(found: dict[str, Any], updates: list[Made]) -> None:
    """Assert that the job's facts about its tables are right."""
    assert found["updates"] == found["records"] == len(updates)
    assert found["documents"] == 12
    assert found["asked"] == sum(map(len, texts(updates).values()))


def tables(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything that the tables hold, sorted; how it is spread over files does not count."""
    opened = Lake.open(str(lake))
    found = {}
    for name, schema in TABLES.items():
        files = opened.table(name).list()
        rows = [parquet.read(opened.files, name, file) for file in files]
        table = pa.concat_tables(rows) if rows else schema.empty_table()
        found[name] = table.sort_by([(column, "ascending") for column in ORDER[name]]).to_pylist()
    return found


@pytest.fixture(scope="module")
def ours(folder: Path, updates: list[Made], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The tables of a process of the test's own, in local mode: workers import the very code that drives
    them.
    """
    place = tmp_path_factory.mktemp("ours")
    found = said(clusters.run(JOB, place, str(folder / "journal"), str(folder / "lake-ours")))
    (worker,) = found["workers"]
    assert worker["python"] == platform.python_version()
    assert worker["code"] == str(clusters.ROOT / "lorogo_pipeline" / "spark" / "workers.py")
    assert worker["missing"] == []
    check(found, updates)
    return tables(folder / "lake-ours")


def test_a_process_of_our_own_makes_whole_tables(ours: dict[str, Any], updates: list[Made]) -> None:
    """Every update is there, every document has the text that its updates give."""
    assert len(ours["updates"]) == len(updates)
    assert {row["document_id"]: row["text"] for row in ours["documents"]} == texts(updates)


def test_spark_submit_to_a_cluster_gives_equal_tables(
    folder: Path, updates: list[Made], ours: dict[str, Any], tmp_path: Path
) -> None:
    """The same program on a cluster of two worker processes, where our code comes with --py-files."""
    lake = folder / "lake-submit"
    found = said(clusters.submit(JOB, tmp_path, arguments=[str(folder / "journal"), str(lake)]))
    assert found["workers"]
    for worker in found["workers"]:
        assert "lorogo.zip" in str(worker["code"])
        assert worker["missing"] == []
    check(found, updates)
    assert tables(lake) == ours


def test_spark_connect_gives_equal_tables(
    folder: Path, updates: list[Made], ours: dict[str, Any], tmp_path: Path
) -> None:
    """The same program through Spark Connect, whose server has our libraries and none of our code."""
    lake = folder / "lake-connect"
    (client := tmp_path / "client").mkdir()
    (server := tmp_path / "server").mkdir()
    with clusters.connect_server(server) as address:
        found = said(clusters.run(JOB, client, str(folder / "journal"), str(lake), address))
    assert found["workers"]
    for worker in found["workers"]:
        assert "lorogo.zip" in str(worker["code"])
        assert worker["missing"] == []
    check(found, updates)
    assert tables(lake) == ours
    assert list(client.iterdir()) == []
