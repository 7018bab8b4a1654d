"""`lorogo log verify`: everything read and checked."""

import shlex
from pathlib import Path

from lorogo_cli.errors import Problem
from lorogo_cli.log_ls import facts, remarks
from lorogo_cli.log_progress import progress
from lorogo_cli.log_survey import Damage, State, Verdict, found, survey
from lorogo_cli.output import say, say_json, say_table
from lorogo_cli.values import show_count, show_size

COLUMNS = ("SEGMENT", "SEQUENCES", "SERVED", "SIZE", "SEALED", "STATE")


def verify(path: Path, *, as_json: bool) -> bool:
    """Print what was found; whether all of it is good. Raises Problem if something could not be read."""
    here = found(path)
    verdicts: list[Verdict] = []
    with progress("verifying", here.bytes()) as advance:
        for verdict in survey(here):
            verdicts.append(verdict)
            advance(verdict.bytes)
    faults = [fault for verdict in verdicts for fault in verdict.damage]
    unreadable = [verdict for verdict in verdicts if verdict.state is State.UNREADABLE]
    if len(unreadable) == len(verdicts) and unreadable:
        raise Problem(unreadable[0].problem)
    if verdicts and all(verdict.foreign for verdict in verdicts):
        raise Problem(faults[0].sentence())
    if as_json:
        say_json(_summary(path, verdicts, faults, here.foreign, here.broken), pretty=False)
    else:
        if verdicts:
            say_table(COLUMNS, [_cells(verdict) for verdict in verdicts])
        for verdict in verdicts:
            if verdict.gap_before:
                what = show_count(verdict.gap_before, "sequence")
                say(f"{what} before {verdict.name} in no segment: cleaned away, expired or lost")
        for fault in faults:
            say(f"{fault.kind}: {fault.sentence()}")
        say(_conclusion(path, verdicts, faults))
        remarks(here)
    if unreadable:
        raise Problem(unreadable[0].problem)
    return not faults


def _cells(verdict: Verdict) -> tuple[str, ...]:
    last = "" if verdict.last_sequence is None else str(verdict.last_sequence)
    return (
        verdict.name,
        f"{verdict.first_sequence}..{last}",
        "-" if verdict.records is None else str(verdict.records),
        show_size(verdict.bytes),
        "yes" if verdict.sealed else "no",
        str(verdict.state),
    )


def lost_count(faults: list[Damage]) -> int:
    """How many sequences cannot be served (after cleaning, not all of them were records)."""
    return sum(fault.lost[1] - fault.lost[0] + 1 for fault in faults if fault.lost is not None)


def _conclusion(path: Path, verdicts: list[Verdict], faults: list[Damage]) -> str:
    served = show_count(sum(verdict.records or 0 for verdict in verdicts), "record")
    segments = show_count(len(verdicts), "segment")
    size = show_size(sum(verdict.bytes for verdict in verdicts))
    unread = sum(verdict.state is State.UNREADABLE for verdict in verdicts)
    if unread:
        return f"{segments}, {size}: {served} served, {show_count(unread, 'segment')} could not be read"
    if not faults:
        return f"{segments}, {served}, {size}: everything checks"
    hint = f"`lorogo log repair {shlex.quote(str(path))}` says what can be done"
    if all(fault.kind == "torn" for fault in faults):
        return f"{segments}, {size}: {served} served, a half-written commit at the end; {hint}"
    lost = lost_count(faults)
    return f"{segments}, {size}: {served} served, {lost or 'none'} lost; {hint}"


def _summary(
    path: Path, verdicts: list[Verdict], faults: list[Damage], foreign: list[str], broken: list[str]
) -> dict[str, object]:
    return {
        "directory": str(path),
        "good": not faults and all(verdict.state is not State.UNREADABLE for verdict in verdicts),
        "served": sum(verdict.records or 0 for verdict in verdicts),
        "lost": lost_count(faults),
        "segments": [
            facts(verdict)
            | {
                "gap_before": verdict.gap_before,
                "damage": [damage_facts(fault) for fault in verdict.damage],
            }
            for verdict in verdicts
        ],
        "foreign": foreign,
        "broken": broken,
    }


def damage_facts(fault: Damage) -> dict[str, object]:
    """A damaged place for scripts."""
    return {
        "kind": fault.kind,
        "path": fault.path,
        "offset": fault.offset,
        "reason": fault.reason,
        "goes_on": fault.goes_on,
        "lost": None if fault.lost is None else list(fault.lost),
    }
