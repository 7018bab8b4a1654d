"""An erasure beside other jobs, where no lock keeps them apart: nothing comes back, nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lorogo_pipeline.errors import LakeBusy, PipelineError
from lorogo_pipeline.jobs import erase as erasing
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_pipeline.spark import tasks
from lorogo_pipeline.tables.lake import Lake
from tests.pipeline.journals import SECOND, START, Author, Made, journal, made
from tests.pipeline.lakes import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on shared storage."""

    @contextmanager
    def writing(_: Lake, __: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(Lake, "writing", writing)


def written(document_id: str, peer: int) -> list[Made]:
    author = Author(document_id, peer)
    return [
        made(document_id, author.type(f"{number} "), START + number * SECOND, sequence=100 * peer + number)
        for number in range(3)
    ]


def jobs(spark: SparkSession, tmp_path: Path, name: str, *updates: Made) -> Pipeline:
    path = journal(tmp_path / name, list(updates), sealed=True)
    return build(spark, Settings(str(tmp_path / "lake"), (str(path),), buckets=1))


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: str, act: Callable[[], object]) -> None:
    """Do something just after the tasks of a job have done theirs, and before it commits."""
    run = tasks.run

    def running(*args: Any, **options: Any) -> list[dict[str, Any]]:
        answers = run(*args, **options)
        if options["what"] == what:
            monkeypatch.setattr(tasks, "run", run)
            act()
        return answers

    monkeypatch.setattr(tasks, "run", running)


def documents(tmp_path: Path, table: str) -> set[str]:
    return {row["document_id"] for row in rows_of(tmp_path / "lake", table)}


@pytest.mark.parametrize("what", ["reading journals", "comparing"])
def test_an_ingest_that_brings_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The ingest has changed nothing, and brings everything but the erased document when it runs again."""
    jobs(spark, tmp_path, "before", *written("a", 1)).ingest()
    job = jobs(spark, tmp_path, "journal", *written("secret", 2), *written("b", 3))
    meanwhile(monkeypatch, what, lambda: job.erase(["secret"], unknown=True))
    with pytest.raises(PipelineError, match="run it again"):
        job.ingest()
    assert documents(tmp_path, "updates") == {"a"}
    assert job.ingest().updates == 3
    assert documents(tmp_path, "updates") == {"a", "b"}


def test_a_materialise_that_brings_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay from before the erasure is not committed after it."""
    jobs(spark, tmp_path, "before", *written("a", 1)).ingest()
    job = jobs(spark, tmp_path, "journal", *written("secret", 2))
    job.materialise()
    job.ingest()
    meanwhile(monkeypatch, "replaying", lambda: job.erase(["secret"]))
    with pytest.raises(LakeBusy):
        job.materialise()
    job.materialise()
    assert documents(tmp_path, "documents") == documents(tmp_path, "changes") == {"a"}


def test_files_that_another_job_is_about_to_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that began after the commits of an erasure keeps what it has written."""
    jobs(spark, tmp_path, "before", *written("a", 1), *written("secret", 2)).ingest()
    job = jobs(spark, tmp_path, "journal", *written("b", 3))
    remove = erasing._remove_files  # between its commits and the proof

    def removing(*args: Any) -> None:
        meanwhile(monkeypatch, "comparing", lambda: remove(*args))
        job.ingest()

    monkeypatch.setattr(erasing, "_remove_files", removing)
    assert job.erase(["secret"]).proved
    assert documents(tmp_path, "updates") == {"a", "b"}
