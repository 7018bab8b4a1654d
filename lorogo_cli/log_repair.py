"""`lorogo log repair`: what would mend a log, and the mending itself.

Nothing is changed without `--apply`. With it the order is: what the next writer would do anyway (leftovers
of a crash removed, half-written tails cut, open segments sealed), then damaged segments, one by one.
Originals of what is cut or replaced are on the disk as `.broken` before anything is touched.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_cli.errors import Problem
from lorogo_cli.log_survey import Found, State, Verdict, found, survey
from lorogo_cli.log_verify import damage_facts, lost_count
from lorogo_cli.output import note, say, say_json, say_table, working
from lorogo_cli.values import show_count, show_size
from lorogo_log import Recovery, maintain, names
from lorogo_log.recovery import recover, salvage
from lorogo_log.segment import Segment, scan
from lorogo_log.storage import Directory

if TYPE_CHECKING:
    from lorogo_cli.log_replica import Source


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done with one file."""

    name: str
    action: str  # remove, rename, seal, cut, fetch, salvage, leave
    why: str


def repair(path: Path, *, apply: bool, salvage: bool, replica: str | None, as_json: bool) -> bool:
    """Print the plan or what was done; whether no damage is left."""
    here = found(path)
    with nullcontext() if replica is None else _source(replica, here) as source:
        if apply:
            return _apply(path, here.directory, source, salvaging=salvage, as_json=as_json)
        with working(f"reading {path}"):
            verdicts = list(survey(here))
        _refuse_unreadable(verdicts)
        steps = plan(here, verdicts, source, salvaging=salvage)
    whole = not any(verdict.damage for verdict in verdicts)
    _show(path, steps, verdicts, applied=False, as_json=as_json)
    if not as_json and any(step.action != "leave" for step in steps):
        note("nothing was changed: --apply does it, when no process writes to the log")
    return whole


def _source(address: str, here: Found) -> "Source":
    from lorogo_cli.log_replica import Source

    return Source(address, here)


def plan(here: Found, verdicts: list[Verdict], source: "Source | None", *, salvaging: bool) -> list[Step]:
    """What to do, file by file; nothing for what is good."""
    known = {entry.name for entry in here.entries}
    steps = [
        Step(name, "remove", "left by a crash, or prepared and not used")
        for name in sorted(here.directory.list())
        if name not in known and (name.endswith(names.TEMPORARY) or names.PREPARED.fullmatch(name))
    ]
    for verdict in verdicts:
        if names.PREPARED.fullmatch(verdict.name):
            new = names.segment_name(verdict.first_sequence, verdict.first_time)
            steps.append(Step(verdict.name, "rename", f"to {new}: the rename was lost in a crash"))
        steps += _steps(verdict, source, salvaging=salvaging)
    return steps


def _fetchable(verdict: Verdict, source: "Source | None") -> bool:
    return (
        source is not None
        and any(fault.kind == "corrupt" for fault in verdict.damage)
        and source.has(verdict.name)
    )


def _steps(verdict: Verdict, source: "Source | None", *, salvaging: bool) -> Iterator[Step]:
    faults = list(verdict.damage)
    match verdict.state:
        case State.OPEN:
            yield Step(verdict.name, "seal", "its writer did not close it, or writes still")
        case State.TORN:
            cut = verdict.bytes - faults[0].offset
            why = f"{show_size(cut)} from byte {faults[0].offset} on, kept as .broken: {faults[0].reason}"
            yield Step(verdict.name, "cut", why)
        case State.DAMAGED if all(fault.kind in {"seal", "torn"} for fault in faults):
            yield Step(verdict.name, "seal", "its trailer is not whole; all records are there")
        case State.DAMAGED:
            lost = f"{lost_count(faults) or 'none'} lost"
            have = show_count(verdict.records or 0, "record")
            if _fetchable(verdict, source):
                yield Step(
                    verdict.name, "fetch", "the replica has a good copy; the original is kept as .broken"
                )
            elif not verdict.records:
                yield Step(verdict.name, "leave", "no good frame is in it: only a replica or a backup helps")
            elif salvaging:
                yield Step(verdict.name, "salvage", f"{have} kept, {lost}; the original is kept as .broken")
            else:
                yield Step(verdict.name, "leave", f"{have} served, {lost}; --from or --salvage mends it")
        case State.GOOD | State.UNREADABLE:
            pass


def _refuse_unreadable(verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        if verdict.state is State.UNREADABLE:
            raise Problem(verdict.problem)


# -- the mending -----------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path, directory: Directory) -> Iterator[None]:
    """No appender beside us. Raises LockedError."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise Problem(f"{path} cannot be changed: permission denied")
    lock = directory.lock(names.APPEND_LOCK, exclusive=True, wait_seconds=0)
    try:
        yield
    finally:
        lock.release()


def _apply(
    path: Path, directory: Directory, source: "Source | None", *, salvaging: bool, as_json: bool
) -> bool:
    with working(f"mending {path}"), _alone(path, directory):
        here = found(path)
        before = list(survey(here))
        _refuse_unreadable(before)  # a log that this program does not understand is not touched at all
        steps = plan(here, before, source, salvaging=salvaging)
        for verdict in before:
            if source is not None and _fetchable(verdict, source):
                source.install(here, verdict.name)
        recover(directory, Recovery.TAIL)
        with maintain.cleaning(directory):
            for verdict in survey(found(path)) if salvaging else ():
                if verdict.state is State.DAMAGED and verdict.records:
                    _salvage(directory, verdict)
        after = list(survey(found(path)))
    _show(path, steps, after, applied=True, as_json=as_json)
    return not any(verdict.damage for verdict in after)


def _salvage(directory: Directory, verdict: Verdict) -> None:
    """Rewrite one segment from its good frames."""
    segment = Segment.open(directory, verdict.name)
    try:
        last = max(
            scan(segment).next_sequence - 1, *(fault.lost[1] for fault in verdict.damage if fault.lost), 0
        )
        salvage(directory, segment, last_sequence=last)
    finally:
        segment.close()


# -- what is shown ---------------------------------------------------------------------------------------


def _show(path: Path, steps: list[Step], now: list[Verdict], *, applied: bool, as_json: bool) -> None:
    left = [fault for verdict in now for fault in verdict.damage]
    if as_json:
        say_json(
            {
                "directory": str(path),
                "applied": applied,
                "steps": [{"name": step.name, "action": step.action, "why": step.why} for step in steps],
                "damage": [damage_facts(fault) for fault in left],
            },
            pretty=False,
        )
        return
    if not steps:
        say("nothing to mend")
        return
    say_table(("FILE", "DONE" if applied else "TO DO", "WHY"), [(s.name, s.action, s.why) for s in steps])
    if applied:
        for fault in left:
            say(f"{fault.kind}: {fault.sentence()}")
        say("damage is left" if left else "everything checks now")
