"""`lorogo log verify`: everything read and checked."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import AlreadyReported, printing
from lorogo_cli.log.found import LogListing, found
from lorogo_cli.log.ls import facts, remarks, stranger_facts
from lorogo_cli.log.progress import progress
from lorogo_cli.log.survey import SegmentCheck, SegmentCondition, SegmentDamage, survey
from lorogo_cli.render.output import say, say_json, say_table
from lorogo_cli.render.values import show_count, show_size

COLUMNS = ("SEGMENT", "SEQUENCES", "SERVED", "SIZE", "STATE")


def verify(path: Path, *, no_gaps: bool, as_json: bool) -> bool:
    """Print what was found; whether all of it is good. Raises Problem if something could not be read."""
    here = found(path)
    verdicts: list[SegmentCheck] = []
    with progress("verifying", here.bytes()) as advance:
        for verdict in survey(here):
            verdicts.append(verdict)
            advance(verdict.bytes)
    faults = [fault for verdict in verdicts for fault in verdict.damage]
    unreadable = [verdict for verdict in verdicts if verdict.state is SegmentCondition.UNREADABLE]
    if len(unreadable) == len(verdicts) and unreadable:
        raise CommandError(unreadable[0].problem)
    if verdicts and all(verdict.foreign for verdict in verdicts):
        raise CommandError(f"{faults[0].path} {_NO_SEGMENT}")
    gaps = [verdict.gap for verdict in verdicts if verdict.gap is not None]
    good = not faults and not here.strangers and not unreadable and not (no_gaps and gaps)
    with printing():
        if as_json:
            say_json(_summary(path, here, verdicts, good=good), pretty=False)
        else:
            _show(path, here, verdicts, gaps)
    if unreadable:
        raise AlreadyReported(unreadable[0].problem)
    return good


_NO_SEGMENT = "is not a segment of a lorogo log (wrong magic), though it is named like one: move it away"


_TORN = (
    "the last commit is not whole: if a crash did this, nobody was told that it was stored;"
    " if the file was cut later, what stood there is lost"
)


def _show(path: Path, here: LogListing, verdicts: list[SegmentCheck], gaps: list[tuple[int, int]]) -> None:
    if verdicts:
        say_table(COLUMNS, [_cells(verdict) for verdict in verdicts])
    for gap in gaps:
        say(gap_sentence(*gap))
    for verdict in verdicts:
        if verdict.left_out is not None:
            say(left_out_sentence(*verdict.left_out))
    for stranger in here.strangers:
        say(f"stranger: {stranger.sentence()}")
    for verdict in verdicts:
        for fault in verdict.damage:
            say(f"{fault.kind}: {fault.sentence()}" + ("; move the file away" if verdict.foreign else ""))
    for sentence in _conclusion(path, here, verdicts):
        say(sentence)
    remarks(here)


def gap_sentence(first: int, last: int) -> str:
    """Sequences between two segments that are in neither."""
    which = f"sequence {first}" if first == last else f"sequences {first} to {last}"
    return (
        f"gap: no segment holds {which}: cleaned away, or a file was lost"
        " (then copy it back from a backup, or fetch it with `repair --from HOST:PORT --fill-gaps`)"
    )


def left_out_sentence(first: int, last: int) -> str:
    """Sequences that nobody ever had."""
    return (
        f"left out: sequences {first} to {last} were never given: the writer found a segment lost,"
        " and went on behind all that can have been in it"
    )


def _cells(verdict: SegmentCheck) -> tuple[str, ...]:
    last = "" if verdict.last_sequence is None else str(verdict.last_sequence)
    return (
        verdict.name,
        f"{verdict.first_sequence}..{last}",
        "-" if verdict.records is None else str(verdict.records),
        show_size(verdict.bytes),
        str(verdict.state),
    )


def lost_range(faults: Iterable[SegmentDamage]) -> tuple[int, int | None]:
    """How many sequences cannot be served, at least and at most (None: nobody can tell), each once.

    After cleaning, not all of them were records.
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
    """The same for people."""
    least, most = lost_range(faults)
    if most is None:
        return f"at least {least} lost"
    return f"{least or 'none'} lost" if least == most else f"at least {least}, at most {most} lost"


def _conclusion(path: Path, here: LogListing, verdicts: list[SegmentCheck]) -> list[str]:
    faults = [fault for verdict in verdicts for fault in verdict.damage]
    served = show_count(sum(verdict.records or 0 for verdict in verdicts), "record")
    place = f"{show_count(len(verdicts), 'segment')}, {show_size(sum(verdict.bytes for verdict in verdicts))}"
    unread = sum(verdict.state is SegmentCondition.UNREADABLE for verdict in verdicts)
    if not verdicts and not here.strangers:
        return ["no segments yet: nothing to check"]
    if unread:
        said = [f"{served} served, {show_count(unread, 'segment')} could not be read ({place})"]
    elif not faults:
        partly = here.strangers or any(verdict.gap for verdict in verdicts)
        said = [f"{served} served: everything {'that is there ' if partly else ''}checks ({place})"]
    elif all(fault.kind == "torn" for fault in faults):
        said = [
            f"{served} served: everything else checks ({place})",
            _TORN,
        ]
    else:
        said = [f"{served} served, {lost_shown(faults)}: everything else checks and is served ({place})"]
    if faults:
        hint = f"`lorogo log repair {shlex.quote(str(path))}` says what can be done"
        said.append(f"nothing was changed; next: {hint}")
    if any(verdict.state is SegmentCondition.WRITING for verdict in verdicts):
        said.append("a process is writing to it: what came after the look is not counted")
    if here.broken:
        said.append(f"put aside earlier, in {show_count(len(here.broken), 'file')}: {', '.join(here.broken)}")
    return said


def _summary(path: Path, here: LogListing, verdicts: list[SegmentCheck], *, good: bool) -> dict[str, object]:
    faults = [fault for verdict in verdicts for fault in verdict.damage]
    least, most = lost_range(faults)
    return {
        "directory": str(path),
        "good": good,
        "writer": here.writer,
        "served": sum(verdict.records or 0 for verdict in verdicts),
        "lost": least,
        "lost_at_least": least,
        "lost_at_most": most,
        "gaps": [list(verdict.gap) for verdict in verdicts if verdict.gap is not None],
        "left_out": [list(verdict.left_out) for verdict in verdicts if verdict.left_out is not None],
        "segments": [
            facts(verdict) | {"damage": [damage_facts(fault) for fault in verdict.damage]}
            for verdict in verdicts
        ],
        "strangers": stranger_facts(here),
        "foreign": here.foreign,
        "broken": here.broken,
    }


def damage_facts(fault: SegmentDamage) -> dict[str, object]:
    """A damaged place for scripts."""
    return {
        "kind": fault.kind,
        "path": fault.path,
        "offset": fault.offset,
        "reason": fault.reason,
        "goes_on": fault.goes_on,
        "lost": None if fault.lost is None else list(fault.lost),
        "bound": fault.bound,
    }
