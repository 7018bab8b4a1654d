"""The ways to run a job on Spark: a process of our own, spark-submit to a cluster, a Spark Connect server."""

import json
import platform
from pathlib import Path

import pytest

from tests.pipeline import clusters

JOB = Path(__file__).with_name("cluster_job.py")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def workers(output: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(output.splitlines()[-1])["workers"]
    return found


def test_a_process_of_our_own_runs_the_job_with_its_own_code(tmp_path: Path) -> None:
    """In local mode workers import the very code that drives them."""
    (worker,) = workers(clusters.run(JOB, tmp_path))
    assert worker["python"] == platform.python_version()
    assert worker["code"] == str(clusters.ROOT / "lorogo_pipeline" / "workers.py")
    assert worker["missing"] == []


def test_spark_submit_ships_our_packages_to_the_workers_of_a_cluster(tmp_path: Path) -> None:
    """The same program runs on a cluster of two worker processes, where our code comes with --py-files."""
    found = workers(clusters.submit(JOB, tmp_path))
    assert found
    for worker in found:
        assert "lorogo.zip" in str(worker["code"])
        assert worker["missing"] == []


def test_a_connect_server_gets_our_packages_from_the_client(tmp_path: Path) -> None:
    """The same program runs through Spark Connect, and sends its code to a server that has none of it."""
    (client := tmp_path / "client").mkdir()
    (server := tmp_path / "server").mkdir()
    with clusters.connect_server(server) as address:
        found = workers(clusters.run(JOB, client, address))
    assert found
    for worker in found:
        assert "lorogo.zip" in str(worker["code"])
        assert worker["missing"] == []
    assert list(client.iterdir()) == []
