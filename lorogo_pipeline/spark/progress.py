"""Report the progress of a Spark job while it runs, by a thread that polls Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: (name of the step, tasks done, tasks in total)
Progress = Callable[[str, int, int], None]
_POLL_SECONDS = 0.25


@contextmanager
def watched(spark: SparkSession, what: str, total: int, progress: Progress | None) -> Iterator[None]:
    """Call `progress` periodically while the block runs one job of `total` tasks."""
    if progress is None:
        yield
        return
    progress(what, 0, total)
    context = _context(spark)
    if context is None:  # Spark Connect has progress events
        with _connect_progress(spark, what, total, progress):
            yield
    else:
        done = threading.Event()
        poller = threading.Thread(
            target=_poll, args=(context, done, what, total, progress), name="progress", daemon=True
        )
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()
    progress(what, total, total)


def _context(spark: SparkSession) -> Any:
    """Return the SparkContext; None with Spark Connect, which has none."""
    if "connect" in type(spark).__module__:
        return None
    return spark.sparkContext


def _poll(context: Any, done: threading.Event, what: str, total: int, progress: Progress) -> None:
    tracker = context.statusTracker()
    while not done.wait(_POLL_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        finished = max(
            (stage.numCompletedTasks for stage in stages if stage and stage.numTasks == total), default=0
        )
        if finished:
            progress(what, finished, total)


@contextmanager
def _connect_progress(spark: Any, what: str, total: int, progress: Progress) -> Iterator[None]:
    def handler(stages: Any, **_: object) -> None:
        finished = sum(stage.num_completed_tasks for stage in stages or [])
        progress(what, min(finished, total), total)

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
