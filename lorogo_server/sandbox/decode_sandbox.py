"""Decode sandbox: a separate process decodes each client update first, so that a crash spares the server.

A forged update can make Loro request more memory than the machine has. Rust then aborts the process without
a panic to catch (docs/decisions/0004). The message stays in the WAL, so the next owner of the document would
abort as well. The sandbox decodes each update before the server does; a small update takes about 13 us.

The sandbox has two processes. The *parent* has loaded all modules, decodes nothing, and forks the *worker*,
which decodes. When an update ends the worker, the parent reports the exit and forks the next worker. The fork
takes a few milliseconds; a new Python interpreter takes some tenths of a second. The server keeps a second
parent ready in case the first one ends.

    server -> worker   bytes (4) | careful (1) | bounded (1) | count (4) | length (4) of each update | updates
    worker -> server   "."                               every update decodes, or Loro raises an error
    parent -> server   "!" | code (4) | requested (8) | valid (4)
                                                         an update ended the worker: exit code, bytes of the
                                                         failed allocation, number of updates decoded before

One exchange may carry many updates: it costs two context switches, and the event loop keeps running
(`batch_validation.py`). Only one exchange is under way at a time, so the pipe is empty when a worker ends.
The end of input ends the worker and the parent. Only some exits prove anything about the update
(`classify_exit`). If the exit proves nothing, the server imports the update as if it had no sandbox: a slow
machine or a machine short of memory must not cause the refusal of a valid update.
"""

import asyncio
import functools
import mmap
import os
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, Protocol

from lorogo_protocol.errors import CrdtError, InvalidUpdate, TooLong
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_server.sandbox.shortest_first import ShortestFirst
from lorogo_transport.secret_files import without_secrets
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SECONDS = 10.0  # for one update; only its document waits
#: CPU seconds for decoding one update. The server needs as long for the import, and its loop stops meanwhile.
DECODE_SECONDS = 0.15
_START_SECONDS = 10.0
_WORK_SECONDS = 300  # then a worker ends itself, in case the server and the parent are gone
_REQUEST = struct.Struct("<I??I")
_END = struct.Struct("<ciQI")
_FINE = struct.Struct("<I")
_LENGTH_BYTES = 4
_DONE, _ENDED = b".", b"!"
_PIECE_BYTES = 64 * 1024
#: Exit codes of native crashes. Other exits (SIGKILL by the OOM killer or an operator) prove nothing.
_NATIVE = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL})
#: Bound of a single allocation for a valid update: an operation has at least one or two encoded bytes and
#: takes about a hundred in memory; denser content (a long text of one letter) stays below the first number.
#: A failed allocation above the bound proves a forged update, even on a machine that is short of memory.
_REQUESTED_BYTES_MAX = 1 << 30
_REQUESTED_PER_BYTE_MAX = 64
#: Memory that must be available; otherwise a crash without a message may come from a lack of memory.
_ROOM_BYTES, _ROOM_PER_BYTE = 256 << 20, 16
#: Rust's abort message at the end of stderr: an earlier panic message may quote content of the update. The
#: line repeats if the allocation for printing the message fails as well.
_ABORT_MESSAGE = re.compile(
    rb"(?:\A|\n)((?:memory allocation of \d{1,20} bytes failed\n)+)"
    rb"(?:(?:note:|skipping backtrace) [^\n]*\n)?\Z"
)
_STDERR_BYTES_MAX = 4096
#: Messages of NACKs and of quarantined updates. Reconciliation compares stored messages with SUSPECTED.
FORGED = "decoding it ends the process: it was made to do harm"
SUSPECTED = "decoding it ends the process, twice: it was made to do harm, or there is a fault"
TOO_LONG = "decoding the update takes too long: split the change into smaller commits"
_PANIC_MARK = b"\n\0\n"  # output before it belongs to an earlier update


class ValidateUpdate(Protocol):
    """Raise InvalidUpdate or TooLong for an update that must not be imported.

    `accepted`: a journal has the update as accepted, so only proof of forgery refuses it.
    `bounded`: the update is new; refuse it if decoding takes too long.
    """

    async def __call__(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None: ...


async def skip_validation(update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
    """Accept every update: the validation of a server without a sandbox."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """Exit of a worker that was decoding an update: exit code and size of the failed allocation, if any."""

    code: int
    requested_bytes: int = 0


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


class SandboxGone(Exception):
    """The parent process ended."""


class ValidationBatch:
    """Updates that the sandbox validates in one exchange, and the result."""

    __slots__ = ("_wakes", "done", "size", "updates", "valid_count")

    def __init__(self) -> None:
        self.updates: list[bytes] = []
        self.size = 0
        self.done = False
        self.valid_count = 0  # number of updates from the first on that decode; the others are unknown
        self._wakes: dict[Callable[[], None], None] = {}  # each once, in order

    def add(self, update: bytes, wake: Callable[[], None]) -> int:
        """Add an update and return its index. `wake` is called when the batch is done."""
        self.updates.append(update)
        self.size += len(update)
        self._wakes[wake] = None
        return len(self.updates) - 1

    def wake(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the batch is done."""
        self._wakes[wake] = None

    def settle(self, valid_count: int) -> None:
        """End the batch: its first `valid_count` updates decode. Wake the callers."""
        self.done, self.valid_count, self.updates = True, valid_count, []
        wakes, self._wakes = self._wakes, {}
        for wake in wakes:
            wake()


class DecodeSandbox:
    """Server side of the sandbox: start the processes and have them decode updates. Calls block."""

    def __init__(self, *, seconds: float = _SECONDS, spare: bool = True) -> None:
        """`spare`: keep a second parent ready, so that a replacement does not wait for Python to start."""
        self._seconds = seconds
        self._keeps_spare = spare
        self._process: SandboxProcess | None = None
        self._spare: SandboxProcess | None = None

    def new_instance(self) -> "DecodeSandbox":
        """Return a second sandbox with its own processes and a spare parent."""
        return DecodeSandbox(seconds=self._seconds)

    def start(self) -> None:
        """Start the processes unless they run, and wait until one is ready."""
        if self._process is None and (process := self._next()) is not None:
            with suppress(SandboxGone, TimeoutError):  # the first validation reports a failed start
                process.wait_until_ready(time.monotonic() + _START_SECONDS)

    def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        """Raise InvalidUpdate if decoding the update crashes a process.

        Raise TooLong if it is `bounded` and decoding takes too long.
        """
        verdict = self._verdict(update, careful=False, bounded=bounded)
        if verdict is ExitVerdict.SUSPECT and not accepted:
            verdict = self._verdict(update, careful=True, bounded=bounded)
            if verdict is ExitVerdict.SUSPECT:
                raise InvalidUpdate(SUSPECTED)
        if verdict is ExitVerdict.FORGED:
            raise InvalidUpdate(FORGED)
        if verdict is ExitVerdict.LONG:
            raise TooLong(TOO_LONG)

    @property
    def process(self) -> "SandboxProcess | None":
        """The current sandbox process, or None if none runs."""
        return self._process

    def replace(self, process: "SandboxProcess") -> None:
        """End a process that does not answer or is gone, and switch to the spare one."""
        process.end(at_once=True)
        if self._process is process:
            self._next()

    def stop(self) -> None:
        """End the processes."""
        for process in (self._process, self._spare):
            if process is not None:
                process.end()
        self._process = self._spare = None

    def _verdict(self, update: bytes, *, careful: bool, bounded: bool) -> ExitVerdict:
        self._finish_batch()
        deadline = time.monotonic() + self._seconds
        for _ in range(2):
            if (process := self._process or self._next()) is None:
                break
            try:
                ended = process.check(update, deadline, careful=careful, bounded=bounded)
            except TimeoutError:
                log.warning("decode sandbox timed out, replacing it", bytes=len(update))
                process.end(at_once=True)
                self._next()
                break
            except SandboxGone:
                log.warning("decode sandbox ended, replacing it", code=process.end(), bytes=len(update))
                self._next()
                continue
            if ended is None:
                return ExitVerdict.UNKNOWN
            verdict = classify_exit(ended, len(update))
            log_end = log.warning if verdict is ExitVerdict.UNKNOWN else log.info
            log_end(
                "update ended the sandbox worker",
                code=ended.code,
                requested_bytes=ended.requested_bytes,
                bytes=len(update),
                verdict=verdict.value,
            )
            return verdict
        return ExitVerdict.UNKNOWN

    def _finish_batch(self) -> None:
        """Finish the batch under way first: its time must not count against the update to validate now.

        Otherwise a few slow updates would let an update pass unvalidated that crashes the server.
        """
        process = self._process
        if process is None or not process.is_busy:
            return
        try:
            process.finish(process.due)
        except (TimeoutError, SandboxGone):
            log.warning("decode sandbox did not finish a batch in time, replacing it")
            self.replace(process)

    def _next(self) -> "SandboxProcess | None":
        """Switch to the spare process and start a new spare; return None if no process can be started."""
        self._process, self._spare = self._spare, None
        try:
            self._process = self._process or SandboxProcess()
            self._spare = SandboxProcess() if self._keeps_spare else None
        except OSError as error:  # no memory for it, or too many processes
            log.warning("cannot start a decode sandbox", problem=str(error))
        return self._process


class ValidationThread:
    """Validate updates one at a time in a thread, smaller ones first, while the loop runs other documents.

    The thread has a sandbox of its own: a slow update does not delay the small updates that another sandbox
    decodes in batches (`batch_validation.py`). The thread only waits for pipes and decodes nothing.
    """

    def __init__(self, sandbox: DecodeSandbox) -> None:
        self._sandbox = sandbox
        self._turns = ShortestFirst()  # at most one update of each document waits
        self._thread = ThreadPoolExecutor(1, "lorogo-sandbox")

    async def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        """Validate one update."""
        work = functools.partial(self._sandbox.validate, update, accepted=accepted, bounded=bounded)
        async with self._turns.turn(len(update)):
            await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Wait for the update under way; no other starts."""
        self._turns.close()
        self._thread.shutdown(cancel_futures=True)


class SandboxProcess:
    """One parent with its worker, and the pipes to both."""

    def __init__(self) -> None:
        self.before_end: Callable[[], None] = _nothing
        self.due = 0.0  # deadline of the batch under way
        self._batch: ValidationBatch | None = None  # under way, without a blocked caller
        self.popen = subprocess.Popen(
            [sys.executable, "-c", "from lorogo_server.sandbox.decode_sandbox import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; parent and worker are killed as one group
            env={**without_secrets(os.environ), "RUST_BACKTRACE": "0"},  # backtraces are long and unused
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in, self._out = self.popen.stdin, self.popen.stdout
        self._ready = False
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)

    def wait_until_ready(self, deadline: float) -> None:
        """Wait for the ready signal. Raises TimeoutError, SandboxGone."""
        if not self._ready:
            self._read_reply(deadline)
            self._ready = True

    def check(self, update: bytes, deadline: float, *, careful: bool, bounded: bool) -> WorkerExit | None:
        """Decode one update; return the worker's exit, or None if it survived.

        Raises TimeoutError, SandboxGone.
        """
        self.wait_until_ready(deadline)
        if self._batch is not None:
            self.finish(deadline)
        self._write(_framed((update,), careful=careful, bounded=bounded), deadline)
        reply = self._read_reply(deadline)
        if reply == _DONE:
            return None
        _, code, requested, _ = _END.unpack(reply)
        return WorkerExit(code, requested)

    @property
    def is_busy(self) -> bool:
        """True while a batch is under way."""
        return self._batch is not None

    @property
    def reply_fd(self) -> int:
        """File descriptor that is readable once `finish()` does not block."""
        return self._out.fileno()

    def begin(self, batch: "ValidationBatch", deadline: float) -> None:
        """Send a batch to the worker; no other may be under way. Raises TimeoutError, SandboxGone."""
        assert self._batch is None
        self._batch, self.due = batch, deadline  # settled from here on, however it ends
        self.wait_until_ready(deadline)
        self._write(_framed(batch.updates, careful=False, bounded=True), deadline)

    def finish(self, deadline: float) -> None:
        """Read the reply to the batch under way, if any, and settle it. Raises TimeoutError, SandboxGone."""
        if self._batch is None:
            return
        reply = self._read_reply(deadline)
        batch, self._batch = self._batch, None
        batch.settle(len(batch.updates) if reply == _DONE else _END.unpack(reply)[3])

    def end(self, *, at_once: bool = False) -> int | None:
        """End both processes; return the parent's exit code, or None if it had to be killed."""
        self.before_end()
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.settle(0)
        with suppress(BrokenPipeError):
            self._in.close()
        try:
            code: int | None = self.popen.wait(0 if at_once else 0.5)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError, PermissionError):  # the worker may still run
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._out.close()
        return code

    def _write(self, data: bytes, deadline: float) -> None:
        fd, view = self._in.fileno(), memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                _wait(fd, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise SandboxGone from None

    def _read_reply(self, deadline: float) -> bytes:
        fd = self._out.fileno()
        while True:
            _wait(fd, select.POLLIN, deadline)
            try:
                reply = os.read(fd, _END.size)  # one reply at most, written at once
            except BlockingIOError:
                continue
            if not reply:
                raise SandboxGone
            return reply


def _nothing() -> None:
    pass


def _framed(updates: Sequence[bytes], *, careful: bool, bounded: bool) -> bytes:
    lengths = [len(update) for update in updates]
    head = _REQUEST.pack(sum(lengths), careful, bounded, len(lengths))
    return b"".join((head, struct.pack(f"<{len(lengths)}I", *lengths), *updates))


def _wait(fd: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise TimeoutError


# --- the sandbox process --------------------------------------------------------------------------

_IDLE, _READING, _DECODING = range(3)


def main() -> None:
    """Entry point of the parent process, which forks one worker after another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected, core dumps are useless
    # Shared memory: phase of the worker and number of decoded updates, readable after a crash.
    doing = mmap.mmap(-1, 1 + _FINE.size)
    with suppress(BrokenPipeError):
        os.write(1, _DONE)
        while _run_worker(doing):
            pass


def _run_worker(doing: mmap.mmap) -> bool:
    """Run one worker to its end; return True if the parent shall fork another."""
    doing[0] = _IDLE
    parent = os.getpid()
    stderr_in, stderr_out = os.pipe()
    worker = os.fork()
    if not worker:
        os.dup2(stderr_out, 2)
        os.close(stderr_in)
        os.close(stderr_out)
        _work(doing, parent)
    os.close(stderr_out)
    stderr = _read_stderr_end(stderr_in)
    os.close(stderr_in)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    if not code or doing[0] == _READING:  # end of input, or a partial update is left in the pipe
        return False
    if doing[0] == _DECODING:
        (valid_count,) = _FINE.unpack_from(doing, 1)
        os.write(1, _END.pack(_ENDED, code, requested_bytes(code, stderr), valid_count))
    return True


def _read_stderr_end(fd: int) -> bytes:
    """Read the worker's stderr until it ends; return the last bytes."""
    stderr = b""
    while piece := os.read(fd, _PIECE_BYTES):
        stderr = (stderr + piece)[-_STDERR_BYTES_MAX:]
    return stderr


def requested_bytes(code: int, stderr: bytes) -> int:
    """Return the size of the failed allocation that aborted the process; 0 if stderr reports none."""
    found = _ABORT_MESSAGE.search(stderr.rpartition(_PANIC_MARK)[2])
    if code != -signal.SIGABRT or found is None:
        return 0
    return min(max(int(number) for number in re.findall(rb"\d+", found[1])), (1 << 64) - 1)


def _work(doing: mmap.mmap, parent: int) -> NoReturn:
    """Run the worker: decode updates until the input ends."""
    code = 1
    try:
        with suppress(BrokenPipeError):
            while (request := _request(doing)) is not None and os.getppid() == parent:
                updates, careful, bounded = request
                _FINE.pack_into(doing, 1, 0)
                doing[0] = _DECODING
                signal.alarm(_WORK_SECONDS)
                signal.setitimer(signal.ITIMER_PROF, DECODE_SECONDS if bounded else 0.0)
                for number, update in enumerate(updates, 1):
                    _decode(update, careful)
                    _FINE.pack_into(doing, 1, number)
                signal.alarm(0)
                signal.setitimer(signal.ITIMER_PROF, 0.0)
                doing[0] = _IDLE
                os.write(1, _DONE)
        code = 0
    finally:
        os._exit(code)  # skip the parent's cleanup handlers


def _decode(update: bytes, careful: bool) -> None:
    """Decode an update and ignore errors; a forged one crashes the process."""
    if careful:
        mmap.mmap(-1, _ROOM_BYTES + _ROOM_PER_BYTE * len(update)).close()
    try:
        crdt.try_decoding(update)
    except CrdtPanic:
        os.write(2, _PANIC_MARK)
    except CrdtError:  # the server raises it again at the import, and sends the NACK
        pass


def _request(doing: mmap.mmap) -> tuple[list[bytes], bool, bool] | None:
    """Read one request: updates, `careful` (check free memory first) and `bounded`; None at the end.

    The server sends one request at a time.
    """
    data, wanted, careful, bounded, count = bytearray(), _REQUEST.size, False, False, 0
    while len(data) < wanted:
        piece = os.read(0, _PIECE_BYTES)
        if not piece:
            return None
        doing[0] = _READING
        data += piece
        if len(data) >= _REQUEST.size:
            size, careful, bounded, count = _REQUEST.unpack_from(data)
            wanted = _REQUEST.size + _LENGTH_BYTES * count + size
    lengths = struct.unpack_from(f"<{count}I", data, _REQUEST.size)
    updates, begin = [], _REQUEST.size + _LENGTH_BYTES * count
    for length in lengths:
        updates.append(bytes(memoryview(data)[begin : begin + length]))
        begin += length
    return updates, careful, bounded
