"""Batch pre-validation: decode queued updates together in the sandbox before the host processes them.

    queued update ─▶ BatchValidation.add ─▶ sandbox process, one batch at a time ─▶ wake the host

While the sandbox decodes one batch, new updates gather for the next. The busier a server is, the more updates
share the two context switches of an exchange; the event loop never waits. A batch only proves that an update
is valid. If a batch fails (an update ends the worker, or the sandbox times out), the sandbox validates
its updates one by one when the host processes them (`DecodeSandbox.validate`).
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
_UPDATE_BYTES_MAX = 56 * 1024  # a larger update is validated alone
_BATCH_BYTES_MAX = 56 * 1024  # with the lengths below a pipe's capacity: a write never blocks the loop
_BATCH_UPDATES_MAX = 512
_AHEAD_UPDATES_MAX = 512  # that a load reads before it processes the first
_AHEAD_BYTES_MAX = 256 * 1024
_BATCHES_MAX = 256  # queued; later updates are validated one by one


class BatchedUpdate(NamedTuple):
    """Position of an update in a batch."""

    batch: ValidationBatch
    place: int

    @property
    def is_done(self) -> bool:
        """True once the host may process the update."""
        return self.batch.done

    @property
    def is_valid(self) -> bool:
        """True if the sandbox decoded the update without a crash."""
        return self.place < self.batch.valid_count


class BatchValidation:
    """Validate queued updates of all documents of one server; runs on the event loop."""

    def __init__(self, sandbox: DecodeSandbox) -> None:
        self._sandbox = sandbox
        self._waiting: deque[ValidationBatch] = deque()
        self._under_way: ValidationBatch | None = None
        self._watched: tuple[SandboxProcess, asyncio.AbstractEventLoop] | None = (
            None  # process whose replies are read
        )
        self._soon = False  # `_next` is about to be called
        self._deadline: asyncio.TimerHandle | None = None

    def add(self, update: bytes, wake: Callable[[], None]) -> BatchedUpdate | None:
        """Queue an update, and call `wake` when its batch is done. None: validate it alone later."""
        if self._sandbox.process is None or len(update) > _UPDATE_BYTES_MAX:
            return None
        waiting = self._waiting
        if waiting and _has_room(waiting[-1], len(update)):
            batch = waiting[-1]
        elif len(waiting) < _BATCHES_MAX:
            batch = ValidationBatch()
            waiting.append(batch)
        else:
            return None
        if self._under_way is None:
            self._next_soon()  # after the messages that arrived together with it
        return BatchedUpdate(batch, batch.add(update, wake))

    def close(self) -> None:
        """Drop the queued batches; the batch under way ends with the sandbox."""
        self._unwatch()
        self._forget_deadline()
        while self._waiting:
            self._waiting.popleft().settle(0)

    def _next_soon(self) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Send the next batch, unless none is queued or one is under way."""
        self._soon = False
        if self._under_way is not None or not self._waiting:
            return
        batch = self._under_way = self._waiting.popleft()
        batch.wake(self._settled)
        process = self._sandbox.process
        if process is None:
            batch.settle(0)
            return
        self._watch(process)
        self._deadline = asyncio.get_running_loop().call_later(_SECONDS, self._sandbox.replace, process)
        try:
            process.begin(batch, time.monotonic() + _SECONDS)
        except (TimeoutError, SandboxGone):
            self._sandbox.replace(process)

    def _on_answer(self, process: SandboxProcess) -> None:
        """Read a reply or the end of input."""
        if self._under_way is None:
            self._unwatch()  # the process ended; the next validation replaces it
            return
        try:
            process.finish(time.monotonic() + _SECONDS)
        except (TimeoutError, SandboxGone):
            self._sandbox.replace(process)
        self._next()  # before the woken hosts run: the sandbox works in parallel with them

    def _settled(self) -> None:
        """Note the end of the batch under way, and schedule the next one."""
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
            loop.add_reader(process.reply_fd, self._on_answer, process)
            self._watched, process.before_end = (process, loop), self._unwatch

    def _unwatch(self) -> None:
        """Stop reading replies. Call it before the pipe closes: its descriptor may be reused."""
        if self._watched is not None:
            (process, loop), self._watched = self._watched, None
            process.before_end = _nothing
            if not loop.is_closed():
                loop.remove_reader(process.reply_fd)


async def validate_ahead(
    messages: AsyncIterator[StoredMessage], batch_validation: BatchValidation | None
) -> AsyncIterator[tuple[StoredMessage, bool]]:
    """Yield messages in order, each with True if the sandbox decoded its data without a crash.

    Reads some messages ahead, so that many share one exchange with the sandbox.
    """
    waiting: deque[tuple[StoredMessage, BatchedUpdate | None]] = deque()
    bytes_ahead, woken = 0, Event()

    async def first() -> tuple[StoredMessage, bool]:
        stored, validated = waiting.popleft()
        while validated is not None and not validated.is_done:
            woken.clear()
            await woken.wait()
        return stored, validated is not None and validated.is_valid

    async for stored in messages:
        if batch_validation is None:
            yield stored, False
            continue
        waiting.append((stored, batch_validation.add(stored.data, woken.set)))
        bytes_ahead += len(stored.data)
        while len(waiting) > _AHEAD_UPDATES_MAX or bytes_ahead > _AHEAD_BYTES_MAX:
            one = await first()
            bytes_ahead -= len(one[0].data)
            yield one
    while waiting:
        yield await first()


def _has_room(batch: ValidationBatch, size: int) -> bool:
    return len(batch.updates) < _BATCH_UPDATES_MAX and batch.size + size <= _BATCH_BYTES_MAX


def _nothing() -> None:
    pass
