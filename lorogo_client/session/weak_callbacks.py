"""Callbacks that hold their object only weakly.

The parts of a room call it back. If they held the room strongly, a closed document would stay in memory until
Python collects cycles, which happens less and less often as a process grows.
"""

import weakref
from collections.abc import Callable
from types import MethodType
from typing import Generic, ParamSpec

P = ParamSpec("P")


class _Weakly(Generic[P]):
    """A class, not a closure: every room has several, and the collector visits each cell of a closure."""

    __slots__ = ("_function", "_owner")

    def __init__(self, method: Callable[P, None]) -> None:
        assert isinstance(method, MethodType)
        self._function = method.__func__
        self._owner = weakref.ref(method.__self__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        if (owner := self._owner()) is not None:
            self._function(owner, *args, **kwargs)


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Return a callable that calls the bound method while its object exists, and else does nothing."""
    return _Weakly(method)
