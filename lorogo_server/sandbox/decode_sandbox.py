"""Updates of others, read by another process first: what ends that one must not end the server.

A forged update can make Loro ask for more memory than there is, and then Rust ends the process: no panic,
nothing to catch (docs/decisions/0004). The message stays in the WAL, so whoever takes the document next would
end, too. The taster is a small process that decodes each update before the server does, about 13 us for a
small one.

It has two parts. The *parent* has loaded everything, decodes nothing, and forks the *worker*, which decodes.
When an update ends the worker, the parent says how, and forks the next one: a few milliseconds, where
starting Python anew takes some tenths of a second. A second parent is kept ready for when the first one ends.

    server -> worker   bytes (4) | careful (1) | bounded (1) | count (4) | length (4) of each update | updates
    worker -> server   "."                               each can be decoded, or Loro says no by itself
    parent -> server   "!" | code (4) | asked (8) | fine (4)
                                                         one ended the worker, behind so many: how, and for
                                                         want of what memory

An exchange may be about many updates: it costs two changes of process, and the loop goes on meanwhile
(`batch_validation.py`). Only one is under way at a time, so nothing is left in the pipe when a worker ends.
The end of input is the end of the worker, and that of the parent. Of all ends only some say something about
the update (`judged`): where nothing is known, it is taken as if there were no taster, since a good update
must not be refused because a machine was slow or short of memory.
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

from lorogo_protocol import crdt
from lorogo_protocol.crdt import CrdtPanic
from lorogo_protocol.errors import CrdtError, InvalidUpdate, TooLong
from lorogo_transport.secret_files import without_secrets
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SECONDS = 10.0  # for one update: only its document waits
#: CPU seconds that a worker may decode: the server needs as long, and runs nothing else meanwhile
DECODE_SECONDS = 0.15
_START_SECONDS = 10.0
_WORK_SECONDS = 300  # then a worker ends itself: nobody may be there any more to end it
_REQUEST = struct.Struct("<I??I")
_END = struct.Struct("<ciQI")
_FINE = struct.Struct("<I")
_LENGTH_BYTES = 4
_DONE, _ENDED = b".", b"!"
_PIECE_BYTES = 64 * 1024
#: how a process ends that native code ended; others (killed, for want of memory or by a person) say nothing
_NATIVE = frozenset({-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL})
#: No honest update asks for more at once: an operation has at least a byte or two in it and takes about a
#: hundred in memory, and what is packed tighter (a long text of one letter) stays below the first number.
#: So one that asks for more, and does not get it, was forged, however short of memory the machine is.
_ASKED_BYTES_MAX = 1 << 30
_ASKED_PER_BYTE_MAX = 64
#: must be free, else an end without a word may be for want of memory
_ROOM_BYTES, _ROOM_PER_BYTE = 256 << 20, 16
#: Rust's last words, and nothing behind them: a panic before them may quote what a stranger wrote. When
#: nothing at all is left, it fails once more while it says so.
_LAST_WORDS = re.compile(
    rb"(?:\A|\n)((?:memory allocation of \d{1,20} bytes failed\n)+)"
    rb"(?:(?:note:|skipping backtrace) [^\n]*\n)?\Z"
)
_WORDS_BYTES_MAX = 4096
#: what a sender is told, and what is written beside the quarantined update
FORGED = "decoding it ends the process: it was made to do harm"
SUSPECTED = "decoding it ends the process, twice: it was made to do harm, or there is a fault"
TOO_LONG = "decoding it takes too long: split the change into smaller commits"
_PAST = b"\n\0\n"  # what was said before it belongs to another update


class ValidateUpdate(Protocol):
    """Raises InvalidUpdate or TooLong for what must not be imported.

    `accepted`: our journal says that it was imported once. Then only a proof counts against it.
    `bounded`: nothing has accepted it yet; refuse it if decoding it takes too long.
    """

    async def __call__(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None: ...


async def untasted(update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
    """For a server without a taster: every update is let through."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker ended over an update: its exit code, and what memory it had asked for in vain."""

    code: int
    asked_bytes: int = 0


class ExitVerdict(Enum):
    """What such an end says about the update."""

    FORGED = "forged"
    SUSPECT = "suspect"  # forged, if it ends another worker as well
    LONG = "long"  # decoding it takes too long
    UNKNOWN = "unknown"


def judged(ended: WorkerExit, size: int) -> ExitVerdict:
    """What the end of a worker says about an update of that size."""
    if ended.code == -signal.SIGPROF:
        return ExitVerdict.LONG
    if ended.code not in _NATIVE:
        return ExitVerdict.UNKNOWN
    if not ended.asked_bytes:
        return ExitVerdict.SUSPECT
    absurd = ended.asked_bytes > _ASKED_BYTES_MAX + _ASKED_PER_BYTE_MAX * size
    return ExitVerdict.FORGED if absurd else ExitVerdict.UNKNOWN


class SandboxGone(Exception):
    """The parent ended."""


class ValidationBatch:
    """Updates that are tasted together, and what came of it."""

    __slots__ = ("_wakes", "done", "fine", "size", "updates")

    def __init__(self) -> None:
        self.updates: list[bytes] = []
        self.size = 0
        self.done = False
        self.fine = 0  # so many from the first on may be imported; nothing is known of the others
        self._wakes: dict[Callable[[], None], None] = {}  # each once, in order

    def add(self, update: bytes, wake: Callable[[], None]) -> int:
        """Taste this one, too; its place among the others. `wake` is called when all is known."""
        self.updates.append(update)
        self.size += len(update)
        self._wakes[wake] = None
        return len(self.updates) - 1

    def wake(self, wake: Callable[[], None]) -> None:
        """Call this when all is known."""
        self._wakes[wake] = None

    def settle(self, fine: int) -> None:
        """So many are fine."""
        self.done, self.fine, self.updates = True, fine, []
        wakes, self._wakes = self._wakes, {}
        for wake in wakes:
            wake()


class DecodeSandbox:
    """The server's end: starts the processes, and asks. The caller waits for the answer."""

    def __init__(self, *, seconds: float = _SECONDS, spare: bool = True) -> None:
        """`spare`: keep a second parent ready, for those who cannot wait until Python has started."""
        self._seconds = seconds
        self._keeps_spare = spare
        self._process: SandboxProcess | None = None
        self._spare: SandboxProcess | None = None

    def another(self) -> "DecodeSandbox":
        """A second one with processes of its own, which keeps a spare."""
        return DecodeSandbox(seconds=self._seconds)

    def start(self) -> None:
        """Start the processes, if they do not run, and wait until one can answer."""
        if self._process is None and (process := self._next()) is not None:
            with suppress(SandboxGone, TimeoutError):  # one that does not start is noticed when it is asked
                process.wait_until_ready(time.monotonic() + _START_SECONDS)

    def taste(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        """Raises InvalidUpdate if decoding the update ends a process.

        Raises TooLong if it is `bounded` and decoding it takes long.
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
        """Who is asked now; None if none runs."""
        return self._process

    def replace(self, process: "SandboxProcess") -> None:
        """That one does not answer, or is gone: the one that was kept ready takes its place."""
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
        self._free()
        deadline = time.monotonic() + self._seconds
        for _ in range(2):
            if (process := self._process or self._next()) is None:
                break
            try:
                ended = process.ask(update, deadline, careful=careful, bounded=bounded)
            except TimeoutError:
                log.warning("the taster did not answer in time, taking another", bytes=len(update))
                process.end(at_once=True)
                self._next()
                break
            except SandboxGone:
                log.warning("the taster is gone, taking another", code=process.end(), bytes=len(update))
                self._next()
                continue
            if ended is None:
                return ExitVerdict.UNKNOWN
            verdict = judged(ended, len(update))
            tell = log.warning if verdict is ExitVerdict.UNKNOWN else log.info
            tell(
                "an update ended the taster's worker",
                code=ended.code,
                asked_bytes=ended.asked_bytes,
                bytes=len(update),
                verdict=verdict.value,
            )
            return verdict
        return ExitVerdict.UNKNOWN

    def _free(self) -> None:
        """Let what others asked for ahead end first: its time is not that of the update asked for now.

        Else a few updates that take long would make one pass untasted that ends the process.
        """
        process = self._process
        if process is None or not process.tasting:
            return
        try:
            process.finish(process.due)
        except (TimeoutError, SandboxGone):
            log.warning("the taster did not taste ahead in time, taking another")
            self.replace(process)

    def _next(self) -> "SandboxProcess | None":
        """The one that was kept ready, and another takes its place; None if none can be started."""
        self._process, self._spare = self._spare, None
        try:
            self._process = self._process or SandboxProcess()
            self._spare = SandboxProcess() if self._keeps_spare else None
        except OSError as error:  # no memory for it, or too many processes
            log.warning("a taster could not be started", problem=str(error))
        return self._process


class ValidationThread:
    """Validates updates one after another in a thread, while the loop runs other documents.

    It has a taster of its own: an update that takes long here does not delay the small updates, which
    another taster decodes in portions (`batch_validation.py`). The thread waits for pipes; it decodes
    nothing.
    """

    def __init__(self, taster: DecodeSandbox) -> None:
        self._taster = taster
        # Its queue holds one update of each document at most.
        self._thread = ThreadPoolExecutor(1, "lorogo-sandbox")

    async def taste(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        """As `ValidateUpdate` says."""
        asked = functools.partial(self._taster.taste, update, accepted=accepted, bounded=bounded)
        await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    def close(self) -> None:
        """Wait for the update that is being decoded; no other is begun."""
        self._thread.shutdown(cancel_futures=True)


class SandboxProcess:
    """One parent with its worker, and the pipes to them."""

    def __init__(self) -> None:
        self.before_end: Callable[[], None] = _nothing
        self.due = 0.0  # when the portion under way must be known
        self._portion: ValidationBatch | None = (
            None  # that is being tasted, while nobody waits for the answer
        )
        self.popen = subprocess.Popen(
            [sys.executable, "-c", "from lorogo_server.sandbox.decode_sandbox import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the server; and parent and worker can be ended together
            env={**without_secrets(os.environ), "RUST_BACKTRACE": "0"},  # a page, and none of it is read
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in, self._out = self.popen.stdin, self.popen.stdout
        self._ready = False
        for pipe in (self._in, self._out):
            os.set_blocking(pipe.fileno(), False)

    def wait_until_ready(self, deadline: float) -> None:
        """Raises TimeoutError, Gone."""
        if not self._ready:
            self._hear(deadline)
            self._ready = True

    def ask(self, update: bytes, deadline: float, *, careful: bool, bounded: bool) -> WorkerExit | None:
        """How the update ended the worker; None: it did not. Raises TimeoutError, Gone."""
        self.wait_until_ready(deadline)
        if self._portion is not None:
            self.finish(deadline)
        self._tell(_framed((update,), careful=careful, bounded=bounded), deadline)
        heard = self._hear(deadline)
        if heard == _DONE:
            return None
        _, code, asked, _ = _END.unpack(heard)
        return WorkerExit(code, asked)

    @property
    def tasting(self) -> bool:
        """Whether a portion is under way."""
        return self._portion is not None

    @property
    def answers(self) -> int:
        """The file that can be read when `finish()` need not wait."""
        return self._out.fileno()

    def begin(self, portion: "ValidationBatch", deadline: float) -> None:
        """Let the worker taste a portion; nothing may be under way. Raises TimeoutError, Gone."""
        assert self._portion is None
        self._portion, self.due = portion, deadline  # settled from here on, however it ends
        self.wait_until_ready(deadline)
        self._tell(_framed(portion.updates, careful=False, bounded=True), deadline)

    def finish(self, deadline: float) -> None:
        """Settle the portion that is under way, if there is one. Raises TimeoutError, Gone."""
        if self._portion is None:
            return
        heard = self._hear(deadline)
        portion, self._portion = self._portion, None
        portion.settle(len(portion.updates) if heard == _DONE else _END.unpack(heard)[3])

    def end(self, *, at_once: bool = False) -> int | None:
        """How the parent ended by itself; None if it had to be ended. Nothing of it is left."""
        self.before_end()
        portion, self._portion = self._portion, None
        if portion is not None:
            portion.settle(0)
        with suppress(BrokenPipeError):
            self._in.close()
        try:
            code: int | None = self.popen.wait(0 if at_once else 0.5)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError, PermissionError):  # the worker may have outlived its parent
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._out.close()
        return code

    def _tell(self, data: bytes, deadline: float) -> None:
        fd, view = self._in.fileno(), memoryview(data)
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                _wait(fd, select.POLLOUT, deadline)
            except BrokenPipeError:
                raise SandboxGone from None

    def _hear(self, deadline: float) -> bytes:
        fd = self._out.fileno()
        while True:
            _wait(fd, select.POLLIN, deadline)
            try:
                heard = os.read(fd, _END.size)  # one answer at most, written whole
            except BlockingIOError:
                continue
            if not heard:
                raise SandboxGone
            return heard


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


# --- the process ----------------------------------------------------------------------------------

_IDLE, _READING, _DECODING = range(3)


def main() -> None:
    """The process's door: the parent, which forks one worker after another."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # ends are expected, and nobody reads their dumps
    # shared: what the worker does, and how many it has decoded, also when it cannot say so any more
    doing = mmap.mmap(-1, 1 + _FINE.size)
    with suppress(BrokenPipeError):
        os.write(1, _DONE)
        while _worked(doing):
            pass


def _worked(doing: mmap.mmap) -> bool:
    """One worker's life; whether there shall be another."""
    doing[0] = _IDLE
    parent = os.getpid()
    words_in, words_out = os.pipe()
    worker = os.fork()
    if not worker:
        os.dup2(words_out, 2)
        os.close(words_in)
        os.close(words_out)
        _work(doing, parent)
    os.close(words_out)
    words = _last_words(words_in)
    os.close(words_in)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    if not code or doing[0] == _READING:  # the end of input; or a part of an update is left in the pipe
        return False
    if doing[0] == _DECODING:
        (fine,) = _FINE.unpack_from(doing, 1)
        os.write(1, _END.pack(_ENDED, code, asked_bytes(code, words), fine))
    return True


def _last_words(fd: int) -> bytes:
    """The end of what the worker says, when it has ended."""
    words = b""
    while piece := os.read(fd, _PIECE_BYTES):
        words = (words + piece)[-_WORDS_BYTES_MAX:]
    return words


def asked_bytes(code: int, words: bytes) -> int:
    """How much memory Rust had asked for in vain when it ended the process; 0: it does not say so."""
    found = _LAST_WORDS.search(words.rpartition(_PAST)[2])
    if code != -signal.SIGABRT or found is None:
        return 0
    return min(max(int(number) for number in re.findall(rb"\d+", found[1])), (1 << 64) - 1)


def _work(doing: mmap.mmap, parent: int) -> NoReturn:
    """The worker: decodes what comes, until nothing comes any more."""
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
        os._exit(code)  # nothing of the parent's is cleaned up here


def _decode(update: bytes, careful: bool) -> None:
    """Returns, whatever Loro says about it; or ends the process."""
    if careful:
        mmap.mmap(-1, _ROOM_BYTES + _ROOM_PER_BYTE * len(update)).close()
    try:
        crdt.try_decoding(update)
    except CrdtPanic:
        os.write(2, _PAST)
    except CrdtError:  # the server meets it itself, and says so
        pass


def _request(doing: mmap.mmap) -> tuple[list[bytes], bool, bool] | None:
    """The next updates, whether to look for room first, and whether time is bounded; None at the end.

    One request comes at a time.
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
