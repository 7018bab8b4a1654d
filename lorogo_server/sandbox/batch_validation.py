"""Updates that wait for their turn, tasted together meanwhile.

    heard ─▶ Foretaste.add ─▶ the taster's process, one portion at a time ─▶ the host is woken

While one portion is tasted, what comes gathers for the next: the busier a server is, the more updates share
the two changes of process that an exchange costs, and the loop waits for none. All that is learnt here is
that an update is fine. Whatever else comes of a portion (an update ends the worker, no answer comes in time),
its updates are tasted one by one when their turn comes, and judged then (`decode_sandbox.Taster.taste`).
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from lorogo_server.sandbox.decode_sandbox import DecodeSandbox, SandboxGone, SandboxProcess, ValidationBatch
from lorogo_transport.light import Event
from lorogo_transport.ports import StoredMessage

_SECONDS = 2.0  # for one portion: a lease is longer
_UPDATE_BYTES_MAX = 8 * 1024  # a larger one is tasted alone
_PORTION_BYTES_MAX = 32 * 1024  # with its lengths less than a pipe holds: the loop never waits to write
_PORTION_UPDATES_MAX = 512
_AHEAD_UPDATES_MAX = 512  # that a load reads before the first of them is taken
_AHEAD_BYTES_MAX = 256 * 1024
_PORTIONS_MAX = 256  # that wait; what comes then is tasted when its turn comes


class BatchedUpdate(NamedTuple):
    """An update and the portion that it is in."""

    portion: ValidationBatch
    place: int

    @property
    def known(self) -> bool:
        """Whether its turn may come."""
        return self.portion.done

    @property
    def fine(self) -> bool:
        """Whether it was decoded already, and nothing happened."""
        return self.place < self.portion.fine


class BatchValidation:
    """Tastes ahead for all documents of one server; on the loop, as the taster itself."""

    def __init__(self, taster: DecodeSandbox) -> None:
        self._taster = taster
        self._waiting: deque[ValidationBatch] = deque()
        self._under_way: ValidationBatch | None = None
        self._watched: tuple[SandboxProcess, asyncio.AbstractEventLoop] | None = (
            None  # whose answers we hear, where
        )
        self._soon = False  # `_next` is about to be called
        self._deadline: asyncio.TimerHandle | None = None

    def add(self, update: bytes, wake: Callable[[], None]) -> BatchedUpdate | None:
        """Taste it soon, and call `wake` then; None: not here, it is tasted when its turn comes."""
        if self._taster.process is None or len(update) > _UPDATE_BYTES_MAX:
            return None
        waiting = self._waiting
        if waiting and _has_room(waiting[-1], len(update)):
            portion = waiting[-1]
        elif len(waiting) < _PORTIONS_MAX:
            portion = ValidationBatch()
            waiting.append(portion)
        else:
            return None
        if self._under_way is None:
            self._next_soon()  # behind whatever has come with it
        return BatchedUpdate(portion, portion.add(update, wake))

    def close(self) -> None:
        """Taste nothing ahead any more; what is under way ends with the taster."""
        self._unwatch()
        self._forget_deadline()
        while self._waiting:
            self._waiting.popleft().settle(0)

    def _next_soon(self) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next portion, unless there is none, or one is under way."""
        self._soon = False
        if self._under_way is not None or not self._waiting:
            return
        portion = self._under_way = self._waiting.popleft()
        portion.wake(self._settled)
        process = self._taster.process
        if process is None:
            portion.settle(0)
            return
        self._watch(process)
        self._deadline = asyncio.get_running_loop().call_later(_SECONDS, self._taster.replace, process)
        try:
            process.begin(portion, time.monotonic() + _SECONDS)
        except (TimeoutError, SandboxGone):
            self._taster.replace(process)

    def _on_answer(self, process: SandboxProcess) -> None:
        """There is an answer, or the end of all answers."""
        if self._under_way is None:
            self._unwatch()  # it is gone; whoever asks it next notices
            return
        try:
            process.finish(time.monotonic() + _SECONDS)
        except (TimeoutError, SandboxGone):
            self._taster.replace(process)
        self._next()  # before those who were woken: the taster works while they do

    def _settled(self) -> None:
        """What was under way is not any more, whoever has heard the answer."""
        self._under_way = None
        self._forget_deadline()
        if self._waiting:
            self._next_soon()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch(self, process: SandboxProcess) -> None:
        if self._watched is None or process is not self._watched[0]:
            self._unwatch()
            loop = asyncio.get_running_loop()
            loop.add_reader(process.answers, self._on_answer, process)
            self._watched, process.before_end = (process, loop), self._unwatch

    def _unwatch(self) -> None:
        """Before the file is closed: another may get its number."""
        if self._watched is not None:
            (process, loop), self._watched = self._watched, None
            process.before_end = _nothing
            if not loop.is_closed():
                loop.remove_reader(process.answers)


async def ahead(
    messages: AsyncIterator[StoredMessage], foretaste: BatchValidation | None
) -> AsyncIterator[tuple[StoredMessage, bool]]:
    """Messages in their order, and whether what each holds was decoded already, and nothing happened.

    Some are read ahead, so that many share an exchange with the taster.
    """
    waiting: deque[tuple[StoredMessage, BatchedUpdate | None]] = deque()
    bytes_ahead, woken = 0, Event()

    async def first() -> tuple[StoredMessage, bool]:
        stored, tasted = waiting.popleft()
        while tasted is not None and not tasted.known:
            woken.clear()
            await woken.wait()
        return stored, tasted is not None and tasted.fine

    async for stored in messages:
        if foretaste is None:
            yield stored, False
            continue
        waiting.append((stored, foretaste.add(stored.data, woken.set)))
        bytes_ahead += len(stored.data)
        while len(waiting) > _AHEAD_UPDATES_MAX or bytes_ahead > _AHEAD_BYTES_MAX:
            one = await first()
            bytes_ahead -= len(one[0].data)
            yield one
    while waiting:
        yield await first()


def _has_room(portion: ValidationBatch, size: int) -> bool:
    return len(portion.updates) < _PORTION_UPDATES_MAX and portion.size + size <= _PORTION_BYTES_MAX


def _nothing() -> None:
    pass
