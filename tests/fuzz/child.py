"""One target in a process of its own: it may hang or die, and `run.py` reports its last input.

The child writes each new kind of finding to a file and reports it on standard output as a JSON line; then it
continues.
"""

import argparse
import hashlib
import json
import resource
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import mutated
from tests.fuzz.slate import Slate
from tests.fuzz.target import Target, corpus, load

KINDS_MAX = 25  # of findings: after so many, a person reads them first
_MEMORY_BYTES_MAX = 4 << 30
_MEGABYTES_MAX = 2048  # the same for libFuzzer, which counts what is really used
#: what is watched by the guided engine; the rest of what is imported is taken as it is
_GUIDED = (
    "lorogo_protocol",
    "lorogo_transport",
    "lorogo_log",
    "lorogo_server",
    "lorogo_client",
    "lorogo_gateway",
    "lorogo_cli",
    "jsonpath",
    "jwt",
)


def kind_of(error: BaseException) -> str:
    """The kind of a finding: the error's type, and the last line of lorogo that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "lorogo_" in frame.filename or "fuzz_" in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}"


class Watch:
    """Runs inputs, and keeps what they find."""

    def __init__(self, name: str, target: Target, slate: Slate, found: Path) -> None:
        self._name = name
        self._target = target
        self._slate = slate
        self._found = found
        self._known: set[str] = set()
        self.executions = slate.executions

    def one(self, data: bytes) -> None:
        self.executions += 1
        self._slate.write(self.executions, data)
        try:
            self._target.check(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - Loro's panics are no Exceptions
            self._tell(data, error)

    def _tell(self, data: bytes, error: BaseException) -> None:
        kind = kind_of(error)
        if kind in self._known or len(self._known) >= KINDS_MAX:
            return
        self._known.add(kind)
        path = keep(self._found, self._name, data)
        tell(kind=kind, path=str(path), text="".join(traceback.format_exception(error)))


def keep(found: Path, name: str, data: bytes) -> Path:
    """The input in a file, named by its content."""
    found.mkdir(parents=True, exist_ok=True)
    path = found / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def tell(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--slate", type=Path, required=True)
    parser.add_argument("--found", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--engine", choices=["atheris", "random"], required=True)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.engine == "atheris":
        _guided(chosen)
    else:
        _random(chosen)


def _random(chosen: argparse.Namespace) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    target = load(chosen.name)
    watch = Watch(chosen.name, target, Slate(chosen.slate), chosen.found)
    end = time.monotonic() + chosen.seconds
    for data in mutated(corpus(chosen.name), Random(chosen.seed), target.bytes_max):
        watch.one(data)
        if time.monotonic() >= end:
            return


def _guided(chosen: argparse.Namespace) -> None:
    atheris: Any = __import__("atheris")
    with atheris.instrument_imports(include=list(_GUIDED)):
        target = load(chosen.name)
    watch = Watch(chosen.name, target, Slate(chosen.slate), chosen.found)
    chosen.work.mkdir(parents=True, exist_ok=True)
    for data in corpus(chosen.name):
        keep(chosen.work, "seed", data)
    options = [
        f"-max_total_time={max(1, int(chosen.seconds))}",
        f"-max_len={target.bytes_max}",
        f"-rss_limit_mb={_MEGABYTES_MAX}",
        f"-seed={chosen.seed}",
        "-timeout=1200",  # run.py looks sooner
        f"-artifact_prefix={chosen.work.parent}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(chosen.work)], watch.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
