"""Objects that can be awaited or entered."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

T = TypeVar("T")


class AwaitableContext(Generic[T]):
    """Support both `thing = await opening` and `async with opening as thing`, which also closes it."""

    def __init__(
        self, enter: Callable[[], Coroutine[Any, Any, T]], leave: Callable[[T, bool], Awaitable[None]]
    ) -> None:
        self._enter = enter
        self._leave = leave  # (thing, True if the body ended without an error)
        self._inside: T | None = None

    if not TYPE_CHECKING:  # a type checker reports the missing attribute by itself

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{name!r} is used before the connection or session is open: write"
                " `async with ... as it:`, or `it = await ...`"
            )

    def __await__(self) -> Generator[Any, None, T]:
        return self._enter().__await__()

    async def __aenter__(self) -> T:
        self._inside = await self._enter()
        return self._inside

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._inside is not None
        await self._leave(self._inside, error is None)
