"""Following beside other jobs: they take turns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lorogo_cli.pipeline import pipeline_jobs
from lorogo_cli.pipeline.pipeline import JobOptions
from lorogo_pipeline.errors import LakeBusy
from lorogo_pipeline.jobs.ingest import IngestReport
from lorogo_pipeline.jobs.live_ingest import follow_stream
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_pipeline.tables.lake import LOCK, Lake
from tests.pipeline.journals import journal, session
from tests.pipeline.lakes import documents_of
from tests.pipeline.living import serving, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lorogo_transport.nats.embedded import EmbeddedNats


class Watched(Lake):
    """A lake that tells when a job was turned away."""

    busy = threading.Event()

    @contextmanager
    def writing(self, job: str, *, lock: str = LOCK) -> Iterator[None]:
        try:
            with super().writing(job, lock=lock):
                yield
        except LakeBusy:
            self.busy.set()
            raise


@pytest.mark.deep
@pytest.mark.nats
async def test_a_materialise_while_the_stream_is_followed(
    spark: SparkSession, tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """Between two batches the lake is unlocked; a second follower gets an error."""
    url, place = fresh_nats.url, tmp_path / "lake"
    pipeline = build(spark, Settings(str(place)))
    pipeline.lake(create=True)
    lake = Watched.open(str(place))
    assert isinstance(lake, Watched)
    came, stop = threading.Semaphore(0), threading.Event()

    def follow() -> None:
        notice = lambda done: came.release() if done.updates else None  # noqa: E731 - one line
        follow_stream(spark, lake, url, every_seconds=0.2, on_batch=notice, stopped=stop.is_set)

    async with serving(url, tmp_path / "data") as client:
        await write(client, "one", "abc ")
        following = asyncio.create_task(asyncio.to_thread(follow))
        try:
            assert await asyncio.to_thread(came.acquire, timeout=60)
            await asyncio.to_thread(pipeline.materialise)
            assert documents_of(place)["one"]["text"] == "abc "
            with pytest.raises(LakeBusy, match="ingest --follow"):
                await asyncio.to_thread(follow)
            lake.busy.clear()
            with lake.writing("erase"):  # a batch waits for its turn
                await write(client, "one", "def ")
                assert await asyncio.to_thread(lake.busy.wait, 60)
            assert await asyncio.to_thread(came.acquire, timeout=60)
        finally:
            stop.set()
            await following
    pipeline.materialise()
    assert documents_of(place)["one"]["text"] == "abc def "


def test_journals_are_followed_although_another_job_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The follower reports the lock, and tries again."""
    path = journal(tmp_path / "journal", session(1, 3))
    pipeline = build(spark, Settings(str(tmp_path / "lake"), (str(path),)))
    results: Iterator[IngestReport | BaseException] = iter(
        [LakeBusy("the lake is being written"), IngestReport(updates=3), KeyboardInterrupt()]
    )

    def ingest(_: Pipeline) -> IngestReport:
        result = next(results)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(Pipeline, "ingest", ingest)
    assert pipeline_jobs._follow(JobOptions(json=True), pipeline, None, 0.0)
    said = capsys.readouterr()
    assert '"updates":3' in said.out and "trying again" in said.err
