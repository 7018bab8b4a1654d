"""Which calls to Loro on one document are short enough for the event loop, as the last ones took.

A call on a whole document takes 0.2 us for each operation of a text and 10 us for each of a tree, and no
count tells which it is. Above `LOOP_OPERATIONS_MAX` a child process makes the first call of each kind, and
its CPU seconds are measured; if they were few, the loop makes the next ones, until the document has grown by
as much again.
"""

from enum import Enum, auto
from typing import NamedTuple

from lorogo_protocol.limits import LOOP_CALL_SECONDS_MAX, LOOP_DOCUMENT_BYTES_MAX, LOOP_OPERATIONS_MAX


class Call(Enum):
    """Calls whose time follows from the document. Calls on old versions are not among them."""

    EXPORT = auto()
    VALUE = auto()
    PATCH = auto()
    COMPACT = auto()


class Size(NamedTuple):
    """The size of a document."""

    operations: int
    bytes: int


class CallCosts:
    """What calls on one document took."""

    __slots__ = ("_short",)

    def __init__(self) -> None:
        self._short: dict[Call, Size] = {}  # the size at which the call was last short

    def is_short(self, call: Call | None, size: Size) -> bool:
        """Whether the loop may make this call. None: a call on an old version."""
        known = Size(0, 0) if call is None else self._short.get(call, Size(0, 0))
        return (
            size.operations <= known.operations + LOOP_OPERATIONS_MAX
            and size.bytes <= known.bytes + LOOP_DOCUMENT_BYTES_MAX
        )

    def took(self, call: Call, size: Size, seconds: float) -> None:
        """Remember what a call took on a document of that size."""
        if seconds <= LOOP_CALL_SECONDS_MAX:
            self._short[call] = size
        else:
            self._short.pop(call, None)
