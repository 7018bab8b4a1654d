"""`python -m tests.simulation`: run seeds, see one again, find out whether a mutation is caught."""

import argparse
import json
import os
import sys

from tests.simulation import finding, mutations, mutations_table, run
from tests.simulation.mutating import NoSuchMutation
from tests.simulation.plan import ANYTHING, Wish


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        help="from-to, or how many from 0 on; 100, and with --mutation those that show it",
    )
    parser.add_argument("--seed", type=int, help="this one alone, in this process")
    parser.add_argument("--trace", action="store_true", help="print everything that happened (with --seed)")
    parser.add_argument(
        "--fingerprints",
        action="store_true",
        help="print of every seed a hash of its trace, and one without words, which renaming does not change",
    )
    parser.add_argument("--jobs", type=_some, default=os.cpu_count() or 1)
    parser.add_argument("--mutation", type=_mutation, default="", help="with this deliberate mistake")
    parser.add_argument("--mutations", action="store_true", help="look for every mistake, and print a table")
    parser.add_argument("--like", type=_mutation, default="", help="with the faults of this one, without it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument(
        "--stop-after", type=_some, help="so many failures; 20, and with --mutation the first"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--until-caught", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace and options.seed is None:
        parser.error("--trace is for one seed: --seed N --trace")
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]], run.environment()
        )
    if options.mutations:
        return mutations_table.tell(options.jobs)
    if options.child:
        return _child(json.loads(options.child), options)
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _seeds(text: str) -> range:
    """The seeds that are meant; none would prove nothing."""
    first, _, last = text.rpartition("-")
    try:
        seeds = range(int(first), int(last) + 1) if first else range(int(last))
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} are no seeds")
    return seeds


def usual_seeds(mutation: str) -> range:
    """Without `--seeds`: enough to find the mutation, as `make test` runs it."""
    begin, count = (mutations.named(mutation).begin, finding.SEEDS_MAX) if mutation else (0, 100)
    return range(begin, begin + count)


def _some(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _mutation(name: str) -> str:
    try:
        return mutations.named(name).name if name else ""
    except NoSuchMutation as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _wish(name: str) -> Wish:
    return mutations.named(name).wish if name else ANYTHING


def _child(seeds: list[tuple[int, str]], options: argparse.Namespace) -> int:
    run.prepare(options.mutation)
    for seed, like in seeds:
        verdict = run.run_seed(seed, wish=_wish(like))
        print(run.as_line(verdict), flush=True)
        if options.until_caught and not verdict.passed:
            break
    return 0


def _one(options: argparse.Namespace) -> int:
    run.prepare(options.mutation)
    wish = _wish(options.like or options.mutation)
    verdict = run.run_seed(options.seed, wish=wish, whole_trace=options.trace)
    _tell(verdict, options)
    return 0 if verdict.passed else 1


def _many(options: argparse.Namespace) -> int:
    seeds: range = options.seeds or usual_seeds(options.mutation)
    done = 0

    def tell(verdict: run.Verdict) -> None:
        nonlocal done
        done += 1
        if options.fingerprints:
            print(f"seed {verdict.seed}: {_fingerprints(verdict)}", flush=True)
        if not verdict.passed:
            _tell(verdict, options)
        elif not done % 500 and not options.fingerprints:
            print(f"{done} of {len(seeds)} seeds", flush=True)

    begun = run.real_time()
    verdicts = run.run_many(
        seeds,
        jobs=options.jobs,
        mutation=options.mutation,
        like=options.like,
        tell=tell,
        stop_after=options.stop_after or (1 if options.mutation else 20),
        seconds_max=options.minutes * 60,
    )
    failed = [verdict for verdict in verdicts if not verdict.passed]
    hours = sum(verdict.virtual_seconds for verdict in verdicts) / 3600
    minutes = (run.real_time() - begun) / 60
    print(
        f"{len(verdicts)} seeds, {len(failed)} failed: {hours:.1f} virtual hours, {minutes:.1f} real minutes"
    )
    cut_short = len(verdicts) < len(seeds) and options.minutes == float("inf")
    return 1 if failed or cut_short or not verdicts else 0


def _tell(verdict: run.Verdict, options: argparse.Namespace) -> None:
    for line in verdict.trace:
        print(line)
    if verdict.passed:
        print(
            f"seed {verdict.seed} passed: {verdict.virtual_seconds:.0f} virtual seconds,"
            f" {verdict.turns} turns, {verdict.real_seconds:.2f} s, {_fingerprints(verdict)}"
        )
    else:
        print(f"seed {verdict.seed} FAILED ({verdict.checker}): {verdict.words}")
        print(f"see it again: {run.command(verdict.seed, options.mutation, options.like)}", flush=True)


def _fingerprints(verdict: run.Verdict) -> str:
    return f"fingerprint {verdict.fingerprint:016x}, without words {verdict.facts:016x}"


if __name__ == "__main__":
    sys.exit(main())
