"""Calls on a large document: a child process does them, and other documents are served meanwhile."""

import asyncio
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loro import LoroDoc

from lorogo_protocol.loro.crdt import CrdtPanic, Replica
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.document.host import Host
from lorogo_server.rpc import execution, methods
from lorogo_server.sandbox import call_costs
from lorogo_server.sandbox.child_process import ChildKind, ChildProcesses
from lorogo_server.values import document_value
from tests.server.support import Probe, Writer, until
from tests.server.worlds import World

_SECONDS = 20.0


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every document with more than three operations is large, and no call on it was short."""
    monkeypatch.setattr(call_costs, "LOOP_OPERATIONS_MAX", 3)
    monkeypatch.setattr(call_costs, "LOOP_CALL_SECONDS_MAX", -1.0)


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], set[int]]:
    """The processes in which Loro exported, reverted, read or checked out a whole document."""
    file = tmp_path / "pids"
    file.touch()

    def noting(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def noted(*arguments: object, **options: object) -> object:
            with file.open("a") as to:
                to.write(f"{os.getpid()}\n")
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)

    for name in ("snapshot", "shallow_snapshot", "fork", "revert_to", "check_out", "write_as"):
        noting(Replica, name)
    noting(document_value, "roots_of")
    return lambda: {int(line) for line in file.read_text().split()}


async def written(memory: World) -> tuple[Probe, bytes]:
    """A document that reads "hello, world", and its version when it read "hello"."""
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("hello"))
    early = (await probe.call("version", "doc"))["frontiers"]
    assert isinstance(early, bytes)
    await probe.accept("doc", writer.type(", world"))
    return probe, early


async def test_no_call_works_on_a_large_document_on_the_loop(
    memory: World, pids: Callable[[], set[int]]
) -> None:
    """Reading, exporting, forking, patching, reverting, compacting and deleting it happen in children."""
    await memory.server()
    probe, early = await written(memory)
    before = await probe.call("version", "doc")
    assert await probe.value("doc") == {"body": "hello, world"}
    assert (await probe.call("get", "doc", paths=["$.body"]))["matches"] == [["hello, world"]]
    assert (await probe.call("get", "doc", at=early))["value"] == {"body": "hello"}
    synced = await probe.call("sync", "doc")
    assert synced["mode"] == "snapshot"
    assert (synced["frontiers"], synced["sequence"]) == (before["frontiers"], before["sequence"])
    assert _text(synced["payload"]) == "hello, world"
    assert _text((await probe.call("export", "doc", at=early))["payload"]) == "hello"
    await probe.call("fork", "doc", to="copy")
    assert (await probe.call("version", "doc"))["vector"] == before["vector"]  # none of them edits it
    await probe.call("patch", "doc", operations=[{"op": "replace", "path": "/body", "value": "bye"}])
    await probe.call("revert", "doc", at=early)
    await probe.call("compact", "doc")
    assert await probe.value("doc") == {"body": "hello"}
    await probe.call("delete", "doc")
    assert os.getpid() not in pids()
    assert len(pids()) >= 10
    await probe.call("restore", "doc")
    assert await probe.value("doc") == {"body": "hello"}


def _text(snapshot: object) -> str:
    assert isinstance(snapshot, bytes)
    doc = LoroDoc()
    doc.import_(snapshot)
    return str(doc.get_text("body").to_string())


async def test_other_documents_are_served_while_a_child_works(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of another document is ACKed before the export of a large one ends."""
    await memory.server()
    probe, _ = await written(memory)
    await probe.start("neighbour")
    going = mmap.mmap(-1, 1)  # shared with the child
    snapshot = Replica.snapshot

    def slow(replica: Replica) -> bytes:
        deadline = time.monotonic() + _SECONDS
        while not going[0] and time.monotonic() < deadline:
            os.sched_yield()
        return snapshot(replica)

    monkeypatch.setattr(Replica, "snapshot", slow)
    exporting = asyncio.ensure_future(probe.call("export", "doc"))
    async with asyncio.timeout(_SECONDS):
        await probe.accept("neighbour", Writer().type("x"))
        assert not exporting.done()
        going[0] = 1
        assert _text((await exporting)["payload"]) == "hello, world"


async def test_two_patches_by_children_have_different_peers(memory: World) -> None:
    """A forked process inherits the state of random generators, and yet draws a peer id of its own."""
    server, _ = await memory.server()
    probe, _ = await written(memory)
    for number in range(3):
        operations = [{"op": "add", "path": f"/map{number}", "value": {"a": number}}]
        await probe.call("patch", "doc", operations=operations)
    replica = server.hosts["doc"].loaded.intake.replica
    assert len(replica.doc.oplog_vv.sub_iter(LoroDoc().oplog_vv)) == 4


async def test_refusals_of_children_say_what_is_wrong(memory: World) -> None:
    """A patch that fails, a wrong path and an unknown version have the reasons that small documents give."""
    await memory.server()
    probe, _ = await written(memory)
    wrong: list[tuple[str, dict[str, object], Reason]] = [
        ("patch", {"operations": [{"op": "remove", "path": "/none"}]}, Reason.PATCH_FAILED),
        ("get", {"paths": ["$["]}, Reason.INVALID_REQUEST),
        ("get", {"at": b"\x01\x07\x09"}, Reason.UNKNOWN_VERSION),
        ("revert", {"at": b"\x01\x07\x09"}, Reason.UNKNOWN_VERSION),
        ("export", {"at": b"\x01\x07\x09"}, Reason.UNKNOWN_VERSION),
    ]
    for verb, arguments, reason in wrong:
        with pytest.raises(Refused) as refused:
            await probe.call(verb, "doc", **arguments)
        assert refused.value.reason is reason, verb


async def test_a_panic_over_an_old_version_does_not_reload_the_document(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's copy is broken, and not the document: the version is refused as on small documents."""
    server, _ = await memory.server()
    probe, early = await written(memory)
    replica = server.hosts["doc"].loaded.intake.replica

    def panics(_: Replica, __: bytes) -> None:
        raise CrdtPanic("checked out")

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "check_out", panics)
        patch.setattr(Replica, "revert_to", panics)
        for verb in ("get", "export", "revert"):
            with pytest.raises(Refused) as refused:
                await probe.call(verb, "doc", at=early)
            assert refused.value.reason is Reason.UNKNOWN_VERSION, verb
    assert await probe.value("doc") == {"body": "hello, world"}
    assert server.hosts["doc"].loaded.intake.replica is replica


async def test_a_patch_of_a_large_document_checks_its_version(memory: World) -> None:
    """`if_frontiers` is compared when the child is forked."""
    await memory.server()
    probe, early = await written(memory)
    operations = [{"op": "replace", "path": "/body", "value": "bye"}]
    with pytest.raises(Refused) as refused:
        await probe.call("patch", "doc", operations=operations, if_frontiers=early)
    assert refused.value.reason is Reason.CONFLICT


async def test_newcomers_of_a_large_document_share_an_export(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that sync at once make one child export."""
    await memory.server()
    probe, _ = await written(memory)
    forks = list[int]()
    fork = os.fork

    def counted() -> int:
        forks.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    async with asyncio.timeout(_SECONDS):
        synced = await asyncio.gather(*(probe.call("sync", "doc") for _ in range(5)))
    assert {one["mode"] for one in synced} == {"snapshot"}
    assert len(forks) == 1


async def test_without_a_fork_no_call_changes_a_large_document(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no process can be started, reverts, patches and reads are refused, and the document stays."""
    server, _ = await memory.server()
    probe, early = await written(memory)
    before = await probe.call("version", "doc")

    def no_fork() -> int:
        raise BlockingIOError("too many processes")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", no_fork)
        calls: list[tuple[str, dict[str, object]]] = [
            ("get", {}),
            ("get", {"at": early}),
            ("export", {"at": early}),
            ("patch", {"operations": [{"op": "replace", "path": "/body", "value": "bye"}]}),
            ("revert", {"at": early}),
        ]
        for verb, arguments in calls:
            with pytest.raises(Refused) as refused:
                await probe.call(verb, "doc", **arguments)
            assert refused.value.reason is Reason.BUSY, verb
        assert _text((await probe.call("sync", "doc"))["payload"]) == "hello, world"
        await probe.call("compact", "doc")
    assert server.hosts["doc"].loaded.intake.replica.version().vector == before["vector"]
    assert await probe.value("doc") == {"body": "hello, world"}


async def test_a_document_is_served_while_its_compaction_waits_for_other_exports(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its updates are ACKed although exports of two other documents do not end."""
    server, _ = await memory.server()
    probe, _ = await written(memory)
    writer = Writer()
    for name in ("one", "two"):
        await probe.start(name)
        await probe.accept(name, Writer().type("large enough"))
    going = mmap.mmap(-1, 1)  # shared with the children
    snapshot = Replica.snapshot

    def slow(replica: Replica) -> bytes:
        deadline = time.monotonic() + _SECONDS
        while not going[0] and time.monotonic() < deadline:
            os.sched_yield()
        return snapshot(replica)

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "snapshot", slow)
        exporting = [asyncio.ensure_future(probe.call("export", name)) for name in ("one", "two")]
        exports = server.context.children._slots[ChildKind.EXPORT]

        async def none_left() -> bool:
            return exports.locked()

        async def waits() -> bool:
            return server.hosts["doc"].compacting.locked()

        await until(none_left)
        compacting = asyncio.ensure_future(probe.call("compact", "doc"))
        await until(waits)
        async with asyncio.timeout(_SECONDS):
            await probe.accept("doc", writer.type("x"))
            assert not any(one.done() for one in (*exporting, compacting))
            going[0] = 1
            await asyncio.gather(*exporting, compacting)


@pytest.mark.parametrize(("verb", "old"), [("get", False), ("get", True), ("export", True)])
async def test_the_same_call_is_made_once_at_a_time(
    memory: World, monkeypatch: pytest.MonkeyPatch, verb: str, old: bool
) -> None:
    """A client that asks again after some silence gets the answer of the child that works on it already."""
    server, _ = await memory.server()
    probe, early = await written(memory)
    asked, forks, both_asked = list[object](), list[str](), asyncio.Event()
    run, shared = ChildProcesses.run, execution.shared

    async def counted(
        self: ChildProcesses, name: str, *arguments: Any, **options: Any
    ) -> tuple[bytes, float]:
        forks.append(name)
        await both_asked.wait()
        return await run(self, name, *arguments, **options)

    async def noted(host: Host, key: tuple[object, ...], start: Any) -> Any:
        asked.append(key)
        if len(asked) == 2:
            both_asked.set()
        return await shared(host, key, start)

    monkeypatch.setattr(ChildProcesses, "run", counted)
    monkeypatch.setattr(methods, "shared", noted)
    options = {"at": early} if old else {}
    async with asyncio.timeout(_SECONDS):
        first, second = await asyncio.gather(*(probe.call(verb, "doc", **options) for _ in range(2)))
    assert first == second
    assert forks == ["doc"]
    assert not server.hosts["doc"].shared_calls
