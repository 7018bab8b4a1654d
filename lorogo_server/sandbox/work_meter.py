"""Units of the work of an RPC call on a document: a unit takes about 0.1 us (0003 in docs/decisions).

A call spends its units before it works, so that it stops at its budget. The event loop executes a call with
few units, a child process with more (`lorogo_server/rpc/execution.py`).
"""

from collections.abc import Callable

VALUE_UNITS = 32  # a value; each of its characters costs one unit more
CONTAINER_UNITS = 256
OPERATION_UNITS = 128  # of a patch
TOKEN_UNITS = 16  # of a pointer
TEXT_PART_CHARS = 1024  # characters of a text per unit, for finding a position in it
SLOW_DIFF_UNITS = 256 * 1024

Spend = Callable[[int], None]


class OverBudget(Exception):
    """The work is more than its budget."""


class WorkMeter:
    """Counts units of work."""

    __slots__ = ("_left",)

    def __init__(self, units_max: int) -> None:
        self._left = units_max

    def spend(self, units: int) -> None:
        """Count units before the work is done. Raises OverBudget."""
        self._left -= units
        if self._left < 0:
            raise OverBudget


def unmetered(_: int) -> None:
    """Spend without a budget."""


def cost(value: object) -> int:
    """The units of a plain value that is read or written."""
    match value:
        case dict():
            return VALUE_UNITS + sum(len(key) + cost(item) for key, item in value.items())
        case list():
            return VALUE_UNITS + sum(map(cost, value))
        case str() | bytes():
            return VALUE_UNITS + len(value)
        case _:
            return VALUE_UNITS
