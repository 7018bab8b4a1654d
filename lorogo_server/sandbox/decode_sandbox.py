"""Decode sandbox: separate processes decode each client update first, so that a crash spares the server.

A forged update can make Loro request more memory than the machine has. Rust then aborts the process without
a panic to catch (docs/decisions/0004). The message stays in the WAL, so the next owner of the document would
abort as well. The sandbox decodes each update before the server does; a small update takes about 13 us.

    queued update ─▶ queue() ───▶ lane of batches ─▶ wake the host: the update decodes, or nothing is known
    other updates ─▶ validate() ─▶ lane of single updates, the smallest first ─▶ refused, or not

Each lane has a process (`sandbox_worker.py`), and exchanges one request with it at a time. While the process
decodes one batch, new updates gather for the next: the busier a server is, the more updates share the two
context switches of an exchange. A batch only proves that an update is valid; the host validates the others
alone, in the other lane: a slow update does not delay the small updates of other documents.

Only some exits of a worker prove anything about the update (`classify_exit`). If the exit proves nothing, the
server imports the update as if it had no sandbox: a slow machine or a machine short of memory must not cause
the refusal of a valid update.
"""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Protocol

from lorogo_protocol.errors import InvalidUpdate, TooLong
from lorogo_server.sandbox.sandbox_process import SandboxProcess
from lorogo_server.sandbox.sandbox_worker import WorkerExit, parse_reply, request
from lorogo_transport.light import Event
from lorogo_transport.ports import StoredMessage
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SECONDS = 10.0  # for one update; only its document waits
_BATCH_SECONDS = 2.0  # a lease is longer
_UPDATE_BYTES_MAX = 56 * 1024  # a larger update is validated alone
_BATCH_BYTES_MAX = 56 * 1024  # with the lengths below a pipe's capacity: one write sends it
_BATCH_UPDATES_MAX = 512
_QUEUED_MAX = 64 * 1024  # updates; later ones are validated alone
_OLDEST_EACH = 8  # of so many single updates one is the oldest, however large it is
_AHEAD_UPDATES_MAX = 512  # that a load reads before it processes the first
_AHEAD_BYTES_MAX = 256 * 1024
#: Exit codes of native crashes. Other exits (SIGKILL by the OOM killer or an operator) prove nothing.
_NATIVE = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL})
#: Bound of a single allocation for a valid update: an operation has at least one or two encoded bytes and
#: takes about a hundred in memory; denser content (a long text of one letter) stays below the first number.
#: A failed allocation above the bound proves a forged update, even on a machine that is short of memory.
_REQUESTED_BYTES_MAX = 1 << 30
_REQUESTED_PER_BYTE_MAX = 64
#: Messages of NACKs and of quarantined updates. Reconciliation compares stored messages with SUSPECTED.
FORGED = "decoding it ends the process: it was made to do harm"
SUSPECTED = "decoding it ends the process, twice: it was made to do harm, or there is a fault"
TOO_LONG = "decoding the update takes too long: split the change into smaller commits"


class ValidateUpdate(Protocol):
    """Raise InvalidUpdate or TooLong for an update that must not be imported.

    `accepted`: a journal has the update as accepted, so only proof of forgery refuses it.
    `bounded`: the update is new; refuse it if decoding takes too long.
    """

    async def __call__(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None: ...


async def skip_validation(update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
    """Accept every update: the validation of a server without a sandbox."""


class ExitVerdict(Enum):
    """Conclusion about the update from the exit of a worker."""

    FORGED = "forged"
    SUSPECT = "suspect"  # forged if it ends a second worker as well
    LONG = "long"  # decoding takes too long
    UNKNOWN = "unknown"


def classify_exit(ended: WorkerExit, size: int) -> ExitVerdict:
    """Conclude from the exit of a worker about an update of `size` bytes."""
    if ended.code == -signal.SIGPROF:
        return ExitVerdict.LONG
    if ended.code not in _NATIVE:
        return ExitVerdict.UNKNOWN
    if not ended.requested_bytes:
        return ExitVerdict.SUSPECT
    absurd = ended.requested_bytes > _REQUESTED_BYTES_MAX + _REQUESTED_PER_BYTE_MAX * size
    return ExitVerdict.FORGED if absurd else ExitVerdict.UNKNOWN


class Validation:
    """An update that waits for the sandbox, and the result."""

    __slots__ = ("bounded", "careful", "ended", "is_done", "is_gone", "is_valid", "update", "wake")

    def __init__(
        self, update: bytes, wake: Callable[[], None], *, careful: bool = False, bounded: bool = True
    ) -> None:
        self.update = update
        self.wake = wake
        self.careful = careful
        self.bounded = bounded
        self.is_done = False
        self.is_valid = False  # the sandbox decoded the update without a crash
        self.is_gone = False  # the sandbox ended, and not over the update
        self.ended: WorkerExit | None = None  # the worker, over this update


class ValidationLane:
    """Waiting updates, and the process that decodes them: in batches, or one by one."""

    def __init__(self, seconds: float, *, batches: bool) -> None:
        """A lane of batches keeps a second process ready: a replacement does not wait for Python."""
        self.seconds = seconds
        self.process: SandboxProcess | None = None
        self.spare: SandboxProcess | None = None
        self._batches = batches
        self._waiting: deque[Validation] = deque()
        self._under_way: list[Validation] = []
        self._soon = False  # `_next` is about to be called
        self._turns = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: Validation) -> None:
        """Queue an update; its `wake` is called when it is done."""
        self._waiting.append(one)
        if not (self._under_way or self._soon):
            self._soon = True  # after the messages that arrived together with it
            asyncio.get_running_loop().call_soon(self._next)

    async def decode(self, update: bytes, *, careful: bool = False, bounded: bool = False) -> Validation:
        """Queue an update and wait until it is done."""
        woken = Event()
        one = Validation(update, woken.set, careful=careful, bounded=bounded)
        self.add(one)
        try:
            await woken.wait()
        finally:
            if not one.is_done and one in self._waiting:
                self._waiting.remove(one)
        return one

    def stop(self) -> None:
        """End the processes; nothing is known of the waiting updates."""
        for process in (self.process, self.spare):
            if process is not None:
                process.end()
        self.process = self.spare = None
        waiting = [*self._under_way, *self._waiting]
        self._under_way, self._waiting = [], deque()
        _settle(waiting)

    def _next(self) -> None:
        """Send the next updates, unless none waits or some are under way."""
        self._soon = False
        if self._under_way or not self._waiting:
            return
        if (process := self.process or self._replace()) is None:
            self.stop()
            return
        taken = self._under_way = self._take()
        updates = [one.update for one in taken]
        data = request(updates, careful=taken[0].careful, bounded=taken[0].bounded)
        process.send(data, self.seconds, self._on_reply)

    def _take(self) -> list[Validation]:
        waiting = self._waiting
        if not self._batches:
            self._turns += 1
            oldest = self._turns % _OLDEST_EACH == 0
            one = waiting[0] if oldest else min(waiting, key=lambda one: len(one.update))
            waiting.remove(one)
            return [one]
        taken = [waiting.popleft()]
        size = len(taken[0].update)
        while waiting and len(taken) < _BATCH_UPDATES_MAX:
            size += len(waiting[0].update)
            if size > _BATCH_BYTES_MAX:
                break
            taken.append(waiting.popleft())
        return taken

    def _on_reply(self, reply: bytes | None) -> None:
        taken, self._under_way = self._under_way, []
        if not reply and self.process is not None:
            code = self.process.end()
            log.warning(
                "decode sandbox failed, replacing it", timed_out=reply is None, code=code, updates=len(taken)
            )
            self._replace()
        self._next()  # before the woken hosts run: the sandbox works in parallel with them
        _settle(taken, reply)

    def _replace(self) -> SandboxProcess | None:
        """Switch to the spare process and start a new spare; return None if no process can be started."""
        self.process, self.spare = self.spare, None
        try:
            self.process = self.process or SandboxProcess()
            self.spare = SandboxProcess() if self._batches else None
        except OSError as error:  # no memory for it, or too many processes
            log.warning("cannot start a decode sandbox", problem=str(error))
        return self.process


def _settle(taken: list[Validation], reply: bytes | None = None) -> None:
    valid_count, ended = parse_reply(reply, len(taken)) if reply else (0, None)
    for place, one in enumerate(taken):
        one.is_done, one.is_valid, one.is_gone = True, place < valid_count, reply == b""
        one.ended = ended if place == valid_count else None
    for one in taken:
        one.wake()


class DecodeSandbox:
    """The sandbox of one server, on its event loop."""

    def __init__(self, *, seconds: float = _SECONDS, batch_seconds: float = _BATCH_SECONDS) -> None:
        self.batches = ValidationLane(batch_seconds, batches=True)
        self.single = ValidationLane(seconds, batches=False)

    async def start(self) -> None:
        """Start the processes, and wait until they are ready."""
        await asyncio.gather(self.batches.decode(b""), self.single.decode(b""))

    def stop(self) -> None:
        """End the processes."""
        self.batches.stop()
        self.single.stop()

    def queue(self, update: bytes, wake: Callable[[], None]) -> Validation | None:
        """Queue an update for a batch; `wake` is called when it is done. None: validate it alone later."""
        if len(update) > _UPDATE_BYTES_MAX or len(self.batches) >= _QUEUED_MAX:
            return None
        one = Validation(update, wake)
        self.batches.add(one)
        return one

    async def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        """Raise InvalidUpdate if decoding the update crashes a process.

        Raise TooLong if it is `bounded` and decoding takes too long.
        """
        verdict = await self._verdict(update, careful=False, bounded=bounded)
        if verdict is ExitVerdict.SUSPECT and not accepted:
            verdict = await self._verdict(update, careful=True, bounded=bounded)
            if verdict is ExitVerdict.SUSPECT:
                raise InvalidUpdate(SUSPECTED)
        if verdict is ExitVerdict.FORGED:
            raise InvalidUpdate(FORGED)
        if verdict is ExitVerdict.LONG:
            raise TooLong(TOO_LONG)

    async def _verdict(self, update: bytes, *, careful: bool, bounded: bool) -> ExitVerdict:
        one = await self.single.decode(update, careful=careful, bounded=bounded)
        if one.is_gone:  # once more
            one = await self.single.decode(update, careful=careful, bounded=bounded)
        if one.ended is None:
            return ExitVerdict.UNKNOWN
        verdict = classify_exit(one.ended, len(update))
        log_end = log.warning if verdict is ExitVerdict.UNKNOWN else log.info
        log_end(
            "update ended the sandbox worker",
            code=one.ended.code,
            requested_bytes=one.ended.requested_bytes,
            bytes=len(update),
            verdict=verdict.value,
        )
        return verdict


async def validate_ahead(
    messages: AsyncIterator[StoredMessage], sandbox: DecodeSandbox | None
) -> AsyncIterator[tuple[StoredMessage, bool]]:
    """Yield messages in order, each with True if the sandbox decoded its data without a crash.

    Reads some messages ahead, so that many share one exchange with the sandbox.
    """
    waiting: deque[tuple[StoredMessage, Validation | None]] = deque()
    bytes_ahead, woken = 0, Event()

    async def first() -> tuple[StoredMessage, bool]:
        stored, validation = waiting.popleft()
        while validation is not None and not validation.is_done:
            woken.clear()
            await woken.wait()
        return stored, validation is not None and validation.is_valid

    async for stored in messages:
        if sandbox is None:
            yield stored, False
            continue
        waiting.append((stored, sandbox.queue(stored.data, woken.set)))
        bytes_ahead += len(stored.data)
        while len(waiting) > _AHEAD_UPDATES_MAX or bytes_ahead > _AHEAD_BYTES_MAX:
            one = await first()
            bytes_ahead -= len(one[0].data)
            yield one
    while waiting:
        yield await first()
