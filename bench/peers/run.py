"""lorogo beside other collaboration servers: the same workloads from the same driver, in one run.

    python bench/peers/run.py HARNESS [--work DIR] [--repetitions 3] [--minutes 15] [--json FILE]
    python bench/peers/run.py HARNESS --servers lorogo-native,hocuspocus --workloads w1,w2 --repetitions 1

HARNESS is the folder with the driver and the other servers (driver.mjs, peers.mjs, run.sh, servers/,
clients/). It is not in this repository; README.md beside this file describes it. It is not changed: the
runner copies it to the work folder, and adds the files of overlay/ to the copy.

Exit code 0: lorogo's results are right; 1: one is wrong or was not measured; 2: a requirement is missing.
"""

import argparse
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.peers import results
from lorogo_bench.stack import machine
from lorogo_bench.stack.usage import family

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PARTS = ("driver.mjs", "peers.mjs", "run.sh", "servers", "clients")
TRACE = Path("..") / "data" / "traces" / "automerge-paper.json.gz"  # seen from the harness
OTHERS = ("relay", "hocuspocus", "y-websocket", "loro-websocket", "pycrdt", "automerge")
OURS = ("lorogo-gateway", "lorogo-gateway-stream", "lorogo-native", "lorogo-native-stream")
WORKLOADS = ("w1", "w2", "w3", "w4", "w4k", "w5", "w6")
DEFAULT = tuple(one for one in WORKLOADS if one != "w4k")
REPEATED = frozenset({"w1", "w2", "w3", "w4"})  # the others repeat by themselves, or take too long
OF_STREAM = frozenset({"w1", "w2"})  # where the durability tells
SLOW = "automerge"  # repeats last
SLOW_STEP = ("loro-websocket", "w5")  # minutes; before that
SECONDS_MAX = {"w4k": 200, "w5": 330, "w6": 180}  # of one workload on one server
SECONDS_MAX_ELSE = 100
W5_INGEST_SECONDS = 150  # that a server may take for the trace, of those
W6_ROUNDS = 3
_SETUP_SECONDS = 900
_PACKAGES = {
    "hocuspocus": ("@hocuspocus/server", "@hocuspocus/extension-sqlite", "@hocuspocus/provider", "yjs"),
    "y-websocket": ("@y/websocket-server", "y-leveldb", "yjs"),
    "loro-websocket": ("loro-websocket", "loro-adaptors", "loro-crdt"),
    "automerge": ("@automerge/automerge-repo", "@automerge/automerge"),
}
_PYTHON_PACKAGES = {"pycrdt": ("pycrdt-websocket", "pycrdt-store", "pycrdt", "uvicorn")}


class Missing(Exception):
    """A requirement is missing; the message has the next step."""


@dataclass(frozen=True, slots=True)
class Step:
    """One workload on one server, once."""

    repetition: int
    server: str
    workload: str

    @property
    def seconds_max(self) -> int:
        return SECONDS_MAX.get(self.workload, SECONDS_MAX_ELSE)


def plan(servers: Sequence[str], workloads: Sequence[str], repetitions: int) -> list[Step]:
    """Return the steps; a repetition has all servers, so that a disturbance affects few figures of each."""
    steps = itertools.starmap(Step, itertools.product(range(1, repetitions + 1), servers, workloads))
    chosen = [step for step in steps if _makes_sense(step)]
    return sorted(chosen, key=_lateness)


def _lateness(step: Step) -> int:
    """Return the order of a step: slow steps come last, and are left out when the time is over."""
    if step.server == SLOW and step.repetition > 1:
        return 2
    return int((step.server, step.workload) == SLOW_STEP)


def _makes_sense(step: Step) -> bool:
    if step.repetition > 1 and step.workload not in REPEATED:
        return False
    if step.server == results.CEILING:
        return step.workload not in ("w5", "w6")  # it keeps nothing
    return not step.server.endswith("-stream") or step.workload in OF_STREAM


def check_harness(folder: Path | None) -> Path:
    """Return the folder if it is a harness. Raises Missing."""
    if folder is None:
        raise Missing(
            "name the folder of the harness: python bench/peers/run.py HARNESS. It has the driver and the"
            " other servers and is not in this repository; bench/peers/README.md lists its files."
        )
    lacking = [name for name in PARTS if not (folder / name).exists()]
    if lacking:
        raise Missing(
            f"{folder} is not the harness: it lacks {', '.join(lacking)}. The harness is not in this"
            " repository; bench/peers/README.md lists its files. `lorogo bench` does not need it."
        )
    return folder.resolve()


def check_tools() -> None:
    """Raises Missing."""
    for program, words in (("node", "Node 20 or newer"), ("npm", "npm, which comes with Node")):
        if shutil.which(program) is None:
            raise Missing(f"{program} is not on PATH: install {words}")


def lay_out(harness: Path, work: Path) -> None:
    """Copy the harness to the work folder, install its packages, and add our files. Raises Missing."""
    work.mkdir(parents=True, exist_ok=True)
    if not ((work / "node_modules" / "ws").is_dir() and (work / "pv" / "bin" / "python").exists()):
        _progress(f"installing the packages of the other servers in {work} (a few minutes, once)")
        environment = {**os.environ, "PEERS_WORK": str(work)}
        try:
            subprocess.run(
                ["sh", str(harness / "run.sh"), "setup"],
                env=environment,
                stdout=sys.stderr,
                timeout=_SETUP_SECONDS,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise Missing(f"the packages of the other servers could not be installed: {error}") from None
    for name in ("servers", "clients"):
        shutil.copytree(harness / name, work / name, dirs_exist_ok=True)
    shutil.copy(harness / "driver.mjs", work / "driver.mjs")
    shutil.copy(harness / "peers.mjs", work / "others.mjs")
    shutil.copytree(HERE / "overlay", work, dirs_exist_ok=True)
    shutil.rmtree(work / "data", ignore_errors=True)  # of a run that was ended


def measure(step: Step, work: Path, trace: Path) -> list[results.Record]:
    """Run the driver, which starts and stops the server; return its records. Kill it after its time."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOROGO_PYTHON": sys.executable,
        "LOROGO_PEERS": str(HERE),
        "PEERS_PYTHON": str(work / "pv" / "bin" / "python"),
        "PEERS_DATA": str(work / "data"),
        "TRACE": str(trace),
        "W5_LIMIT_S": str(W5_INGEST_SECONDS),
        "W6_ROUNDS": str(W6_ROUNDS),
    }
    with (work / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            ["node", "driver.mjs", step.server, step.workload],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            said, _ = driver.communicate(timeout=step.seconds_max)
        except subprocess.TimeoutExpired:
            said = ""
        finally:
            _end(driver)
    records = list(results.read(step.repetition, step.workload, said.splitlines()))
    if not any(record["workload"] == step.workload for record in records):
        records = [_failed(step, f"no result within {step.seconds_max} s; see driver.log in the work folder")]
    return records


def _failed(step: Step, why: str) -> results.Record:
    return {
        "peer": step.server,
        "workload": step.workload,
        "repetition": step.repetition,
        "error": why,
    }


def _end(driver: "subprocess.Popen[str]") -> None:
    """Kill the driver and its descendants, by their ids."""
    if driver.poll() is None:
        for pid in reversed(family(driver.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.communicate()


def versions(work: Path) -> dict[str, str]:
    """Return the versions of each server and its packages."""
    found = {}
    for server, packages in _PACKAGES.items():
        found[server] = ", ".join(f"{name} {_npm_version(work, name)}" for name in packages)
    sites = [str(path) for path in (work / "pv" / "lib").glob("python3*/site-packages")]
    python = {
        _plain(one.metadata["Name"]): one.version for one in importlib.metadata.distributions(path=sites)
    }
    for server, packages in _PYTHON_PACKAGES.items():
        found[server] = ", ".join(f"{name} {python.get(name, 'unknown')}" for name in packages)
    ours = ", ".join(f"{name} {version}" for name, version in machine.versions().items())
    commit = _answer("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    found["lorogo"] = f"{ours}, commit {commit}" if commit else ours
    node = _answer("node", "--version").removeprefix("v")
    found["driver"] = f"Node {node}, ws {_npm_version(work, 'ws')}"
    return found


def _answer(*command: str) -> str:
    """Return the output of a program; empty if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _npm_version(work: Path, name: str) -> str:
    try:
        package = json.loads((work / "node_modules" / name / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "unknown"
    return str(package.get("version", "unknown"))


def _progress(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def run(options: argparse.Namespace) -> int:
    """Measure and print. Raises Missing."""
    harness = check_harness(options.harness)
    check_tools()
    trace = options.trace if options.trace is not None else harness / TRACE
    workloads = [one for one in options.workloads if one != "w5" or trace.exists()]
    if workloads != options.workloads:
        _progress(f"W5 is left out: there is no {trace.name} (--trace names it)")
    work = options.work.absolute()
    lay_out(harness, work)
    conditions = machine.facts()
    steps = plan(options.servers, workloads, options.repetitions)
    records: list[results.Record] = []
    began = time.monotonic()
    left_out: list[Step] = []
    for done, step in enumerate(steps, 1):
        seconds = time.monotonic() - began
        if seconds > 60 * options.minutes:
            left_out = steps[done - 1 :]
            break
        _progress(f"{seconds:5.0f} s  {done}/{len(steps)}  {_words(step)}")
        try:
            records += measure(step, work, trace.absolute())
        except KeyboardInterrupt:  # the results so far are printed
            left_out = steps[done - 1 :]
            break
    conditions["minutes"] = f"{(time.monotonic() - began) / 60:.1f}"
    _print(records, versions(work), conditions, left_out)
    result: dict[str, Any] = results.as_json(records)
    result |= {
        "versions": versions(work),
        "conditions": conditions,
        "left_out": [_words(one) for one in left_out],
    }
    file = options.json if options.json is not None else work / "peers.json"
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    _progress(f"everything as JSON: {file}")
    ours = [one for one in (*result["wrong"], *result["left_out"]) if one.startswith(results.OURS)]
    return 1 if ours else 0


def _words(step: Step) -> str:
    return f"{step.server} {step.workload} ({step.repetition})"


def _print(
    records: Sequence[results.Record],
    made_of: dict[str, str],
    conditions: dict[str, str],
    left_out: Sequence[Step],
) -> None:
    print(results.markdown(records))
    print("\n**Versions**\n")
    print("\n".join(f"- {server}: {words}" for server, words in made_of.items()))
    print("\n**Conditions**\n")
    print("\n".join(f"- {name}: {words}" for name, words in conditions.items()))
    wrong = results.wrong(records)
    print("\n" + ("\n".join(f"WRONG: {words}" for words in wrong) or "right: every text and every count"))
    for step in left_out:
        print(f"NOT MEASURED: {_words(step)}")


def _names(known: Sequence[str], words: str) -> list[str]:
    names = [one for one in words.split(",") if one]
    if unknown := [one for one in names if one not in known]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description="lorogo beside other collaboration servers")
    parser.add_argument("harness", type=Path, nargs="?", help="folder with the driver and the other servers")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "peers", help="packages and data go there"
    )
    every = (*OTHERS, *OURS)
    parser.add_argument("--servers", type=lambda words: _names(every, words), default=list(every))
    parser.add_argument("--workloads", type=lambda words: _names(WORKLOADS, words), default=list(DEFAULT))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="begin nothing after so long")
    parser.add_argument("--trace", type=Path, help="automerge-paper.json.gz, for W5")
    parser.add_argument("--json", type=Path, help="everything as JSON; else peers.json in the work folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        return run(options)
    except Missing as error:
        _progress(f"run.py: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
