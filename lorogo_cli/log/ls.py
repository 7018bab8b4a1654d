"""`lorogo log ls`: the segments of a log."""

import sys
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import AlreadyReported, printing, warn
from lorogo_cli.log.found import LogListing, found, shown_names
from lorogo_cli.log.survey import SegmentCheck, SegmentCondition, read_summary
from lorogo_cli.render.output import note, say, say_json, say_table
from lorogo_cli.render.values import show_count, show_size
from lorogo_client.versions import show_time_down

COLUMNS = ("SEGMENT", "FIRST", "LAST", "FROM", "TO", "RECORDS", "SIZE", "STATE")


def ls(path: Path, *, as_json: bool) -> bool:
    """Print one row per segment; return whether all are good. Raises CommandError if one is unreadable."""
    here = found(path)
    rows = [row for number in range(len(here.entries)) if (row := read_summary(here, number)) is not None]
    problems = [row.problem for row in rows if row.problem]
    if problems and len(problems) == len(rows):
        raise CommandError(problems[0])
    with printing():
        _show(path, here, rows, as_json=as_json)
    for file in here.blocking:
        warn(file.sentence())
    if problems:
        raise AlreadyReported(problems[0])
    return not here.blocking and not any(
        row.state in {SegmentCondition.TORN, SegmentCondition.DAMAGED} for row in rows
    )


def _show(path: Path, here: LogListing, rows: list[SegmentCheck], *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "directory": str(path),
                "writer": here.writer,
                "segments": [facts(row) for row in rows],
                "blocking": blocking_facts(here),
                "broken": here.broken,
                "foreign": here.foreign,
            },
            pretty=False,
        )
        return
    if rows:
        say_table(COLUMNS, [cells(row) for row in rows])
    else:
        say("no segments yet")
    remarks(here)
    if rows and sys.stdout.isatty():
        records = sum(row.records or 0 for row in rows)
        size = sum(row.bytes for row in rows)
        note(f"{show_count(len(rows), 'segment')}, {show_count(records, 'record')}, {show_size(size)}")


def remarks(here: LogListing) -> None:
    """Print notes about the writer and other files in the directory."""
    if here.writer is not None:
        note(f"process {here.writer} is writing to it")
    if here.broken:
        note(f"set aside by recovery or repair: {shown_names(here.broken)}")
    if here.foreign:
        note(f"other files: {shown_names(here.foreign)}")


def cells(row: SegmentCheck) -> tuple[str, ...]:
    """Return a segment as cells of the table."""
    return (
        row.name,
        str(row.first_sequence),
        "-" if row.last_sequence is None else str(row.last_sequence),
        "-" if (first := began(row)) is None else _moment(first),
        "-" if row.last_time is None else _moment(row.last_time),
        "-" if row.records is None else str(row.records),
        show_size(row.bytes),
        row.state + (", rewritten" if row.rewritten else ""),
    )


def began(row: SegmentCheck) -> int | None:
    """Return a segment's first time, from its name; a segment that starts with an epoch has none there."""
    return row.first_time or row.least_time


def _moment(time_ns: int) -> str:
    """Return local time to the second; --json has nanoseconds."""
    return show_time_down(time_ns)[:19].replace("T", " ")


def blocking_facts(here: LogListing) -> list[dict[str, str]]:
    """Return the blocking files for scripts."""
    return [{"path": file.path, "reason": file.reason} for file in here.blocking]


def facts(row: SegmentCheck) -> dict[str, object]:
    """Return a segment for scripts."""
    return {
        "name": row.name,
        "first_sequence": row.first_sequence,
        "last_sequence": row.last_sequence,
        "first_time_ns": began(row),
        "last_time_ns": row.last_time,
        "records": row.records,
        "bytes": row.bytes,
        "sealed": row.sealed,
        "rewritten": row.rewritten,
        "state": str(row.state),
        "problem": row.problem or None,
    }
