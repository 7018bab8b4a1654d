"""Open a Spark session: `open_session()` is the only place that creates or reuses one.

    with open_session() as spark: ...                       # local Spark, stopped afterwards
    with open_session(remote="sc://host:15002") as spark:   # Spark Connect
    ...

An existing session (a notebook, spark-submit) is used with its master and left running. No module of lorogo
creates a session on import.

A JVM that we start is a child of this process and reads a pipe from it. It ends with the session; if this
process is killed, the pipe closes and the JVM exits.
"""

import atexit
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lorogo_pipeline.spark import class_archive, java, package_zip, session_conf
from lorogo_pipeline.spark.session_conf import CLASSIC_ONLY, JAVA_OPTIONS, NEEDED, OURS, SessionOrigin
from lorogo_protocol.errors import LorogoError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 10.0
STOP_SECONDS = 10.0
CONNECT_PORT = 15002
_INSTALL = "pip install 'lorogo[pipeline]'"


class NoSpark(LorogoError):
    """No session could be created, or the Spark process ended."""

    code = "no-spark"


@contextmanager
def open_session(
    master: str = "local[*]",
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    quiet: bool = True,
    stop_seconds: float = STOP_SECONDS,
) -> "Iterator[SparkSession]":
    """Yield a session; a session created here is stopped and its files are removed.

    Raises NoJava or NoSpark, with the remedy in the message.
    """
    if find_spec("pyspark") is None:
        raise NoSpark(f"the pipeline needs Spark: {_INSTALL}")
    active = _active()
    conf = dict(conf or {})
    match session_conf.session_origin(remote, active is not None, os.environ):
        case SessionOrigin.GIVEN:
            with _given(active, conf) as spark:
                yield spark
        case SessionOrigin.REMOTE:
            with _remote(remote or os.environ["SPARK_REMOTE"], conf) as spark:
                yield spark
        case SessionOrigin.OURS:
            with _ours(master, conf, quiet=quiet, stop_seconds=stop_seconds) as spark:
                yield spark


def _active() -> "SparkSession | None":
    """Return the session of this process, of any thread: Spark's own function knows only this thread's."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and optional

    made = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001 - Spark has no public function
    if made is None or _jvm_exit_code() is not None:
        return None
    context = getattr(made, "_sc", None)  # a session of Spark Connect has none
    stopped = context is not None and getattr(context, "_jsc", None) is None
    return None if stopped else made


@contextmanager
def _given(active: "SparkSession | None", conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Yield an existing session, or the one prepared by spark-submit; keep its master and memory."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and optional

    if active is not None:
        _set(active, {**NEEDED, **conf})
        yield active
        return
    spark = SparkSession.builder.getOrCreate()
    try:
        _set(spark, {**NEEDED, **OURS, **conf})
        yield spark
    finally:
        spark.stop()


@contextmanager
def _remote(url: str, conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Yield a new session on a Spark Connect server, with the lorogo packages added for its workers."""
    if find_spec("grpc") is None or find_spec("grpc_status") is None:
        raise NoSpark("Spark Connect needs its packages: pip install 'lorogo[connect]'")
    _check_reachable(url)
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy, and optional
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and optional

    with ExitStack() as stack:
        # PySpark marks the process as a Connect client and would then refuse to create a local session.
        stack.enter_context(_environ({"SPARK_CONNECT_MODE_ENABLED": "1"}))
        try:
            spark = SparkSession.builder.remote(url).create()
        except PySparkException as error:
            raise NoSpark(f"the Spark Connect server at {url} did not open a session: {error}") from error
        stack.callback(spark.stop)
        _set(spark, {**NEEDED, **{key: OURS[key] for key in OURS if key not in CLASSIC_ONLY}, **conf})
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lorogo-ship-"))
        spark.addArtifacts(str(package_zip.pack(Path(folder) / "lorogo.zip")), pyfile=True)
        yield spark


@contextmanager
def _ours(
    master: str, conf: Mapping[str, str], *, quiet: bool, stop_seconds: float
) -> "Iterator[SparkSession]":
    """Yield a session with a new JVM."""
    import pyspark  # noqa: PLC0415 - heavy, and optional
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415 - heavy, and optional
    from pyspark import SparkContext  # noqa: PLC0415 - heavy, and optional
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - heavy, and optional
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and optional

    with ExitStack() as stack:
        found = java.find()
        home = stack.enter_context(java.wrapped(found))
        work = Path(tempfile.mkdtemp(prefix="lorogo-spark-"))
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        session_conf.prepare(work)
        if SparkContext._gateway is None:  # noqa: SLF001 - otherwise the JVM belongs to the caller
            stack.callback(_end_jvm, stop_seconds)
        stack.enter_context(_quiet_py4j())
        settings = session_conf.settings(
            master,
            work,
            cores_available=os.cpu_count() or 1,
            memory=session_conf.memory_bytes(),
            quiet=quiet,
            java_options=()
            if "ArchiveClassesAtExit" in conf.get(JAVA_OPTIONS, "")
            else class_archive.flags(found),
            conf=conf,
        )
        environment = session_conf.environment(
            os.environ,
            master=master,
            python=sys.executable,
            java_home=home,
            spark_home=Path(pyspark.__file__).parent,
            code=package_zip.root(),
        )
        with _environ(environment), _interrupts():
            try:
                spark = SparkSession.builder.config(map={**settings}).getOrCreate()
            except PySparkRuntimeError as error:
                raise NoSpark(
                    f"Spark did not start with the Java in {home}: see its output above; "
                    f"{_INSTALL} repairs an incomplete installation"
                ) from error
        end = _Once(partial(_stop, spark))
        atexit.register(end)  # for a block that never ends: after atexit Python would wait for dead threads
        try:
            yield spark
        except (ConnectionError, Py4JError) as error:
            if isinstance(error, Py4JJavaError) or (code := _jvm_exit_code(STOP_SECONDS)) is None:
                raise
            raise NoSpark(
                f"Spark's process ended under the job (exit code {code}); if this machine ran out of memory, "
                "run fewer tasks at once: --master 'local[1]'"
            ) from error
        finally:
            atexit.unregister(end)
            end()


class _Once:
    """A callable that runs its work on the first call only."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def __call__(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


def _stop(spark: "SparkSession") -> None:
    """Stop the session; if its JVM is gone, only drop the references."""
    if _jvm_exit_code() is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # "unable to cleanly shutdown" after an interrupt
            spark.stop()
        return
    from pyspark import SparkContext  # noqa: PLC0415 - heavy, and optional
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy, and optional

    SparkSession._instantiatedSession = None  # noqa: SLF001 - stop() would call the dead JVM
    SparkContext._active_spark_context = None  # noqa: SLF001 - the same


def _end_jvm(seconds: float) -> None:
    """End the JVM, so that the next session starts with its own flags and folders.

    Otherwise the JVM would run as long as this process, with the first session's flags and a temporary folder
    that no longer exists.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - heavy, and optional

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark's own tests end it like this
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the same
    if gateway is None:
        return
    process = gateway.proc
    with _mute_unsent_commands():
        gateway.shutdown()
        process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


@contextmanager
def _mute_unsent_commands() -> Iterator[None]:
    """Suppress Py4J's log records about unsent commands while the JVM ends.

    A Py4J thread releases objects in the JVM even while the connection closes, and logs each failure on the
    root logger.
    """
    root = logging.getLogger()
    root.addFilter(_is_other_record)
    try:
        yield
    finally:
        root.removeFilter(_is_other_record)


def _is_other_record(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."


def _jvm_exit_code(seconds: float = 0.0) -> int | None:
    """Return the exit code of our JVM; None if it still runs after `seconds`.

    Its connections break shortly before the process exits.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - heavy, and optional

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark keeps it there for callers
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    code: int | None = process.poll()
    return code


def _set(spark: "SparkSession", conf: Mapping[str, str]) -> None:
    """Apply the settings that a running session allows to change."""
    for key, value in conf.items():
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)


def _check_reachable(url: str) -> None:
    """Raise NoSpark if nothing listens at the address: PySpark would retry for minutes."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if parts.scheme != "sc" or not host:
        raise NoSpark(f"{url!r} is not an address of a Spark Connect server: write sc://host:port")
    try:
        socket.create_connection((host, port), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise NoSpark(f"no Spark Connect server answers at {host}:{port} ({error})") from error


@contextmanager
def _environ(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the block; restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts() -> Iterator[None]:
    """Restore the SIGINT handler after Spark has started.

    PySpark installs a handler that cancels jobs over the connection that the signal has just interrupted: it
    fails and prints a long error. Stopping the session cancels the jobs as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Suppress py4j's log records of broken or interrupted calls: it raises the same errors."""

    def is_not_py4j(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    # filters apply only to the logger that is called: py4j uses its own and the root logger
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]
    for logger in loggers:
        logger.addFilter(is_not_py4j)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_not_py4j)
