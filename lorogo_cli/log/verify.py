"""`lorogo log verify`: read and check every segment."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import AlreadyReported, printing
from lorogo_cli.log.found import LogListing, found
from lorogo_cli.log.ls import blocking_facts, facts, remarks
from lorogo_cli.log.survey import SegmentCheck, SegmentCondition, SegmentDamage, survey
from lorogo_cli.render.output import byte_progress, say, say_json, say_table
from lorogo_cli.render.values import show_count, show_size

COLUMNS = ("SEGMENT", "SEQUENCES", "SERVED", "SIZE", "STATE")


def verify(path: Path, *, no_gaps: bool, as_json: bool) -> bool:
    """Print the result; return whether all is good. Raises CommandError if a segment could not be read."""
    here = found(path)
    checks: list[SegmentCheck] = []
    with byte_progress("verifying", here.bytes()) as advance:
        for check in survey(here):
            checks.append(check)
            advance(check.bytes)
    faults = [fault for check in checks for fault in check.damage]
    unreadable = [check for check in checks if check.state is SegmentCondition.UNREADABLE]
    if len(unreadable) == len(checks) and unreadable:
        raise CommandError(unreadable[0].problem)
    if checks and all(check.foreign for check in checks):
        raise CommandError(f"{faults[0].path} {_NO_SEGMENT}")
    gaps = [check.gap for check in checks if check.gap is not None]
    good = not faults and not here.blocking and not unreadable and not (no_gaps and gaps)
    with printing():
        if as_json:
            say_json(_summary(path, here, checks, good=good), pretty=False)
        else:
            _show(path, here, checks, gaps)
    if unreadable:
        raise AlreadyReported(unreadable[0].problem)
    return good


_NO_SEGMENT = "has a segment's name but is not a segment of a lorogo log (wrong magic): move it away"


_TORN = (
    "the last commit is incomplete: after a crash, it was never confirmed as stored;"
    " if the file was cut later, its records are lost"
)


def _show(path: Path, here: LogListing, checks: list[SegmentCheck], gaps: list[tuple[int, int]]) -> None:
    if checks:
        say_table(COLUMNS, [_cells(check) for check in checks])
    for gap in gaps:
        say(gap_sentence(*gap))
    for check in checks:
        if check.left_out is not None:
            say(left_out_sentence(*check.left_out))
    for file in here.blocking:
        say(f"blocking: {file.sentence()}")
    for check in checks:
        for fault in check.damage:
            say(f"{fault.kind}: {fault.sentence()}" + ("; move the file away" if check.foreign else ""))
    for sentence in _conclusion(path, here, checks):
        say(sentence)
    remarks(here)


def gap_sentence(first: int, last: int) -> str:
    """Describe sequences that are missing between two segments."""
    which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    return (
        f"gap: no segment has {which}: retention removed a segment, or a file was lost"
        " (then copy it from a backup, or fetch it with `repair --from HOST:PORT --fill-gaps`)"
    )


def left_out_sentence(first: int, last: int) -> str:
    """Describe sequences that were never assigned."""
    return (
        f"left out: sequences {first} to {last} were never assigned: the writer found a segment lost,"
        " and continued after the highest sequence that it can have contained"
    )


def _cells(check: SegmentCheck) -> tuple[str, ...]:
    last = "" if check.last_sequence is None else str(check.last_sequence)
    return (
        check.name,
        f"{check.first_sequence}..{last}",
        "-" if check.records is None else str(check.records),
        show_size(check.bytes),
        str(check.state),
    )


def lost_range(faults: Iterable[SegmentDamage]) -> tuple[int, int | None]:
    """Return the least and the greatest number of lost sequences (None: unknown), each counted once.

    In a cleaned log not every sequence had a record.
    """
    least = most = 0
    counted = -1
    endless = False
    spans = sorted(
        (lost[0], lost[0] if lost[1] is None else lost[1], lost[1] is None, fault.bound)
        for fault in faults
        if (lost := fault.lost)
    )
    for first, end, unknown, bound in spans:
        endless |= unknown
        more = max(0, end - max(first, counted + 1) + 1)
        least += min(1, more) if bound else more
        most += more
        counted = max(counted, end)
    return least, None if endless else most


def lost_shown(faults: Iterable[SegmentDamage]) -> str:
    """Return the number of lost sequences for people."""
    least, most = lost_range(faults)
    if most is None:
        return f"at least {least} lost"
    return f"{least or 'none'} lost" if least == most else f"at least {least}, at most {most} lost"


def _conclusion(path: Path, here: LogListing, checks: list[SegmentCheck]) -> list[str]:
    faults = [fault for check in checks for fault in check.damage]
    served = show_count(sum(check.records or 0 for check in checks), "record")
    place = f"{show_count(len(checks), 'segment')}, {show_size(sum(check.bytes for check in checks))}"
    unread = sum(check.state is SegmentCondition.UNREADABLE for check in checks)
    if not checks and not here.blocking:
        return ["no segments yet: nothing to check"]
    if unread:
        lines = [f"{served} served, {show_count(unread, 'segment')} could not be read ({place})"]
    elif not faults:
        partly = here.blocking or any(check.gap for check in checks)
        lines = [f"{served} served: all {'present ' if partly else ''}segments are good ({place})"]
    elif all(fault.kind == "torn" for fault in faults):
        lines = [
            f"{served} served: everything else is good ({place})",
            _TORN,
        ]
    else:
        lines = [f"{served} served, {lost_shown(faults)}: everything else is good and served ({place})"]
    if faults:
        hint = f"`lorogo log repair {shlex.quote(str(path))}` shows possible repairs"
        lines.append(f"nothing was changed; next: {hint}")
    if any(check.state is SegmentCondition.WRITING for check in checks):
        lines.append("a process is writing to the log: records written after the check are not counted")
    if here.broken:
        count = show_count(len(here.broken), "file")
        lines.append(f"set aside earlier, in {count}: {', '.join(here.broken)}")
    return lines


def _summary(path: Path, here: LogListing, checks: list[SegmentCheck], *, good: bool) -> dict[str, object]:
    faults = [fault for check in checks for fault in check.damage]
    least, most = lost_range(faults)
    return {
        "directory": str(path),
        "good": good,
        "writer": here.writer,
        "served": sum(check.records or 0 for check in checks),
        "lost": least,
        "lost_at_least": least,
        "lost_at_most": most,
        "gaps": [list(check.gap) for check in checks if check.gap is not None],
        "left_out": [list(check.left_out) for check in checks if check.left_out is not None],
        "segments": [
            facts(check) | {"damage": [damage_facts(fault) for fault in check.damage]} for check in checks
        ],
        "blocking": blocking_facts(here),
        "foreign": here.foreign,
        "broken": here.broken,
    }


def damage_facts(fault: SegmentDamage) -> dict[str, object]:
    """Return a damaged range for scripts."""
    return {
        "kind": fault.kind,
        "path": fault.path,
        "offset": fault.offset,
        "reason": fault.reason,
        "goes_on": fault.goes_on,
        "lost": None if fault.lost is None else list(fault.lost),
        "bound": fault.bound,
    }
