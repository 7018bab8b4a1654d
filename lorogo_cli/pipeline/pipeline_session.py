"""The Spark session of a job, and what it is opened with."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lorogo_cli.connect.options import SEED_ENVIRONMENT
from lorogo_cli.errors import CommandError, brief
from lorogo_cli.render.output import progress_bar, working
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import parse_time

if TYPE_CHECKING:
    from lorogo_cli.pipeline.pipeline import JobOptions
    from lorogo_pipeline.pipeline import Pipeline

_EXTRA = "pip install 'lorogo[pipeline]'"
_LOUD = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j", "py4j.clientserver")


@contextmanager
def opened(options: JobOptions, lake: str, **settings: Any) -> Iterator[Pipeline]:
    """Open a Spark session and yield its pipeline; settings are checked before the session starts."""
    with installed():
        from lorogo_pipeline.pipeline import Settings, build
        from lorogo_pipeline.spark.session import open_session
    chosen = Settings(lake=lake, **settings)
    chosen.check()
    if not options.verbose:
        for name in _LOUD:  # PySpark prints errors that it raises as well
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with _ended_in_order():
        with working("starting Spark"):
            session = open_session(
                master=options.master or "local[*]",
                remote=options.remote,
                conf=_conf(options.conf or []),
                quiet=not options.verbose,
            )
            spark = session.__enter__()
        try:
            with progress_bar() as progress:
                yield build(spark, chosen, progress=progress)
        finally:
            session.__exit__(*sys.exc_info())


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that temporary folders with documents are removed."""

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name.startswith("lorogo"):
            raise
        raise CommandError(f"the pipeline needs {name}: {_EXTRA}") from None


def _conf(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(
                f"{brief(text)} is not KEY=VALUE: write, for example, --conf spark.executor.memory=4g"
            )
        found[key.strip()] = value
    return found


def past(text: str | None) -> int | None:
    if text is None:
        return None
    now = time.time_ns()
    try:
        moment = parse_time(text, now_ns=now)
    except InvalidMoment:
        raise CommandError(
            f"{brief(text)} is not a time: write 2026-11-16T10:30, or 2d for two days ago"
        ) from None
    if moment > now:
        raise CommandError(f"--as-of {brief(text)} is in the future: choose a past time")
    return moment


def export_seed(file: Path | None) -> None:
    """Pass the seed's file to Spark's workers through the environment: no argument or setting shows it."""
    if file is not None:
        os.environ.pop(SEED_ENVIRONMENT, None)
        os.environ[f"{SEED_ENVIRONMENT}_FILE"] = str(file.absolute())
