"""Measured costs of Loro calls on one document, to choose between the event loop and a child process.

A call on a whole document takes 0.2 us for each operation of a text and 10 us for each of a tree; a count
of operations does not distinguish them. Above `LOOP_OPERATIONS_MAX` a child process makes the first call of
each kind, and its CPU seconds are measured. If the call was short, the loop makes the next ones, until the
document has grown by `LOOP_OPERATIONS_MAX` again.
"""

from enum import Enum, auto
from typing import NamedTuple

from lorogo_protocol.limits import LOOP_CALL_SECONDS_MAX, LOOP_DOCUMENT_BYTES_MAX, LOOP_OPERATIONS_MAX


class Call(Enum):
    """Kinds of calls whose duration depends on the document alone; calls on old versions are excluded."""

    EXPORT = auto()
    VALUE = auto()
    PATCH = auto()
    COMPACT = auto()


class Size(NamedTuple):
    """The size of a document."""

    operations: int
    bytes: int


class CallCosts:
    """Remembers the durations of calls on one document."""

    __slots__ = ("_short",)

    def __init__(self) -> None:
        self._short: dict[Call, Size] = {}  # the size at which the call was last short

    def is_short(self, call: Call | None, size: Size) -> bool:
        """Return True if the loop may make this call. None stands for a call on an old version."""
        known = Size(0, 0) if call is None else self._short.get(call, Size(0, 0))
        return (
            size.operations <= known.operations + LOOP_OPERATIONS_MAX
            and size.bytes <= known.bytes + LOOP_DOCUMENT_BYTES_MAX
        )

    def took(self, call: Call, size: Size, seconds: float) -> None:
        """Record the duration of a call on a document of that size."""
        if seconds <= LOOP_CALL_SECONDS_MAX:
            self._short[call] = size
        else:
            self._short.pop(call, None)
