"""`make fuzz`: every target for so many seconds, and a table of what came of it.

    python -m tests.fuzz.run [--seconds 60] [--jobs 2] [--engine auto|atheris|random] [NAME ...]

A target runs in a process of its own. What raises, hangs or kills it is written to `tests/fuzz/found/`, with
the command that tries it again; the target goes on until its time is over. Exit code 1 if anything was found.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.fuzz.child import keep
from tests.fuzz.slate import Slate
from tests.fuzz.target import FOUND, HERE, load, names

ROOT = HERE.parents[1]
WORK = ROOT / "build" / "fuzz-corpus"  # what the guided engine learned; the next run goes on from it
HANG_SECONDS = 30.0  # one input takes no longer, even on a busy machine
_DEATHS_MAX = 500
_POLL_SECONDS = 0.5
_EDGES = re.compile(r"cov: ([0-9]+)")
_LAST_WORDS = re.compile(
    r"^(memory allocation|thread .* has overflowed|fatal runtime error|Fatal Python error)"
    r"|panicked at|libFuzzer: "
)
_FRAME = re.compile(r"^ +[0-9]+: (.*(?:loro_|serde_columnar|postcard).*)")


@dataclass(slots=True)
class Result:
    """The result of one target."""

    name: str
    engine: str
    executions: int = 0
    seconds: float = 0.0
    edges: str = "-"
    findings: list[tuple[str, Path]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a run."""

    seconds: float
    engine: str
    seed: int = 1
    hang_seconds: float = HANG_SECONDS
    found: Path = FOUND
    work: Path = WORK


def replay_command(name: str, path: Path) -> str:
    """The command that repeats the finding."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{Path(sys.executable)} -m tests.fuzz.replay {name} {shown}"


def fuzz(name: str, plan: Plan) -> Result:
    """The target, run until its time is over, over its own deaths too."""
    result = Result(name, plan.engine)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        slate = Slate.create(Path(folder) / "slate", load(name).bytes_max)
        for number in range(_DEATHS_MAX):
            left = plan.seconds - (time.monotonic() - begun)
            if left <= 0:
                break
            died = _once(result, plan, slate, Path(folder) / "slate", left, plan.seed + number)
            if not died:
                break
            if died not in (kind for kind, _ in result.findings):
                _note(result, died, keep(plan.found, name, slate.data), "")
        result.executions = slate.executions
        slate.close()
    result.seconds = time.monotonic() - begun
    return result


def _once(result: Result, plan: Plan, slate: Slate, path: Path, seconds: float, seed: int) -> str:
    """One process, to its end; how it died, empty if it did not."""
    command = [
        *(sys.executable, "-m", "tests.fuzz.child", result.name, "--engine", plan.engine),
        *("--slate", str(path), "--found", str(plan.found), "--work", str(plan.work / result.name)),
        *("--seconds", str(seconds), "--seed", str(seed)),
    ]
    said: deque[str] = deque(maxlen=200)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, errors="replace") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        readers = [
            threading.Thread(target=_listen, args=(child.stdout, result)),
            threading.Thread(target=_remember, args=(child.stderr, said, result)),
        ]
        for reader in readers:
            reader.start()
        try:
            died = _watch(child, slate, plan.hang_seconds)
        finally:
            child.kill()
            child.wait()
            for reader in readers:
                reader.join()
    return f"{died}{_last_words(said)}" if died else ""


def _last_words(said: Iterable[str]) -> str:
    """The part of the last output that distinguishes one death from another: the reason, and the place in
    native code.
    """
    why = where = ""
    for line in said:
        if _LAST_WORDS.search(line):
            why, where = re.sub(r"[0-9]+", "N", line.strip()), ""
        elif not where and (frame := _FRAME.match(line)):
            where = frame[1].strip()
    return f": {why}{' in ' if where else ''}{where}" if why else ""


def _watch(child: subprocess.Popen[str], slate: Slate, hang_seconds: float) -> str:
    seen, since = slate.executions, time.monotonic()
    while True:
        try:
            code = child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if (now := slate.executions) != seen:
                seen, since = now, time.monotonic()
            elif seen and time.monotonic() - since > hang_seconds:
                return f"no end after {hang_seconds:g} s"
            continue
        return f"the process ended with {code}" if code else ""


def _listen(lines: IO[str], result: Result) -> None:
    for line in lines:
        try:
            facts = json.loads(line)
        except ValueError:
            continue  # what a target's code prints by itself
        if isinstance(facts, dict) and "kind" in facts:
            _note(result, facts["kind"], Path(facts["path"]), facts["text"])


def _remember(lines: IO[str], said: deque[str], result: Result) -> None:
    for line in lines:
        said.append(line)
        if edges := _EDGES.search(line):
            result.edges = edges[1]


def _note(result: Result, kind: str, path: Path, text: str) -> None:
    if any(known == kind for known, _ in result.findings):
        return  # a process that died before has found it already
    result.findings.append((kind, path))
    print(
        f"\n== {result.name}: {kind}\n{text}   try it again: {replay_command(result.name, path)}", flush=True
    )


def table(results: list[Result]) -> str:
    """The results, a line each."""
    rows = [("target", "engine", "executions", "seconds", "edges", "findings")]
    rows += [
        (one.name, one.engine, str(one.executions), f"{one.seconds:.0f}", one.edges, str(len(one.findings)))
        for one in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def chosen_engine(wanted: str) -> str:
    """The guided engine if it is installed; otherwise the random one, with a message."""
    there = importlib.util.find_spec("atheris") is not None
    if wanted == "atheris" and not there:
        raise SystemExit("atheris is not installed here: `make fuzz` installs it where it has a wheel")
    if wanted == "auto" and not there:
        print("== atheris is not here (it has wheels for Linux on x86-64): random mutation without a guide")
    return "atheris" if there and wanted != "random" else "random"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; all if none is given"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--jobs", type=int, default=1, help="so many at a time")
    parser.add_argument("--engine", choices=["auto", "atheris", "random"], default="auto")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    plan = Plan(chosen.seconds, chosen_engine(chosen.engine), chosen.seed)
    wanted = chosen.names or names()
    for name in wanted:
        load(name)
    print(f"== fuzz {len(wanted)} targets with {plan.engine}, {plan.seconds:g} s each", flush=True)
    with ThreadPoolExecutor(max(1, chosen.jobs)) as pool:
        results = list(pool.map(lambda name: fuzz(name, plan), wanted))
    print(table(results))
    return 1 if any(one.findings for one in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
