"""Long calls to Loro, done by a forked copy of the server process on its copy of one document.

Loro holds the interpreter's lock during a call, so a thread does not help, and some calls take seconds on a
large document: the first export of a tree of 400,000 nodes 4 s, a revert of 2,000,000 pushes 70 s (0004 in
docs/decisions). The child has the document as it was when the child was forked; memory is copied on write.

    loop:   fork ─▶ serves all documents ─────────────────────────▶ the answer
    child:       └▶ closes every other file ─▶ works ─▶ pipe ─▶ ends

The loop thread forks, and it has the interpreter's lock: no other thread is inside Loro then, so none of
Loro's locks is held in the child. The child calls Loro and writes to its pipe, and nothing else: no logging,
no event loop, no clean-up. It ends by itself when its CPU seconds are over or its reader is gone.
"""

import asyncio
import gc
import os
import resource
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import NoReturn
from weakref import WeakValueDictionary

from lorogo_protocol import calls
from lorogo_protocol.calls import Refused
from lorogo_protocol.crdt import CrdtPanic
from lorogo_protocol.reasons import Reason
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

#: CPU seconds of a child
CALL_SECONDS = 60
EXPORT_SECONDS = 300  # of a whole document, which nothing can split
_CHILDREN_MAX = 2  # at once, of different documents: for calls, and as many for exports
_REST = 2  # times what a fork took, before the next one: forks take a third of the loop's time at most
_PIECE_BYTES = 1024 * 1024
_DONE, _REFUSED, _PANIC, _FAILED = b".", b"?", b"!", b"x"
_TURN_SECONDS = 30  # that a call waits for others; its caller does not wait longer
_WRITE_SECONDS = 300  # for the parent to read it; then the child ends

Work = Callable[[], bytes]
Fork = Callable[[Callable[[], Work]], Awaitable[tuple[bytes, float]]]


class ChildProcesses:
    """The children of one server.

    At most two of them make calls and two export, one of each document: a client that opens a document does
    not wait for calls, which may take a minute.
    """

    __slots__ = ("_calls", "_documents", "_exports", "_forking", "_rest_until", "_threads")

    def __init__(self) -> None:
        self._calls = asyncio.Semaphore(_CHILDREN_MAX)
        self._exports = asyncio.Semaphore(_CHILDREN_MAX)
        self._forking = asyncio.Lock()
        self._rest_until = 0.0
        self._threads = ThreadPoolExecutor(2 * _CHILDREN_MAX, "lorogo-child")  # each waits for a child
        self._documents: WeakValueDictionary[tuple[str, bool], asyncio.Lock] = WeakValueDictionary()

    async def run(
        self, document_id: str, work: Callable[[], Work], *, exports: bool = False
    ) -> tuple[bytes, float]:
        """Return the bytes that the work returns in a child, and the CPU seconds of the child.

        `exports`: the work is an export of the document, and leaves the document as it is.
        `work` is called on the loop, right before the fork, and returns what the child does. Raises Refused
        and CrdtPanic as the child does; Refused also when the child ends early, or its CPU seconds are over.
        If no process can be started, the loop makes an export; a call, which edits its copy of the document
        or checks an old version out, is refused.
        """
        async with self.turn(document_id, exports=exports) as fork:
            return await fork(work)

    @asynccontextmanager
    async def turn(self, document_id: str, *, exports: bool = False) -> AsyncIterator[Fork]:
        """Wait until the document may have a child, and keep its turn; what it gives is called as `run` is.

        Raises Refused if it has to wait for too long.
        For a caller that holds a lock of the document while the child works, and not while it waits.
        """
        lock = self._documents.setdefault((document_id, exports), asyncio.Lock())
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_TURN_SECONDS):
                    await stack.enter_async_context(lock)
                    await stack.enter_async_context(self._exports if exports else self._calls)
            except TimeoutError:
                raise Refused(Reason.BUSY, "other calls on large documents take long; ask again") from None
            yield partial(self._forked, document_id, exports)

    async def _forked(self, document_id: str, exports: bool, work: Callable[[], Work]) -> tuple[bytes, float]:
        cpu_seconds = EXPORT_SECONDS if exports else CALL_SECONDS
        async with self._forking:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._rest_until - loop.time())
            began = loop.time()
            todo = work()
            try:
                child = _Child(todo, cpu_seconds)
            except OSError as error:  # no memory, or too many processes
                log.warning("cannot fork", document=document_id, problem=str(error))
                if not exports:  # here it would edit the document itself
                    raise Refused(
                        Reason.BUSY, f"the server cannot start a process for it: {error}; ask again"
                    ) from error
                done = todo()
                return done, loop.time() - began
            self._rest_until = loop.time() + _REST * (loop.time() - began)
            reaping = loop.run_in_executor(self._threads, child.reap)
        try:
            outcome, code, took = await asyncio.shield(reaping)
        except asyncio.CancelledError:
            child.kill()
            raise
        return _answer(outcome, code, cpu_seconds), took


def _answer(outcome: bytes, code: int, cpu_seconds: int) -> bytes:
    kind, rest = outcome[:1], outcome[1:]
    if code == -signal.SIGXCPU:
        raise Refused(
            Reason.TOO_LARGE,
            f"it takes more than {cpu_seconds} s of CPU on a document of this size;"
            " export the document and do it on a replica",
        )
    if code or not kind:
        raise Refused(Reason.FAILED, f"the process that worked on it ended with code {code}; ask again")
    if kind == _DONE:
        return rest
    if kind == _REFUSED:
        facts = calls.decode(rest)
        raise Refused(Reason(str(facts["reason"])), str(facts["message"]))
    if kind == _PANIC:
        raise CrdtPanic(rest.decode(errors="replace"))
    raise Refused(Reason.FAILED, rest.decode(errors="replace"))


class _Child:
    """One child, and the end of its pipe."""

    def __init__(self, work: Work, cpu_seconds: int) -> None:
        self._reading, writing = os.pipe()
        self._lock = threading.Lock()
        self._reaped = False
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads; see above why this child does not meet their locks.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork()
        except OSError:
            os.close(self._reading)
            os.close(writing)
            raise
        if not self._pid:
            _work(work, writing, cpu_seconds)
        os.close(writing)

    def reap(self) -> tuple[bytes, int, float]:
        """Wait for the child's end; what it wrote, its exit code, and its CPU seconds."""
        pieces = []
        try:
            while piece := os.read(self._reading, _PIECE_BYTES):
                pieces.append(piece)
        finally:
            os.close(self._reading)
            # Not reaped yet, so the id is its own while `kill` uses it.
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                self._reaped = True
                _, status, usage = os.wait4(self._pid, 0)
        seconds = usage.ru_utime + usage.ru_stime
        return b"".join(pieces), os.waitstatus_to_exitcode(status), seconds

    def kill(self) -> None:
        """End it early; `reap` returns then."""
        with self._lock:
            if not self._reaped:
                os.kill(self._pid, signal.SIGKILL)


# --- the child ------------------------------------------------------------------------------------


def _work(work: Work, writing: int, cpu_seconds: int) -> NoReturn:
    code = 1
    try:
        gc.disable()  # it would write to every page
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGXCPU):
            signal.signal(number, signal.SIG_DFL)
        # The journal's lock and the connection to NATS end with the server, not with its child.
        os.closerange(3, writing)
        os.closerange(writing + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
        outcome = memoryview(_outcome(work))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_WRITE_SECONDS)
        while outcome:
            outcome = outcome[os.write(writing, outcome) :]
        code = 0
    finally:
        os._exit(code)  # nothing of the server's is cleaned up here


def _outcome(work: Work) -> bytes:
    try:
        return _DONE + work()
    except Refused as no:
        return _REFUSED + calls.encode({"reason": no.reason.value, "message": str(no)})
    except CrdtPanic as error:
        return _PANIC + str(error).encode()
    except Exception as error:  # noqa: BLE001  # the parent raises it
        return _FAILED + f"{type(error).__name__}: {error}".encode()
