"""Long calls to Loro run in a forked child: what comes back, what it may use, and how it ends."""

import asyncio
import os
import signal
import socket

import pytest

from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.sandbox import child_process
from lorogo_server.sandbox.child_process import ChildKind, ChildProcesses

_SECONDS = 30


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Is set when a child was forked."""
    event, fork = asyncio.Event(), os.fork

    def forking() -> int:
        if pid := fork():
            event.set()
        return pid

    monkeypatch.setattr(os, "fork", forking)
    return event


async def test_the_loop_runs_while_a_child_works(forked: asyncio.Event) -> None:
    """The loop runs other work while the child waits, and the child's bytes come back whole."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    kept = os.dup2(reading, 2**9)  # closed in the child, as every file is

    def work() -> bytes:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.read(kept, 1)
        signal.sigtimedwait([signal.SIGUSR1], _SECONDS)
        return bytes(3_000_000)

    pids = list[int]()

    class Noted(child_process._Child):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            pids.append(self._pid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_process, "_Child", Noted)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # the child inherits it
        try:
            children = ChildProcesses()
            running = asyncio.ensure_future(children.run("doc", lambda: work))
            async with asyncio.timeout(_SECONDS):
                await forked.wait()
                await asyncio.sleep(0)
                assert not running.done()
                os.kill(pids[0], signal.SIGUSR1)
                assert (await running)[0] == bytes(3_000_000)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            for file in (reading, writing, kept):
                os.close(file)


async def test_a_child_holds_no_connection_of_the_server(forked: asyncio.Event) -> None:
    """The other end of a connection sees its end when the server closes it, although a child still works."""
    ours, theirs = socket.socketpair()
    children = ChildProcesses()

    def work() -> bytes:
        signal.pause()
        return b""

    running = asyncio.ensure_future(children.run("doc", lambda: work))
    try:
        async with asyncio.timeout(_SECONDS):
            await forked.wait()
            ours.close()
            theirs.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        theirs.close()


async def test_what_a_child_raises_is_raised_by_the_call() -> None:
    """A refusal keeps its reason and sentence, a panic stays a panic, and other errors are `failed`."""
    children = ChildProcesses()

    def refuses() -> bytes:
        raise Refused(Reason.UNKNOWN_VERSION, "no such version")

    def panics() -> bytes:
        raise CrdtPanic("poisoned")

    def fails() -> bytes:
        raise ValueError("odd")

    with pytest.raises(Refused, match="no such version") as refused:
        await children.run("doc", lambda: refuses)
    assert refused.value.reason is Reason.UNKNOWN_VERSION
    with pytest.raises(CrdtPanic, match="poisoned"):
        await children.run("doc", lambda: panics)
    with pytest.raises(Refused, match="ValueError: odd") as failed:
        await children.run("doc", lambda: fails)
    assert failed.value.reason is Reason.FAILED


@pytest.mark.parametrize(("number", "reason"), [("SIGXCPU", "too-large"), ("SIGABRT", "failed")])
async def test_a_child_that_ends_early_is_refused(number: str, reason: str) -> None:
    """Beyond its CPU seconds a call is `too-large`; if native code ends it, `failed`."""

    def work() -> bytes:
        os.kill(os.getpid(), signal.Signals[number])
        return b"not reached"

    with pytest.raises(Refused) as refused:
        await ChildProcesses().run("doc", lambda: work)
    assert refused.value.reason.value == reason


async def test_a_cancelled_call_ends_its_child(forked: asyncio.Event) -> None:
    """The child of a cancelled call is killed and reaped."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    codes = list[int]()

    class Noted(child_process._Child):
        def reap(self) -> tuple[bytes, int, float]:
            outcome = super().reap()
            codes.append(outcome[1])
            loop.call_soon_threadsafe(ended.set)
            return outcome

    def work() -> bytes:
        signal.pause()
        return b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_process, "_Child", Noted)
        children = ChildProcesses()
        running = asyncio.ensure_future(children.run("doc", lambda: work))
        async with asyncio.timeout(_SECONDS):
            await forked.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await ended.wait()
    assert codes == [-signal.SIGKILL]


async def test_without_a_fork_the_loop_exports_and_makes_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no process can be started, the loop makes exports; calls are `busy`: they edit a child's copy."""

    def no_fork() -> int:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", no_fork)
    children, made = ChildProcesses(), list[str]()

    def call() -> bytes:
        made.append("call")
        return b"done"

    done, _ = await children.run("doc", lambda: lambda: b"done", ChildKind.EXPORT)
    assert done == b"done"
    with pytest.raises(Refused, match="too many processes") as refused:
        await children.run("doc", lambda: call)
    assert refused.value.reason is Reason.BUSY
    assert not made


async def test_a_call_does_not_wait_for_others_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the children of others are slow, the call is refused as `busy`, and the next one has its turn."""
    monkeypatch.setattr(child_process, "_TURN_SECONDS", 0.01)
    children = ChildProcesses()
    async with children.turn("doc"):
        with pytest.raises(Refused) as refused:
            await children.run("doc", lambda: lambda: b"not reached")
    assert refused.value.reason is Reason.BUSY
    assert (await children.run("doc", lambda: lambda: b"done"))[0] == b"done"
