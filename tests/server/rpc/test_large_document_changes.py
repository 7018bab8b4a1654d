"""A document that is deleted, restored, trimmed or loaded again while a call on it waits for a child."""

import asyncio
import mmap
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.document import startup
from lorogo_server.rpc import methods
from lorogo_server.sandbox import call_costs
from lorogo_server.sandbox.child_process import ChildProcesses
from tests.server.support import Probe, Writer, until
from tests.server.worlds import World

_SECONDS = 20.0
_PATCH = [{"op": "add", "path": "/map", "value": {"a": 1}}]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every document with more than three operations is large, and no call on it was short."""
    monkeypatch.setattr(call_costs, "LOOP_OPERATIONS_MAX", 3)
    monkeypatch.setattr(call_costs, "LOOP_CALL_SECONDS_MAX", -1.0)
    monkeypatch.setattr(methods, "LOOP_OPERATIONS_MAX", 3)


class Gate:
    """Holds calls back right before they wait for a child."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate, run = Gate(), ChildProcesses.run

    async def held(self: ChildProcesses, *arguments: Any, **options: Any) -> tuple[bytes, float]:
        gate.reached.set()
        await gate.opened.wait()
        return await run(self, *arguments, **options)

    monkeypatch.setattr(ChildProcesses, "run", held)
    return gate


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> Iterator[mmap.mmap]:
    """Children wait in `Replica.settled`: [0] is set while one waits, [1] lets it go on."""
    shared, settled, server = mmap.mmap(-1, 2), Replica.settled, os.getpid()

    def slow(replica: Replica) -> Any:
        if os.getpid() != server:
            shared[0] = 1
            deadline = time.monotonic() + _SECONDS
            while not shared[1] and time.monotonic() < deadline:
                os.sched_yield()
        return settled(replica)

    monkeypatch.setattr(Replica, "settled", slow)
    yield shared
    shared[1] = 1


async def written(memory: World) -> tuple[Probe, bytes, bytes]:
    """A document that reads "hello, world", and its vector and version when it read "hello"."""
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("hello"))
    early = await probe.call("version", "doc")
    await probe.accept("doc", writer.type(", world"))
    vector, frontiers = early["vector"], early["frontiers"]
    assert isinstance(vector, bytes)
    assert isinstance(frontiers, bytes)
    return probe, vector, frontiers


async def _refusal(call: "asyncio.Future[dict[str, object]]") -> Reason | str:
    """The reason of the refusal, or the answer."""
    try:
        answer = await call
    except Refused as no:
        return no.reason
    return f"generation {answer.get('generation')}, {sorted(answer)}"


_CALLS: dict[str, tuple[str, str]] = {
    "snapshot": ("sync", ""),
    "updates": ("sync", "vector"),
    "get": ("get", ""),
    "get at": ("get", "at"),
    "export": ("export", ""),
    "export at": ("export", "at"),
    "patch": ("patch", "operations"),
    "revert": ("revert", "at"),
}


def _called(name: str, probe: Probe, vector: bytes, early: bytes) -> "asyncio.Future[dict[str, object]]":
    verb, argument = _CALLS[name]
    given: dict[str, object] = {"vector": vector, "at": early, "operations": _PATCH}
    return asyncio.ensure_future(
        probe.call(verb, "doc", **{key: value for key, value in given.items() if key == argument})
    )


@pytest.mark.parametrize("name", _CALLS)
async def test_an_answer_never_mixes_two_generations(memory: World, gate: Gate, name: str) -> None:
    """A call that waited while the document was deleted and restored is `busy`; repeated, it succeeds."""
    await memory.server()
    probe, vector, early = await written(memory)
    async with asyncio.timeout(_SECONDS):
        call = _called(name, probe, vector, early)
        await gate.reached.wait()
        await probe.call("delete", "doc")
        await probe.call("restore", "doc")
        gate.opened.set()
        assert await _refusal(call) is Reason.BUSY
        again = await _called(name, probe, vector, early)
        assert again.get("generation", 1) == 1


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("name", _CALLS)
async def test_a_call_that_waits_for_a_child_sees_a_deletion(
    memory: World, gate: Gate, name: str, purge: bool
) -> None:
    """It is refused as every later call is: no answer calls a deleted document empty."""
    await memory.server()
    probe, vector, early = await written(memory)
    async with asyncio.timeout(_SECONDS):
        call = _called(name, probe, vector, early)
        await gate.reached.wait()
        await probe.call("delete", "doc", purge=purge)
        gate.opened.set()
        assert await _refusal(call) is Reason.DELETED


@pytest.mark.parametrize("name", ["snapshot", "get", "export at", "patch"])
async def test_nothing_of_an_erased_document_is_answered(
    memory: World, working: mmap.mmap, name: str
) -> None:
    """Also if the child was forked before: what it read is dropped."""
    server, _ = await memory.server()
    probe, vector, early = await written(memory)
    async with asyncio.timeout(_SECONDS):
        call = _called(name, probe, vector, early)
        await until(lambda: _set(working))
        await probe.call("delete", "doc", purge=True)
        working[1] = 1
        assert await _refusal(call) is Reason.DELETED
    nothing = server.hosts["doc"].loaded.intake.replica.version().vector
    endpoint = server.hosts["doc"].endpoint
    assert endpoint._exported is None or endpoint._exported[0] == nothing


async def test_an_answer_from_memory_in_doubt_is_dropped(memory: World, working: mmap.mmap) -> None:
    """If the document is loaded again while a child works on the old one, the call is `busy`."""
    server, _ = await memory.server()
    probe, vector, early = await written(memory)
    async with asyncio.timeout(_SECONDS):
        call = _called("get", probe, vector, early)
        await until(lambda: _set(working))
        async with server.hosts["doc"].busy:
            await startup.reload(server.hosts["doc"])
        working[1] = 1
        assert await _refusal(call) is Reason.BUSY
        assert await probe.value("doc") == {"body": "hello, world"}


async def test_updates_are_not_served_from_trimmed_history(
    memory: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a compaction trims what the updates build on while the call waits, it is `busy`."""
    await memory.server()
    probe, vector, early = await written(memory)
    async with asyncio.timeout(_SECONDS):
        call = _called("updates", probe, vector, early)
        await gate.reached.wait()
        monkeypatch.setattr(Replica, "can_serve_since", lambda *_: False)
        gate.opened.set()
        assert await _refusal(call) is Reason.BUSY


async def _set(shared: mmap.mmap) -> bool | None:
    return True if shared[0] else None
