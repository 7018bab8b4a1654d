"""Tasting ahead: many updates in one exchange, and only good news comes of it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks
from lorogo_protocol.position import Position
from lorogo_server import ServerSettings
from lorogo_server.intake.admission import admit
from lorogo_server.intake.decisions import (
    Accepted,
)
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.sandbox import decode_sandbox
from lorogo_server.sandbox.decode_sandbox import (
    DecodeSandbox,
    Validation,
    ValidationLane,
    validate_ahead,
)
from lorogo_server.sandbox.sandbox_process import SandboxProcess
from lorogo_server.sandbox.sandbox_worker import request
from lorogo_transport.ports import StoredMessage
from tests.server.poison import deadly
from tests.server.support import Writer
from tests.server.suspicion import Suspicious
from tests.stillness import children, stand_still


@pytest.fixture
async def sandbox() -> AsyncIterator[DecodeSandbox]:
    made = DecodeSandbox(seconds=60.0, batch_seconds=60.0)  # a busy machine must not decide
    await made.start()
    yield made
    made.stop()


class Tasting:
    """Adds updates, and waits for what is found."""

    def __init__(self, sandbox: DecodeSandbox) -> None:
        self.sandbox = sandbox
        self.woken = asyncio.Event()

    def add(self, *updates: bytes) -> list[Validation]:
        added = [self.sandbox.queue(update, self.woken.set) for update in updates]
        assert None not in added
        return [one for one in added if one is not None]

    async def known(self, added: list[Validation]) -> list[bool]:
        async with asyncio.timeout(60):
            while not all(one.is_done for one in added):
                self.woken.clear()
                await self.woken.wait()
        return [one.is_valid for one in added]


async def test_what_gathers_while_one_is_tasted_is_tasted_together(sandbox: DecodeSandbox) -> None:
    """All of it is fine, however it was portioned."""
    tasting, writer = Tasting(sandbox), Writer()
    added = tasting.add(*(writer.type("a") for _ in range(3)))
    assert await tasting.known(added) == [True] * 3
    added = tasting.add(*(writer.type("b") for _ in range(1500)))
    assert all(await tasting.known(added))


async def test_behind_what_ends_the_worker_nothing_is_known(sandbox: DecodeSandbox) -> None:
    """Updates before it are fine; it is judged alone, and updates behind it are good."""
    tasting, writer = Tasting(sandbox), Writer()
    updates = [writer.type("a"), deadly(), writer.type("b")]
    assert await tasting.known(tasting.add(*updates)) == [True, False, False]
    with pytest.raises(InvalidUpdate):
        await sandbox.validate(updates[1])
    await sandbox.validate(updates[2])
    assert await tasting.known(tasting.add(updates[2])) == [True]


@pytest.mark.parametrize("when", ["before", "under way"])
async def test_of_a_process_that_was_killed_nothing_is_known(sandbox: DecodeSandbox, when: str) -> None:
    """Those who waited go on, and the next is tasted by the one that was kept ready."""
    tasting, writer = Tasting(sandbox), Writer()
    assert sandbox.batches.process is not None
    parent = sandbox.batches.process.popen
    if when == "before":
        os.killpg(parent.pid, signal.SIGKILL)
        await asyncio.to_thread(parent.wait, 60)
        added = tasting.add(writer.type("a"))
    else:
        stand_still(parent.pid, *children(parent.pid))
        added = tasting.add(writer.type("a"))
        await asyncio.sleep(0)
        os.killpg(parent.pid, signal.SIGKILL)
    assert await tasting.known(added) == [False]
    assert await tasting.known(tasting.add(writer.type("b"))) == [True]


async def test_who_does_not_answer_is_replaced(
    sandbox: DecodeSandbox,
) -> None:
    """A wait has an end, and nothing is known then."""
    tasting, writer = Tasting(sandbox), Writer()
    assert sandbox.batches.process is not None
    silent = sandbox.batches.process
    stand_still(silent.popen.pid, *children(silent.popen.pid))
    sandbox.batches.seconds = 0.05
    assert await tasting.known(tasting.add(writer.type("a"))) == [False]
    assert sandbox.batches.process is not silent
    sandbox.batches.seconds = 60.0
    assert await tasting.known(tasting.add(writer.type("b"))) == [True]


async def test_some_are_not_tasted_ahead(sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one, and what comes while very many wait."""
    tasting = Tasting(sandbox)
    assert sandbox.queue(bytes(57_345), tasting.woken.set) is None
    monkeypatch.setattr(decode_sandbox, "_QUEUED_MAX", 2)
    tasting.add(bytes(28_000), bytes(28_000))
    assert sandbox.queue(bytes(28_000), tasting.woken.set) is None


async def test_at_the_end_no_caller_is_left_waiting(sandbox: DecodeSandbox) -> None:
    """Nothing is known of what was not begun."""
    tasting = Tasting(sandbox)
    added = tasting.add(b"one")
    alone = asyncio.ensure_future(sandbox.single.decode(b"two"))
    await asyncio.sleep(0)
    sandbox.stop()
    assert await tasting.known(added) == [False]
    assert not (await alone).is_valid


async def test_without_a_process_no_caller_is_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of an update; when a process can be started again, it decodes the next one."""
    sandbox = DecodeSandbox(seconds=60.0, batch_seconds=60.0)
    tasting = Tasting(sandbox)

    def no_room() -> SandboxProcess:
        raise OSError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(decode_sandbox, "SandboxProcess", no_room)
        assert await tasting.known(tasting.add(b"one", bytes(50_000), bytes(50_000))) == [False] * 3
    assert await tasting.known(tasting.add(b"one")) == [True]
    sandbox.stop()


# --- single updates -----------------------------------------------------------------------------------


class Order:
    """The order in which a lane without a process decodes updates of these sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lane = ValidationLane(60.0, batches=False)
        self.sizes: list[int] = []
        self.go_on: Callable[[bytes | None], None] | None = None
        monkeypatch.setattr(decode_sandbox, "SandboxProcess", lambda: self)

    def send(self, data: bytes, _seconds: float, on_reply: Callable[[bytes | None], None]) -> None:
        self.sizes.append(len(data) - len(request([b""], careful=False, bounded=True)))
        self.go_on = on_reply

    def end(self) -> int:
        return 0

    async def decode(self, *sizes: int) -> list["asyncio.Task[Validation]"]:
        tasks = [asyncio.ensure_future(self.lane.decode(bytes(size))) for size in sizes]
        for _ in range(3):
            await asyncio.sleep(0)
        return tasks

    async def finish(self) -> None:
        while self.go_on is not None:
            go_on, self.go_on = self.go_on, None
            go_on(b".")
            await asyncio.sleep(0)


async def test_the_smallest_update_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of arrival, 10 KiB would wait behind a large update of every other document."""
    order = Order(monkeypatch)
    tasks = [*await order.decode(50), *await order.decode(90, 70, 80)]
    await order.finish()
    await asyncio.gather(*tasks)
    assert order.sizes == [50, 70, 80, 90]


async def test_a_large_update_waits_for_so_many_small_ones_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eighth update is the one that waits longest."""
    order = Order(monkeypatch)
    tasks = [*await order.decode(1), *await order.decode(900, *range(10, 30))]
    await order.finish()
    await asyncio.gather(*tasks)
    assert order.sizes.index(900) == 7


async def test_a_cancelled_update_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its document is closed; the others are decoded."""
    order = Order(monkeypatch)
    first, second, third = [*await order.decode(1), *await order.decode(2, 3)]
    second.cancel()
    await asyncio.wait([second])
    await order.finish()
    await asyncio.gather(first, third)
    assert order.sizes == [1, 3]


@pytest.mark.parametrize("whole", [True, False], ids=["one message", "chunks"])
async def test_only_a_message_that_is_a_whole_update_was_tasted(whole: bool) -> None:
    """A last chunk that decodes proves nothing about all of them together."""
    sandbox = Suspicious(suspects=False)
    intake = Intake(
        Replica(lazy=True), History(), ServerSettings(), head=Position(1), deleted=False, sandboxed=True
    )
    update = Writer().type("a text")
    parts = chunks.split(update, "id", chunk_bytes_max=1000 if whole else 60, inbox="_INBOX.a")
    effects = [
        await admit(
            intake,
            StoredMessage("s", number, 1, part.data, part.headers()),
            0.0,
            validate=sandbox.validate,
            validated=True,
        )
        for number, part in enumerate(parts, 1)
    ]
    assert isinstance(effects[-1][0], Accepted)
    assert sandbox.validated == ([] if whole else [(update, False)])


# --- a load reads ahead -------------------------------------------------------------------------------


async def _stored(updates: list[bytes]) -> AsyncIterator[StoredMessage]:
    for number, update in enumerate(updates, start=1):
        yield StoredMessage("loro.wal.doc", number, number, update)


async def test_what_is_read_is_tasted_together_and_keeps_its_order(
    sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few exchanges for many updates; what is not fine, or behind it in a portion, is not called fine."""
    exchanges = 0
    send = SandboxProcess.send

    def counted(process: SandboxProcess, *arguments: Any) -> None:
        nonlocal exchanges
        exchanges += 1
        send(process, *arguments)

    monkeypatch.setattr(SandboxProcess, "send", counted)
    writer = Writer()
    updates = [writer.type("a") for _ in range(600)]
    bad = 550
    updates[bad] = deadly()
    async with asyncio.timeout(60):
        found = [one async for one in validate_ahead(_stored(updates), sandbox)]
    assert [stored.sequence for stored, _ in found] == list(range(1, 601))
    assert all(is_valid for _, is_valid in found[:512])
    assert not found[bad][1]
    assert exchanges < 10


async def test_few_bytes_are_read_ahead(sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a WAL is, only so much of it waits in memory for the sandbox."""
    monkeypatch.setattr(decode_sandbox, "_AHEAD_BYTES_MAX", 1000)
    read: list[int] = []

    async def watched() -> AsyncIterator[StoredMessage]:
        async for stored in _stored([b"x" * 300 for _ in range(20)]):
            read.append(stored.sequence)
            yield stored

    taken = 0
    async with asyncio.timeout(60):
        async for stored, _ in validate_ahead(watched(), sandbox):
            taken += 1
            assert stored.sequence == taken
            assert read[-1] - taken <= 4
    assert taken == 20


async def test_without_a_sandbox_nothing_is_read_ahead() -> None:
    found = [one async for one in validate_ahead(_stored([b"a", b"b"]), None)]
    assert [(stored.data, is_valid) for stored, is_valid in found] == [(b"a", False), (b"b", False)]
