"""Runs seeds: one in this process, or many in several."""

import gc
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.simulation.plan import ANYTHING, Wish

TRACE_LINES = 60
_PORTION = 200  # seeds of one process
_COLLECT_EVERY = 20  # runs: what a run leaves behind is small, and looking for it is not
real_time = time.perf_counter  # before the run's own clock takes its place


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one seed."""

    seed: int
    virtual_seconds: float
    real_seconds: float
    turns: int = 0
    checker: str = ""  # which one failed; "" none
    words: str = ""
    trace: list[str] = field(default_factory=list)
    fingerprint: int = 0  # of everything that happened: the same seed gives the same
    facts: int = 0  # a fingerprint without words: a renamed event or another message does not change it

    @property
    def passed(self) -> bool:
        return not self.checker


def prepare(mutation: str = "") -> None:
    """Make this process one that simulates, and nothing else. Before anything of lorogo is imported."""
    from tests.simulation import chance

    chance.install()
    if mutation:
        from tests.simulation import mutating, mutations

        mutating.install(mutations.named(mutation))
    from tests.simulation import trace, world

    chance.seeded_peers()
    trace.listen(lambda: world.current)
    sys.unraisablehook = lambda _: None  # what a killed process left behind is not to speak at its burial
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection in the middle of a run would run code of the dead


def run_seed(seed: int, *, wish: Wish = ANYTHING, whole_trace: bool = False) -> Verdict:
    """One seed in this process, after `prepare()`."""
    from lorogo_testing.virtual_loop import Deadlock, TurnLimitExceeded
    from tests.simulation import world as worlds
    from tests.simulation.checks import Violation

    begun = real_time()
    world = worlds.World(seed, wish)
    checker = words = ""
    try:
        world.run()
    except Violation as broken:
        checker, words = broken.checker, str(broken)
    except (Deadlock, TurnLimitExceeded) as stuck:
        checker, words = type(stuck).__name__.lower(), str(stuck)
    except Exception:  # noqa: BLE001  # the world itself is broken: reported like any other failure
        checker, words = "world", traceback.format_exc()
    trace = world.trace.words() if whole_trace else world.trace.words(TRACE_LINES) if checker else []
    verdict = Verdict(
        seed,
        world.seconds,
        real_time() - begun,
        world.loop.turns,
        checker,
        words,
        trace,
        world.trace.fingerprint(),
        world.record.facts.fingerprint(),
    )
    world.close()
    if not seed % _COLLECT_EVERY:
        gc.collect()
    return verdict


def command(seed: int, mutation: str = "", like: str = "") -> str:
    """Return the command that repeats it."""
    return " ".join(
        [".venv/bin/python -m tests.simulation", f"--seed {seed} --trace", *_options(mutation, like)]
    )


def child(seeds: Iterable[tuple[int, str]], mutation: str = "", *, until_caught: bool = False) -> list[str]:
    """The command line of a process that runs these seeds and prints each verdict as a line of JSON.

    Each seed comes with the name of the mutation whose faults it gets, or with "".
    """
    options = _options(mutation, "") + (["--until-caught"] if until_caught else [])
    return [sys.executable, "-m", "tests.simulation", "--child", json.dumps(list(seeds)), *options]


def _options(mutation: str, like: str) -> list[str]:
    found = ["--mutation", mutation] if mutation else []
    return [*found, "--like", like] if like else found


def environment() -> dict[str, str]:
    """Ours, with an order of sets that is always the same."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def run_many(
    seeds: Sequence[int],
    *,
    jobs: int,
    mutation: str = "",
    like: str = "",
    tell: Callable[[Verdict], None] = lambda _: None,
    stop_after: int = 20,
    seconds_max: float = float("inf"),
) -> list[Verdict]:
    """Every seed, in processes of their own; ends early after so many failures."""
    portion = max(1, min(_PORTION, len(seeds) // (2 * jobs)))
    portions: Iterator[Sequence[int]] = iter(
        [seeds[at : at + portion] for at in range(0, len(seeds), portion)]
    )
    running: dict[int, subprocess.Popen[str]] = {}
    verdicts: list[Verdict] = []
    failures = 0
    ends = real_time() + seconds_max

    import selectors

    with selectors.DefaultSelector() as selector:

        def more() -> None:
            while len(running) < jobs and failures < stop_after and real_time() < ends:
                if (some := next(portions, None)) is None:
                    return
                process = subprocess.Popen(
                    child([(seed, like or mutation) for seed in some], mutation),
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                    env=environment(),
                )
                assert process.stdout is not None
                running[process.stdout.fileno()] = process
                selector.register(process.stdout, selectors.EVENT_READ)

        more()
        while running:
            for key, _ in selector.select():
                stream: Any = key.fileobj
                line = stream.readline()
                if line:
                    verdict = Verdict(**json.loads(line))
                    verdicts.append(verdict)
                    failures += not verdict.passed
                    tell(verdict)
                    continue
                selector.unregister(stream)
                process = running.pop(key.fd)
                code = process.wait()
                stream.close()
                if code:
                    raise RuntimeError(f"a process of the simulation ended with {code}")
            if failures >= stop_after or real_time() > ends:
                for process in running.values():
                    process.terminate()
                for process in running.values():
                    process.communicate()
                break
            more()
    return verdicts


def as_line(verdict: Verdict) -> str:
    return json.dumps(asdict(verdict))
