"""Tasting ahead: many updates in one exchange, and only good news comes of it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.loro.crdt import Replica
from lorogo_protocol.messages import chunks
from lorogo_protocol.position import Position
from lorogo_server import ServerSettings
from lorogo_server.intake.admission import admit
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import Accepted, Intake
from lorogo_server.sandbox import batch_validation
from lorogo_server.sandbox.batch_validation import BatchedUpdate, BatchValidation
from lorogo_server.sandbox.decode_sandbox import (
    DecodeSandbox,
    SandboxProcess,
    ValidationBatch,
    ValidationThread,
)
from lorogo_transport.ports import StoredMessage
from tests.server.poison import deadly
from tests.server.support import Writer
from tests.server.suspicion import Suspicious
from tests.stillness import children, stand_still


@pytest.fixture
def sandbox() -> Iterator[DecodeSandbox]:
    made = DecodeSandbox(seconds=60.0)  # a busy machine must not decide
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_validation, "_SECONDS", 60.0)


class Tasting:
    """Adds updates, and waits for what is found."""

    def __init__(self, sandbox: DecodeSandbox) -> None:
        self.ahead = BatchValidation(sandbox)
        self.woken = asyncio.Event()

    def add(self, *updates: bytes) -> list[BatchedUpdate]:
        added = [self.ahead.add(update, self.woken.set) for update in updates]
        assert None not in added
        return [one for one in added if one is not None]

    async def known(self, added: list[BatchedUpdate]) -> list[bool]:
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
    assert len({id(one.batch) for one in added}) > 2
    assert all(await tasting.known(added))


async def test_behind_what_ends_the_worker_nothing_is_known(sandbox: DecodeSandbox) -> None:
    """Updates before it are fine; it is judged alone, and updates behind it are good."""
    tasting, writer = Tasting(sandbox), Writer()
    updates = [writer.type("a"), deadly(), writer.type("b")]
    assert await tasting.known(tasting.add(*updates)) == [True, False, False]
    with pytest.raises(InvalidUpdate):
        sandbox.validate(updates[1])
    sandbox.validate(updates[2])
    assert await tasting.known(tasting.add(updates[2])) == [True]


async def test_who_tastes_at_once_hears_what_was_under_way_first(sandbox: DecodeSandbox) -> None:
    """The answers of the process stay in order."""
    tasting, writer = Tasting(sandbox), Writer()
    added = tasting.add(writer.type("a"))
    await asyncio.sleep(0)  # it is under way now
    assert [one.is_done for one in added] == [False]
    with pytest.raises(InvalidUpdate):
        sandbox.validate(deadly())
    assert [one.is_done and one.is_valid for one in added] == [True]
    assert await tasting.known(tasting.add(writer.type("b"))) == [True]


@pytest.mark.parametrize("when", ["before", "under way"])
async def test_of_a_process_that_was_killed_nothing_is_known(sandbox: DecodeSandbox, when: str) -> None:
    """Those who waited go on, and the next is tasted by the one that was kept ready."""
    tasting, writer = Tasting(sandbox), Writer()
    sandbox.validate(b"")
    assert sandbox.process is not None
    parent = sandbox.process.popen
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
    sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait has an end, and nothing is known then."""
    tasting, writer = Tasting(sandbox), Writer()
    sandbox.validate(b"")
    assert sandbox.process is not None
    silent = sandbox.process
    stand_still(silent.popen.pid, *children(silent.popen.pid))
    monkeypatch.setattr(batch_validation, "_SECONDS", 0.05)
    assert await tasting.known(tasting.add(writer.type("a"))) == [False]
    assert sandbox.process is not silent
    monkeypatch.setattr(batch_validation, "_SECONDS", 60.0)
    assert await tasting.known(tasting.add(writer.type("b"))) == [True]


async def test_some_are_not_tasted_ahead(sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one; what comes while very many wait; and any, where no process runs."""
    tasting = Tasting(sandbox)
    assert tasting.ahead.add(bytes(57_345), tasting.woken.set) is None
    monkeypatch.setattr(batch_validation, "_BATCHES_MAX", 1)
    tasting.add(bytes(28_000), bytes(28_000))
    assert tasting.ahead.add(bytes(28_000), tasting.woken.set) is None
    tasting.ahead.close()
    assert BatchValidation(Suspicious(suspects=True)).add(b"", tasting.woken.set) is None


async def test_at_the_end_no_caller_is_left_waiting(sandbox: DecodeSandbox) -> None:
    """Nothing is known of what was not begun."""
    tasting = Tasting(sandbox)
    added = tasting.add(b"one")
    tasting.ahead.close()
    assert await tasting.known(added) == [False]


@pytest.mark.parametrize("whole", [True, False], ids=["one message", "chunks"])
async def test_only_a_message_that_is_a_whole_update_was_tasted(whole: bool) -> None:
    """A last chunk that decodes proves nothing about all of them together."""
    sandbox = Suspicious(suspects=False)
    lane = ValidationThread(sandbox)
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
            validate=lane.validate,
            validated=True,
        )
        for number, part in enumerate(parts, 1)
    ]
    lane.close()
    assert isinstance(effects[-1][0], Accepted)
    assert sandbox.validated == ([] if whole else [(update, False)])


def test_what_is_tasted_ahead_takes_no_time_of_what_is_tasted_now(sandbox: DecodeSandbox) -> None:
    """A portion that takes long ends its process; the deadly update is asked of the next, and refused."""
    process = sandbox.process
    assert process is not None
    portion = ValidationBatch()
    process._batch, process.due = portion, 0.0  # long overdue: no answer
    with pytest.raises(InvalidUpdate):
        sandbox.validate(deadly())
    assert (portion.done, portion.valid_count) == (True, 0)
    assert sandbox.process is not process


# --- a load reads ahead -------------------------------------------------------------------------------


async def _stored(updates: list[bytes]) -> AsyncIterator[StoredMessage]:
    for number, update in enumerate(updates, start=1):
        yield StoredMessage("loro.wal.doc", number, number, update)


async def test_what_is_read_is_tasted_together_and_keeps_its_order(
    sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few exchanges for many updates; what is not fine, or behind it in a portion, is not called fine."""
    exchanges = 0
    begin = SandboxProcess.begin

    def counted(process: SandboxProcess, portion: ValidationBatch, deadline: float) -> None:
        nonlocal exchanges
        exchanges += 1
        begin(process, portion, deadline)

    monkeypatch.setattr(SandboxProcess, "begin", counted)
    writer = Writer()
    updates = [writer.type("a") for _ in range(600)]
    bad = 550
    updates[bad] = deadly()
    async with asyncio.timeout(60):
        found = [
            one async for one in batch_validation.validate_ahead(_stored(updates), BatchValidation(sandbox))
        ]
    assert [stored.sequence for stored, _ in found] == list(range(1, 601))
    assert all(is_valid for _, is_valid in found[:512])
    assert not found[bad][1]
    assert exchanges < 10


async def test_few_bytes_are_read_ahead(sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a WAL is, only so much of it waits in memory for the sandbox."""
    monkeypatch.setattr(batch_validation, "_AHEAD_BYTES_MAX", 1000)
    read: list[int] = []

    async def watched() -> AsyncIterator[StoredMessage]:
        async for stored in _stored([b"x" * 300 for _ in range(20)]):
            read.append(stored.sequence)
            yield stored

    taken = 0
    async with asyncio.timeout(60):
        async for stored, _ in batch_validation.validate_ahead(watched(), BatchValidation(sandbox)):
            taken += 1
            assert stored.sequence == taken
            assert read[-1] - taken <= 4
    assert taken == 20


async def test_without_a_sandbox_nothing_is_read_ahead() -> None:
    found = [one async for one in batch_validation.validate_ahead(_stored([b"a", b"b"]), None)]
    assert [(stored.data, is_valid) for stored, is_valid in found] == [(b"a", False), (b"b", False)]
