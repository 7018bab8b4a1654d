"""Callbacks that do not hold whom they call.

What a room has made calls it back. If it held the room as well, a closed document would stay until Python
collects cycles, which it does less and less often as a process grows.
"""

import weakref
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """The bound method, for as long as somebody else holds its object; then nothing."""
    found = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        if (here := found()) is not None:
            here(*args, **kwargs)

    return call
