"""Distribute work over Spark's workers: a task is one row, its answer is one row (docs/decisions/0013).

A task is a plain function of one JSON specification. Spark may run it twice (a retry): its files have names
unique to the attempt, and count only if the driver uses the answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lorogo_pipeline.errors import JobFailed, PipelineError
from lorogo_pipeline.spark.progress import Progress, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Spec = Any
Task = Callable[[Spec], dict[str, Any]]
_SLOTS_UNKNOWN = 8
#: loggers of PySpark that log raised errors again, with Java's whole stack in one line
_ECHOING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SENTENCE_MAX = 600
_ANSWERS = "number long, answer string, problem string"
_SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.string()), ("problem", pa.string())])


def run(
    spark: SparkSession,
    task: Task,
    specs: Sequence[Spec],
    *,
    what: str = "",
    progress: Progress | None = None,
    small: bool = False,
) -> list[dict[str, Any]]:
    """Run a task for each specification; return the answers in order. Raises PipelineError, JobFailed.

    `small`: all tasks together are cheaper than starting Spark workers. With a local master they run in this
    process, elsewhere in few partitions.
    """
    if not specs:
        return []
    if small and _is_local(spark):
        return _run_here(task, specs, what, progress)
    count = min(len(specs), 2 * parallelism(spark)) if small else len(specs)
    tasks = spark.range(0, len(specs), 1, numPartitions=count)
    work = partial(_work, task, [json.dumps(spec) for spec in specs])
    with translated_errors(), watched(spark, what, count, progress):
        rows = tasks.mapInArrow(work, _ANSWERS).collect()
    for row in rows:
        if row["problem"] is not None:
            raise JobFailed(row["problem"])
    return [json.loads(row["answer"]) for row in sorted(rows, key=lambda row: int(row["number"]))]


def _is_local(spark: SparkSession) -> bool:
    """True if Spark's workers are processes of this machine: then this process can replace them."""
    if "connect" in type(spark).__module__:
        return False
    return re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or "") is not None


def _run_here(
    task: Task, specs: Sequence[Spec], what: str, progress: Progress | None
) -> list[dict[str, Any]]:
    answers = []
    for number, spec in enumerate(specs):
        if progress is not None:
            progress(what, number, len(specs))
        answers.append(json.loads(json.dumps(task(json.loads(json.dumps(spec))))))
    if progress is not None:
        progress(what, len(specs), len(specs))
    return answers


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise JobFailed with one sentence for Spark's errors; the original is the cause."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - heavy

    loggers = [PySparkLogger.getLogger(name) for name in _ECHOING_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except PySparkException as error:
        raise JobFailed(sentence(str(error))) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def sentence(text: str) -> str:
    """Return the line of a long Spark error that names the problem."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(("lorogo_", "pyarrow.", "loro.")) and ": " in line]
    if ours:
        return ours[-1].split(": ", 1)[1]
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b.*: ", line)]
    found = errors[-1] if errors else lines[0] if lines else "Spark failed without a message"
    return found[:_SENTENCE_MAX]


def parallelism(spark: SparkSession) -> int:
    """Return the number of parallel tasks; a guess for Spark Connect."""
    if "connect" in type(spark).__module__:
        return _SLOTS_UNKNOWN
    return int(spark.sparkContext.defaultParallelism)


def attempt(name: str) -> str:
    """Return a name that is unique to this attempt of a task."""
    return f"{name}.{os.urandom(6).hex()}"


def _work(task: Task, specs: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: run the tasks of one partition."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            answer, problem = None, None
            try:
                answer = json.dumps(task(json.loads(specs[number])))
            except PipelineError as error:
                problem = str(error)  # a retry would fail again
            yield pa.RecordBatch.from_pylist(
                [{"number": number, "answer": answer, "problem": problem}], schema=_SCHEMA
            )
