"""Spark as users run it: spark-submit to a cluster of two workers, and a Spark Connect server, both for real.

Everything listens on the loopback address, every wait has a deadline, and what was started is ended by id.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from lorogo_pipeline.spark import java, package_zip, session_conf

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
CLUSTER = "local-cluster[2,1,1024]"
START_SECONDS = 90.0
SUBMIT_SECONDS = 110.0
STOP_SECONDS = 20.0
LOOPBACK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
# The very flags of our own local sessions: two cores have to start three JVMs here.
QUICK = " ".join(session_conf.QUICK)


def environment(java_home: Path, code: Path | None) -> dict[str, str]:
    """The environment of a user's shell: a Java, a Python, and no more of lorogo's code than `code`."""
    made = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "COV_CORE", "COVERAGE")) and name != "PYTHONPATH"
    }
    made |= session_conf.environment(
        {},
        master="local",
        python=sys.executable,
        java_home=java_home,
        spark_home=SPARK_HOME,
        code=code or SPARK_HOME,
    )
    if code is None:
        del made["PYTHONPATH"]
    return made


def command(*arguments: str, conf: Mapping[str, str]) -> list[str]:
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [str(SPARK_HOME / "bin" / "spark-submit"), *settings, *arguments]


def submit(
    program: Path,
    work: Path,
    *,
    master: str = CLUSTER,
    arguments: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
    seconds: float = SUBMIT_SECONDS,
) -> str:
    """Run a program under spark-submit, with lorogo's packages as `--py-files`, and return its output. Raises
    if it failed.

    `work` is a folder for the files that Spark leaves behind.
    """
    packages = package_zip.pack(work / "lorogo.zip")
    settings = LOOPBACK | {
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        **(conf or {}),
    }
    with java.wrapped(java.find()) as home:
        process = subprocess.Popen(
            command("--master", master, "--py-files", str(packages), str(program), *arguments, conf=settings),
            cwd=work,
            env=environment(home, None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            end(process)
    assert process.returncode == 0, f"exit code {process.returncode}\n{output}\n{errors[-8000:]}"
    return output


@contextmanager
def connect_server(work: Path, *, conf: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address (sc://...) of a Spark Connect server that has our libraries, but not our code."""
    port = free_port()
    settings = LOOPBACK | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": QUICK,
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": (work / "warehouse").as_uri(),
        **(conf or {}),
    }
    log = work / "connect-server.log"
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with java.wrapped(java.find()) as home, log.open("wb") as output:
        process = subprocess.Popen(
            command("--master", "local[2]", "--class", server, "spark-internal", conf=settings),
            cwd=work,
            env=environment(home, None),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await_port(process, port, log)
            yield f"sc://127.0.0.1:{port}"
        finally:
            end(process)


def run(program: Path, work: Path, *arguments: str, seconds: float = SUBMIT_SECONDS) -> str:
    """Run a program as a process of its own, with lorogo's packages on its path, and return its output."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"
    return done.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)  # there is no event to wait for: the server only begins to listen
    raise AssertionError(
        f"the Spark Connect server did not come up:\n{log.read_text(errors='replace')[-8000:]}"
    )


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """The process gone, with all that it started: it leads a process group of its own."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
