"""Run async work from a command, on uvloop if it is installed, until it ends or a signal stops it."""

import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio  # takes as long as the rest of `lorogo --help`

P = ParamSpec("P")
T = TypeVar("T")

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of the work; Ctrl-C cancels it and raises KeyboardInterrupt."""
    import asyncio

    try:
        import uvloop
    except ImportError:  # Windows
        with asyncio.Runner() as runner:
            return runner.run(work(*args, **kwargs))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work(*args, **kwargs))


@contextmanager
def stop_signals(again: Callable[[], object] | None = None) -> Iterator["asyncio.Event"]:
    """Yield an event that Ctrl-C, SIGTERM and SIGHUP set, instead of ending the process.

    The second signal calls `again`, once.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        nonlocal again
        if not stop.is_set():
            stop.set()
        elif again is not None:
            call, again = again, None
            call()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def until(stop: "asyncio.Event", work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work; None if `stop` is set first, after the work is cancelled and awaited."""
    import asyncio

    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (task, stopped):
            one.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
    return None if task.cancelled() else task.result()
