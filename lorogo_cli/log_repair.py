"""`lorogo log repair`: what would mend a log, and the mending itself.

Nothing is changed without `--apply`. With it the order is: what the next writer would do anyway (leftovers
of a crash removed, half-written tails cut, open segments sealed), then damaged segments, one by one.
Originals of what is cut or replaced are on the disk as `.broken` before anything is touched.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_cli.errors import Problem
from lorogo_cli.log_errors import printing
from lorogo_cli.log_found import Found, found
from lorogo_cli.log_survey import Damage, State, Verdict, lost_words, survey
from lorogo_cli.log_verify import damage_facts, gap_sentence, lost_shown
from lorogo_cli.output import say, say_json, say_table, working
from lorogo_cli.values import show_count, show_size
from lorogo_log import Recovery, maintain, names
from lorogo_log.recovery import recover, salvage
from lorogo_log.segment import Segment, scan
from lorogo_log.storage import Directory, DiskDirectory

if TYPE_CHECKING:
    from lorogo_cli.log_replica import Source


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with one file."""

    name: str
    action: str  # remove, rename, seal, cut, fetch, salvage, put aside, leave
    why: str


def repair(path: Path, *, apply: bool, salvage: bool, replica: str | None, as_json: bool) -> bool:
    """Print the plan or what was done; whether no damage is left."""
    here = found(path)
    with nullcontext() if replica is None else _source(replica, here) as source:
        if apply:
            return _apply(path, DiskDirectory(path), source, salvaging=salvage, as_json=as_json)
        with working(f"reading {path}"):
            verdicts = list(survey(here))
        _refuse_unreadable(verdicts)
        steps = plan(here, verdicts, source, salvaging=salvage)
    report = Report(
        path,
        steps,
        [fault for verdict in verdicts for fault in verdict.damage],
        here.writer,
        gaps=[verdict.gap for verdict in verdicts if verdict.gap is not None],
    )
    _show(report, as_json=as_json)
    return not report.left and not here.strangers


def _source(address: str, here: Found) -> "Source":
    from lorogo_cli.log_replica import Source

    return Source(address, here)


def plan(here: Found, verdicts: list[Verdict], source: "Source | None", *, salvaging: bool) -> list[Step]:
    """What to do, file by file; nothing for what is good."""
    known = {entry.name for entry in here.entries}
    steps = [
        Step(Path(stranger.path).name, "leave", f"it {stranger.reason}: move it away by hand")
        for stranger in here.strangers
    ]
    if here.writer is not None:
        known |= set(here.directory.list())  # what is prepared or rewritten is in use
    steps += [
        Step(name, "remove", "left by a crash, or prepared and not used")
        for name in sorted(here.directory.list())
        if name not in known and (names.is_temporary(name) or names.PREPARED.fullmatch(name))
    ]
    for verdict in verdicts:
        if names.PREPARED.fullmatch(verdict.name):
            new = names.segment_name(verdict.first_sequence, verdict.first_time)
            steps.append(Step(verdict.name, "rename", f"to {new}: the rename was lost in a crash"))
        steps += _steps(verdict, source, salvaging=salvaging, newest=verdict is verdicts[-1])
    return steps


def _fetchable(verdict: Verdict, source: "Source | None") -> bool:
    return (
        source is not None
        and any(fault.kind == "corrupt" for fault in verdict.damage)
        and source.has(verdict.name)
    )


def _steps(verdict: Verdict, source: "Source | None", *, salvaging: bool, newest: bool) -> Iterator[Step]:
    faults = list(verdict.damage)
    match verdict.state:
        case State.OPEN:
            yield Step(verdict.name, "seal", "its writer did not close it; all records are there")
        case State.TORN:
            cut = verdict.bytes - faults[0].offset
            why = f"{show_size(cut)} from byte {faults[0].offset} on, kept as .broken: {faults[0].reason}"
            yield Step(verdict.name, "cut", why)
        case State.DAMAGED if all(fault.kind in {"seal", "torn"} for fault in faults):
            yield Step(verdict.name, "seal", "its trailer is not whole; all records are there")
        case State.DAMAGED:
            lost = lost_shown(faults)
            have = show_count(verdict.records or 0, "record")
            if _fetchable(verdict, source):
                yield Step(
                    verdict.name, "fetch", "the replica has a good copy; the original is kept as .broken"
                )
            elif verdict.foreign and newest:
                yield Step(verdict.name, "leave", "not a segment of a lorogo log: move it away by hand")
            elif not verdict.records and newest:
                why = f"nothing in it can be read, {lost}: kept as .broken; a replica or a backup may have it"
                yield Step(verdict.name, "put aside", why)
            elif not verdict.records:
                why = f"nothing in it can be read, {lost}: fetch it with --from, or copy it from a backup"
                yield Step(verdict.name, "leave", why)
            elif salvaging:
                yield Step(verdict.name, "salvage", f"{have} kept, {lost}; the original is kept as .broken")
            else:
                yield Step(verdict.name, "leave", f"{have} served, {lost}; --from or --salvage mends it")
        case State.GOOD | State.SEALED | State.WRITING | State.UNREADABLE:
            pass


def _refuse_unreadable(verdicts: list[Verdict]) -> None:
    """What this program does not understand is not touched at all."""
    for verdict in verdicts:
        if verdict.state is State.UNREADABLE:
            raise Problem(verdict.problem)


def _refuse_strangers(here: Found, verdicts: list[Verdict]) -> None:
    """With these among the files no writer could open the log, and what they should be is unknown."""
    for stranger in here.strangers:
        raise Problem(f"{stranger.path} {stranger.reason}: move it away first; nothing was changed")
    if verdicts and verdicts[-1].foreign:
        (fault, *_) = verdicts[-1].damage
        what = "wrong magic: not a segment of a lorogo log"
        raise Problem(f"{fault.path}: {what}; move it away first; nothing was changed")


# -- the mending -----------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path, directory: Directory) -> Iterator[None]:
    """No appender beside us. Raises LockedError."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise Problem(f"{path} cannot be changed: permission denied; run this as the user who owns the log")
    lock = directory.lock(names.APPEND_LOCK, exclusive=True, wait_seconds=0)
    try:
        yield
    finally:
        lock.release()


def _found_alone(path: Path) -> Found:
    """The log, while we hold its lock: the writer that the system sees is this process."""
    return replace(found(path), writer=None)


def _apply(
    path: Path, directory: Directory, source: "Source | None", *, salvaging: bool, as_json: bool
) -> bool:
    with working(f"mending {path}"), _alone(path, directory):
        here = _found_alone(path)
        before = list(survey(here))
        _refuse_unreadable(before)
        steps = plan(here, before, source, salvaging=salvaging)
        if not (source is not None and before and _fetchable(before[-1], source)):
            _refuse_strangers(here, before)
        for verdict in before:
            if source is not None and _fetchable(verdict, source):
                source.install(here, verdict.name)
        recover(directory, Recovery.TAIL)
        with maintain.cleaning(directory):
            for verdict in survey(_found_alone(path)) if salvaging else ():
                if verdict.state is State.DAMAGED and verdict.records:
                    _salvage(directory, verdict)
        now = _found_alone(path)
        after = list(survey(now))
    left = [fault for verdict in after for fault in verdict.damage]
    for_good = [
        fault
        for verdict in before
        for fault in verdict.damage
        if fault.lost
        and fault.path not in {one.path for one in left}
        and not (source is not None and _fetchable(verdict, source))
    ]
    steps = [_done(step, now) for step in steps]
    kept = sorted(set(now.broken) - set(here.broken))
    gaps = [verdict.gap for verdict in after if verdict.gap is not None]
    report = Report(path, steps, left, None, applied=True, lost=for_good, kept=kept, gaps=gaps)
    _show(report, as_json=as_json)
    return not left


def _done(step: Step, now: Found) -> Step:
    """What came of a step: recovery has the last word on a segment that holds nothing."""
    there = step.name in now.directory.list()
    match step.action:
        case "leave" if not there:
            return Step(step.name, "put aside", step.why)
        case "put aside" if there:
            return Step(step.name, "leave", step.why)
        case _:
            return step


def _salvage(directory: Directory, verdict: Verdict) -> None:
    """Rewrite one segment from its good frames."""
    segment = Segment.open(directory, verdict.name)
    try:
        ends = [fault.lost[1] or 0 for fault in verdict.damage if fault.lost]
        last = max(scan(segment).next_sequence - 1, *ends, 0)
        salvage(directory, segment, last_sequence=last)
    finally:
        segment.close()


# -- what is shown ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """A plan, or what was done."""

    path: Path
    steps: list[Step]
    #: damage that is there (now)
    left: list[Damage]
    writer: int | None
    applied: bool = False
    #: damage that is gone, and its records with it
    lost: list[Damage] = field(default_factory=list)
    #: the .broken files that were made
    kept: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)


def _show(report: Report, *, as_json: bool) -> None:
    with printing():
        if as_json:
            say_json(_facts(report), pretty=False)
            return
        steps = report.steps
        if steps:
            header = ("FILE", "DONE" if report.applied else "TO DO", "WHY")
            say_table(header, [(step.name, step.action, step.why) for step in steps])
        else:
            say("nothing to mend")
        for gap in report.gaps:
            say(gap_sentence(*gap))
        for sentence in _after(report) if report.applied else _before(report):
            say(sentence)


def _facts(report: Report) -> dict[str, object]:
    return {
        "directory": str(report.path),
        "applied": report.applied,
        "writer": report.writer,
        "steps": [{"name": step.name, "action": step.action, "why": step.why} for step in report.steps],
        "damage": [damage_facts(fault) for fault in report.left],
        "lost": [list(fault.lost) for fault in report.lost if fault.lost],
        "kept": report.kept,
        "gaps": [list(gap) for gap in report.gaps],
    }


def _before(report: Report) -> Iterator[str]:
    """What a plan means."""
    actions = {step.action for step in report.steps}
    where = shlex.quote(str(report.path))
    if actions - {"leave"}:
        yield (
            "nothing was changed; with --apply the above would be done, and what is cut or replaced would be"
            f" kept as .broken in {where}"
        )
    elif actions:
        yield "nothing was changed, and --apply alone would not change anything either"
    if any(step.why.endswith("--from or --salvage mends it") for step in report.steps):
        yield f"best: `lorogo log repair {where} --from HOST:PORT --apply` fetches good copies from a replica"
        yield f"else: `lorogo log repair {where} --salvage --apply` keeps what is good, and no more"
    if report.writer is not None:
        yield f"process {report.writer} is writing to the log: --apply is refused until it has stopped"


def _after(report: Report) -> Iterator[str]:
    """What was done means."""
    for name in report.kept:
        yield f"kept: {name}"
    for fault in report.lost:
        assert fault.lost is not None
        yield f"{lost_words(*fault.lost)} lost, unless a replica or a backup has it"
    for fault in report.left:
        yield f"{fault.kind}: {fault.sentence()}"
    if report.steps:
        checks = "what is left checks now" if report.lost else "everything checks now"
        yield "damage is left" if report.left else checks
