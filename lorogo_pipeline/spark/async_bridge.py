"""Run async work from Spark's synchronous functions: one result, or a stream of batches.

Spark may take minutes before it requests the next batch. The event loop runs on its own thread, so that
pings are answered meanwhile, and one batch is fetched ahead.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lorogo_protocol.errors import LorogoError

T = TypeVar("T")

_AHEAD = 1
_ITEM_SECONDS = 600.0  # far above the deadlines within one item
_CLOSE_SECONDS = 10.0


def once(work: Coroutine[Any, Any, T], *, seconds: float) -> T:
    """Run the coroutine and return its result. Raises LorogoError after the time limit."""

    async def limited() -> T:
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            raise LorogoError(f"NATS did not answer within {seconds:g} s") from None

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(limited())


def pumped(source: AsyncGenerator[T, None]) -> Iterator[T]:
    """Iterate over an async generator, which is closed with the iterator."""
    pump = _Pump(source)
    thread = threading.Thread(target=pump.run, name="lorogo source", daemon=True)
    thread.start()
    try:
        while True:
            match pump.next():
                case _Item(value):
                    yield value
                    pump.more()
                case _Ended(error):
                    if error is not None:
                        raise error
                    return
    finally:
        pump.stop()
        thread.join(timeout=_CLOSE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Ended:
    error: Exception | None = None


@dataclass(slots=True)
class _Pump(Generic[T]):
    """An async generator on its own loop; `_out` holds at most a few items."""

    source: AsyncGenerator[T, None]
    _out: "queue.SimpleQueue[_Item[T] | _Ended]" = field(default_factory=queue.SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop | None = None  # while it runs
    _task: "asyncio.Task[None] | None" = None
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AHEAD))
    _stopped: bool = False

    def run(self) -> None:
        """Run on the thread until the generator ends or `stop()`."""
        with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._feed())

    def next(self) -> "_Item[T] | _Ended":
        try:
            return self._out.get(timeout=_ITEM_SECONDS)
        except queue.Empty:
            return _Ended(LorogoError(f"no data from NATS for {_ITEM_SECONDS:g} s"))

    def more(self) -> None:
        """Allow one more item."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._room.release)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _feed(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            async with aclosing(self.source):
                async for item in self.source:
                    self._out.put(_Item(item))
                    await self._room.acquire()
            self._out.put(_Ended())
        except Exception as error:  # noqa: BLE001  # raised again by the consumer
            self._out.put(_Ended(error))
        finally:
            with self._lock:
                self._loop = self._task = None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop
