"""Callbacks that do not hold whom they call.

What a room has made calls it back. If it held the room as well, a closed document would stay until Python
collects cycles, which it does less and less often as a process grows.
"""

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Generic, ParamSpec

P = ParamSpec("P")


class _Weakly(Generic[P]):
    """Not a closure: every room has several, and the collector looks at all that they are made of."""

    __slots__ = ("_function", "_owner")

    def __init__(self, method: Callable[P, None]) -> None:
        assert isinstance(method, MethodType)
        self._function = method.__func__
        self._owner = weakref.ref(method.__self__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        if (owner := self._owner()) is not None:
            self._function(owner, *args, **kwargs)


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """The bound method, for as long as somebody else holds its object; then nothing."""
    return _Weakly(method)
