"""A message on its way into a document: other documents go on while it is validated and worked out."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loro import LoroDoc

from lorogo_protocol.loro import operation_ids, steps
from lorogo_protocol.loro.crdt import Applied, CrdtPanic, Replica, UnclearPanic, Unready
from lorogo_protocol.messages import chunks
from lorogo_protocol.position import Position
from lorogo_server import Server
from lorogo_server.intake.admission import admit
from lorogo_server.intake.decisions import (
    Accepted,
    Poisoned,
)
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox, skip_validation
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import StoredMessage
from tests.server.support import QUICK, Probe, Writer
from tests.server.worlds import World

_STEPS = 20


@pytest.fixture
def long_update(monkeypatch: pytest.MonkeyPatch) -> StoredMessage:
    """A message with an update that is worked out in many steps."""
    monkeypatch.setattr(steps, "STEP_OPERATIONS", 100)
    update = Writer().type("x" * (_STEPS * 100 + 1))
    (part,) = chunks.split(update, "id", chunk_bytes_max=100_000)
    return StoredMessage("s", 1, 1, part.data, part.headers())


def _intake() -> Intake:
    return Intake(Replica(lazy=True), History(), QUICK, head=Position(1), deleted=False)


async def test_others_run_between_two_steps_of_an_import(long_update: StoredMessage) -> None:
    """Each step returns to the event loop; the effects follow the last one."""
    intake, turns, done = _intake(), 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    (effect,) = await admit(intake, long_update, 0.0, validate=skip_validation)
    done = True
    await beside
    assert isinstance(effect, Accepted)
    assert turns >= _STEPS
    assert not intake.replica.is_due
    assert intake.first_needed() is None


async def test_others_run_between_an_import_and_its_first_step(
    long_update: StoredMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import into the history and the first step may each take long."""
    events, walk = list[str](), steps.walk

    def walked(doc: LoroDoc, step: int) -> Iterator[None]:
        events.append("step")
        yield from walk(doc, step)

    monkeypatch.setattr(steps, "walk", walked)
    intake = _intake()
    imported = intake.replica.apply

    def applied(*arguments: Any, **options: Any) -> Applied | Unready:
        events.append("import")
        asyncio.get_running_loop().call_soon(events.append, "other")
        return imported(*arguments, **options)

    monkeypatch.setattr(intake.replica, "apply", applied)
    await admit(intake, long_update, 0.0, validate=skip_validation)
    assert events == ["import", "other", "step"]


async def test_a_panic_in_a_step_refuses_the_update(
    long_update: StoredMessage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a panic inside the import does: nothing is ACKed, and the document is loaded again."""

    def panics(_: LoroDoc, step: int) -> None:
        raise CrdtPanic("forged")

    monkeypatch.setattr(steps, "walk", panics)
    (effect,) = await admit(_intake(), long_update, 0.0, validate=skip_validation)
    assert isinstance(effect, Poisoned)
    assert effect.refused.sequences == (1,)


async def test_a_repetition_is_not_refused_for_a_panic_over_another_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reconciliation leaves out what an owner refused as invalid: an update that was ACKed must not be."""
    intake, update = _intake(), Writer().type("x" * 20_000)

    def sent(sequence: int, log_id: str) -> StoredMessage:
        (part,) = chunks.split(update, log_id, chunk_bytes_max=100_000)
        return StoredMessage("s", sequence, sequence, part.data, part.headers())

    def panics(_: Replica) -> None:
        raise CrdtPanic("a forged update is in the history")

    (first,) = await admit(intake, sent(1, "one"), 0.0, validate=skip_validation)
    assert isinstance(first, Accepted)
    monkeypatch.setattr(Replica, "_steps", panics)
    monkeypatch.setattr(operation_ids, "contradicts", lambda *_, **__: None)  # too many peers to compare
    (again,) = await admit(intake, sent(2, "another"), 0.0, validate=skip_validation)
    assert isinstance(again, Accepted)
    assert not again.new


@pytest.mark.parametrize("length", [1, 300_000], ids=["behind its import", "before its import"])
async def test_no_update_is_refused_for_a_panic_that_may_be_over_another(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """Several updates wait to be worked out, and Loro panics: the host loads the document again."""
    intake, writer = _intake(), Writer()

    def sent(sequence: int, text: str) -> StoredMessage:
        (part,) = chunks.split(writer.type(text), f"id-{sequence}", chunk_bytes_max=1_000_000)
        return StoredMessage("s", sequence, sequence, part.data, part.headers())

    def panics(_: Replica) -> None:
        raise CrdtPanic("a forged update is in the history")

    (first,) = await admit(intake, sent(1, "x"), 0.0, validate=skip_validation)
    assert isinstance(first, Accepted)
    monkeypatch.setattr(Replica, "_steps", panics)
    monkeypatch.setattr(Replica, "is_due", property(lambda _: True))
    with pytest.raises(UnclearPanic):
        await admit(intake, sent(2, "y" * length), 0.0, validate=skip_validation)


async def test_a_document_is_loaded_again_when_any_update_may_be_forged(memory: World) -> None:
    """Nothing that was ACKed is refused, and edits go on: a load tries every update by itself."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("before "))
    host = server.hosts["doc"]
    real, broken = Replica._steps, host.loaded.intake.replica

    def steps_of(replica: Replica) -> Iterator[None]:
        if replica is broken:
            raise CrdtPanic("a forged update is in the history")
        yield from real(replica)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replica, "_steps", steps_of)
        await probe.accept("doc", writer.type("x" * 300_000))
        assert host.loaded.intake.replica is not broken
        await probe.accept("doc", writer.type(" after"))
    assert await probe.value("doc") == {"body": writer.text}


async def test_an_update_over_which_loro_panics_once_is_accepted(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loro panics over honest updates of trees in one order and not in another: the load tries it again."""
    await memory.server()
    probe, writer, panics = memory.probe, Writer(), [CrdtPanic("a parent is deleted")]
    await probe.start("doc")
    update, apply = writer.type("hello"), Replica.apply

    def once(replica: Replica, payload: bytes, *others: Any, **options: Any) -> Applied | Unready:
        if payload == update and panics:
            raise panics.pop()
        return apply(replica, payload, *others, **options)

    monkeypatch.setattr(Replica, "apply", once)
    await probe.accept("doc", update)
    assert not panics
    assert await probe.value("doc") == {"body": "hello"}


class _Waiting(DecodeSandbox):
    """Waits for a word before it answers about an update that is above the size of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def validate(self, update: bytes, *, accepted: bool = False, bounded: bool = False) -> None:
        assert bounded
        self.asked.set()
        async with asyncio.timeout(60):
            await self.go_on.wait()


async def test_other_documents_are_served_while_a_large_update_is_validated(tmp_path: Path) -> None:
    """The sandbox decodes it beside the event loop, and small updates have a sandbox of their own."""
    nats, sandbox = MemoryNats(), _Waiting()
    serving = Server(nats.connect("server"), QUICK, data=tmp_path, sandbox=sandbox)
    async with Probe(nats.connect("probe")) as probe, serving:
        await probe.start("large")
        await probe.start("other")
        large = probe.split(Writer().type("x" * 60_000))
        await probe.put("large", large)
        async with asyncio.timeout(60):
            await sandbox.asked.wait()
        accepted = await probe.accept("other", Writer().type("small"))
        assert accepted.log_id != large[0].log_id
        sandbox.go_on.set()
        assert (await probe.answer()).log_id == large[0].log_id
