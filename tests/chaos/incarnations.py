"""Incarnations of writers, written by hand."""

from lorogo_chaos.fleet.event_log import Kind, WriterEvent, WriterRun

Line = tuple[Kind, float, str, int]


def incarnation(
    *lines: Line, writer: int = 0, number: int = 1, stored: bool = False, ended: float | None = None
) -> WriterRun:
    """An incarnation with these events: kind, time, document, edit."""
    events = [WriterEvent(kind, at, document, edit) for kind, at, document, edit in lines]
    return WriterRun(writer, number, stored, began_at=0.0, events=events, ended_at=ended)
