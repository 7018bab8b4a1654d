"""Runs long calls to Loro in a forked child of the server, on the child's copy of one document.

Loro holds the interpreter's lock during a call, so a thread does not help, and some calls take seconds on a
large document: the first export of a tree of 400,000 nodes 4 s, a revert of 2,000,000 pushes 70 s (0004 in
docs/decisions). The child has the document as of the fork; memory is copied on write.

    loop:   fork ─▶ serves all documents ─────────────────────────▶ result
    child:       └▶ closes every other file ─▶ works ─▶ pipe ─▶ ends

The loop thread forks while it has the interpreter's lock: no other thread is inside Loro, so the child
inherits no held lock of Loro. The child only calls Loro and writes to its pipe: no logging, no event loop,
no clean-up. It ends by itself when its CPU seconds are used up or its reader is gone.
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
from enum import Enum
from functools import partial
from typing import NoReturn, Protocol
from weakref import WeakValueDictionary

from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

MERGE_SECONDS = 5
_CHILDREN_MAX = 2  # at once, of each kind
_REST = 2  # pause after a fork, in multiples of its duration: forks use at most a third of the loop's time
_PIECE_BYTES = 1024 * 1024
_DONE, _REFUSED, _PANIC, _FAILED = b".", b"?", b"!", b"x"
_TURN_SECONDS = 30  # wait for other children; the caller's own timeout is not longer
_WRITE_SECONDS = 300  # for the parent to read the result; then the child ends

Work = Callable[[], bytes]


class ChildKind(Enum):
    """Kinds of children: CPU seconds, and whether a wait for others of the kind has a deadline."""

    CALL = (60, True)
    EXPORT = (300, True)  # of a whole document; an export cannot be split
    MERGE = (MERGE_SECONDS, True)  # of an update that no server has accepted
    RELOAD = (300, False)  # merge of an accepted update, which is never refused

    def __init__(self, cpu_seconds: int, has_deadline: bool) -> None:
        self.cpu_seconds = cpu_seconds
        self.has_deadline = has_deadline


class Merge(Protocol):
    """`ChildProcesses.merge` for one document."""

    async def __call__(self, work: Work, *, bounded: bool) -> tuple[bytes, float]:
        """Return the document with an update, and the CPU seconds. Raises Refused, CrdtPanic."""
        ...


Fork = Callable[[Callable[[], Work]], Awaitable[tuple[bytes, float]]]


class ChildProcesses:
    """The child processes of one server.

    At most two children of each kind, and one of each per document: a client that opens a document does not
    wait for calls, which may take a minute.
    """

    __slots__ = ("_documents", "_forking", "_rest_until", "_slots", "_threads")

    def __init__(self) -> None:
        self._slots = {kind: asyncio.Semaphore(_CHILDREN_MAX) for kind in ChildKind}
        self._documents: WeakValueDictionary[tuple[str, ChildKind], asyncio.Lock] = WeakValueDictionary()
        self._forking = asyncio.Lock()
        self._rest_until = 0.0
        self._threads = ThreadPoolExecutor(4 * _CHILDREN_MAX, "lorogo-child")  # each waits for a child

    async def run(
        self, document_id: str, work: Callable[[], Work], kind: ChildKind = ChildKind.CALL
    ) -> tuple[bytes, float]:
        """Return the bytes that the work returns in a child, and the CPU seconds of the child.

        `work` is called on the loop right before the fork, and returns the function that the child runs.
        Raises Refused and CrdtPanic as the child does, and Refused if the child ends early or exceeds its CPU
        seconds (TOO_LARGE). If no process can be started, the loop makes an export itself, which leaves the
        document as it is; other work is refused, because it edits its copy of the document or checks out an
        old version.
        """
        async with self.turn(document_id, kind) as fork:
            return await fork(work)

    async def merge(self, document_id: str, work: Work, *, bounded: bool) -> tuple[bytes, float]:
        """Return the document with an update. `bounded`: no server has accepted the update."""
        return await self.run(document_id, lambda: work, ChildKind.MERGE if bounded else ChildKind.RELOAD)

    @asynccontextmanager
    async def turn(self, document_id: str, kind: ChildKind = ChildKind.CALL) -> AsyncIterator[Fork]:
        """Wait until the document may have a child, and yield a function that forks it as `run` does.

        Raises Refused after a wait of `_TURN_SECONDS`, unless an accepted update waits.
        For a caller that holds a lock of the document while the child works, but not while it waits.
        """
        lock = self._documents.setdefault((document_id, kind), asyncio.Lock())
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_TURN_SECONDS if kind.has_deadline else None):
                    await stack.enter_async_context(lock)
                    await stack.enter_async_context(self._slots[kind])
            except TimeoutError:
                raise Refused(Reason.BUSY, "other calls on large documents take long; retry") from None
            yield partial(self._forked, document_id, kind)

    async def _forked(
        self, document_id: str, kind: ChildKind, work: Callable[[], Work]
    ) -> tuple[bytes, float]:
        async with self._forking:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._rest_until - loop.time())
            began = loop.time()
            todo = work()
            try:
                child = _Child(todo, kind.cpu_seconds)
            except OSError as error:  # no memory, or too many processes
                log.warning("cannot fork", document=document_id, problem=str(error))
                if kind is not ChildKind.EXPORT:  # in this process the work would edit the served document
                    raise Refused(
                        Reason.BUSY, f"the server cannot start a process for the call: {error}; retry"
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
        return _answer(outcome, code, kind.cpu_seconds), took


def _answer(outcome: bytes, code: int, cpu_seconds: int) -> bytes:
    kind, rest = outcome[:1], outcome[1:]
    if code == -signal.SIGXCPU:
        raise Refused(
            Reason.TOO_LARGE,
            f"the call takes more than {cpu_seconds} s of CPU on a document of this size;"
            " export the document and do the work on a replica",
        )
    if code or not kind:
        raise Refused(Reason.FAILED, f"the process of the call ended with code {code}; retry")
    if kind == _DONE:
        return rest
    if kind == _REFUSED:
        facts = calls.decode(rest)
        raise Refused(Reason(str(facts["reason"])), str(facts["message"]))
    if kind == _PANIC:
        raise CrdtPanic(rest.decode(errors="replace"))
    raise Refused(Reason.FAILED, rest.decode(errors="replace"))


class _Child:
    """One child process, and the reading end of its pipe."""

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
        """Wait until the child ends; return its output, its exit code and its CPU seconds."""
        pieces = []
        try:
            while piece := os.read(self._reading, _PIECE_BYTES):
                pieces.append(piece)
        finally:
            os.close(self._reading)
            # Not reaped yet, so the process id stays valid while `kill` uses it.
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            with self._lock:
                self._reaped = True
                _, status, usage = os.wait4(self._pid, 0)
        seconds = usage.ru_utime + usage.ru_stime
        return b"".join(pieces), os.waitstatus_to_exitcode(status), seconds

    def kill(self) -> None:
        """Kill the child, so that `reap` returns."""
        with self._lock:
            if not self._reaped:
                os.kill(self._pid, signal.SIGKILL)


# --- the child ------------------------------------------------------------------------------------


def _work(work: Work, writing: int, cpu_seconds: int) -> NoReturn:
    code = 1
    try:
        gc.disable()  # a collection would write to, and so copy, every page
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
        os._exit(code)  # skip the server's cleanup handlers


def _outcome(work: Work) -> bytes:
    try:
        return _DONE + work()
    except Refused as no:
        return _REFUSED + calls.encode({"reason": no.reason.value, "message": str(no)})
    except CrdtPanic as error:
        return _PANIC + str(error).encode()
    except Exception as error:  # noqa: BLE001  # the parent raises it
        return _FAILED + f"{type(error).__name__}: {error}".encode()
