"""The command as users run it: real processes, in a folder of their own; most are forked from `prefork`."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.cli import prefork

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "lorogo_cli")
SECONDS = 60.0

T = TypeVar("T")


def environment(**more: str) -> dict[str, str]:
    """The environment of the command: no choices of the shell that runs the tests, and an open lorogo.

    A test of a closed one gives `LOROGO_OPEN=""`.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "LOROGO_NATS_SERVER" or not name.startswith(("LOROGO_", "VISUAL", "EDITOR"))
    }
    kept |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LOROGO_OPEN": "1"}
    return kept | more


def lorogo(
    *arguments: str, cwd: Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = prefork.start(arguments, cwd=cwd, env=environment(**(env or {})), files=(given, out, err))
        try:
            code = process.wait(SECONDS)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*COMMAND, *arguments], code, out.read(), err.read())


def said(result: subprocess.CompletedProcess[bytes]) -> str:
    """Its stdout, given that all went well."""
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def said_json(result: subprocess.CompletedProcess[bytes]) -> Any:
    return json.loads(said(result))


def refused(result: subprocess.CompletedProcess[bytes]) -> str:
    """The sentence of a command that could not do it: one line on stderr, exit code 2, nothing else."""
    words = result.stderr.decode()
    assert result.returncode == 2, (result.returncode, words, result.stdout)
    assert result.stdout == b""
    assert words.startswith("lorogo: "), words
    assert words.endswith("\n"), words
    assert words.count("\n") == 1, words
    return words.removeprefix("lorogo: ").rstrip("\n")


def until(what: str, look: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """Call `look` until it finds something; return that."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None or found is False:
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.02)
    return found


class Running:
    """A command that goes on; its output is in files."""

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path, name: str, env: dict[str, str] | None = None
    ) -> None:
        self.out, self.err = cwd / f"{name}.out", cwd / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err, Path(os.devnull).open("rb") as given:
            files = (given, out, err)
            self.process = prefork.start(arguments, cwd=cwd, env=environment(**(env or {})), files=files)

    def wait_for(self, words: str) -> str:
        """Its stdout, as soon as these words are in it."""

        def look() -> str | None:
            text = self.out.read_text()
            if words not in text:
                assert self.process.poll() is None, (text, self.err.read_text())
                return None
            return text

        return until(f"{words!r}", look)

    def log(self) -> list[dict[str, Any]]:
        """Its log lines."""
        return [json.loads(line) for line in self.err.read_text().splitlines()]

    def wait_for_log(self, message: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for that many log lines with this message; return them."""

        def look() -> list[dict[str, Any]] | None:
            found = [line for line in self.log() if line["message"] == message]
            return found if len(found) >= count else None

        return until(f"{count} times {message!r}", look)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
