"""Updates that may have been ACKed are not refused by limits for new ones; vouchers name them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_protocol.loro import crdt, steps
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_server import Server
from lorogo_server.recovery.reconcile import Reconciler
from lorogo_testing.memory_nats import MemoryNats
from tests.server.document.test_full import served
from tests.server.recovery.test_reconcile import WAL, World, no_passes, reconciled
from tests.server.support import QUICK, Probe, Writer, so, until

_NODES = 60
_STREAM = replace(QUICK, durability="stream")


@pytest.fixture
def lower_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lowers the limit of a new update's tree operations, as a later version of the server does."""

    def lower() -> None:
        monkeypatch.setattr(steps, "STEP_OPERATIONS", 10)
        monkeypatch.setattr(crdt, "UNSTEPPED_OPERATIONS_MAX", _NODES - 1)

    return lower


def _tree() -> bytes:
    writer = Writer()
    for _ in range(_NODES):
        writer.doc.get_tree("tree").create()
    writer.doc.commit()
    return writer.everything()


async def _nodes(probe: Probe) -> int:
    value = await probe.value("doc")
    assert isinstance(value, dict)
    return len(value.get("tree", []))


async def test_a_new_update_above_a_limit_of_work_is_refused(lower_limit: Callable[[], None]) -> None:
    """A live owner refuses it as too large; LORO_AGAIN alone changes nothing about that."""
    lower_limit()
    async with served(MemoryNats(), _STREAM) as (_, probe):
        assert (await probe.refuse("doc", _tree())).reason is Reason.TOO_LARGE
        again = chunks.split(_tree(), "again", chunk_bytes_max=100_000, inbox=probe.inbox, again=True)
        await probe.put("doc", again)
        no = await probe.answer()
        assert isinstance(no, Nack)
        assert no.reason is Reason.TOO_LARGE
        assert await _nodes(probe) == 0


async def test_a_load_takes_what_was_acked_before_a_limit_of_work_was_lowered(
    lower_limit: Callable[[], None],
) -> None:
    """It is in the WAL and was ACKed: the limits of new updates do not count for it."""
    world = MemoryNats()
    async with served(world, _STREAM) as (_, probe):
        await probe.accept("doc", _tree())
    lower_limit()
    async with served(world, _STREAM) as (_, probe):
        assert await _nodes(probe) == _NODES


async def test_a_vouched_update_is_taken_by_the_older_limits_of_work(lower_limit: Callable[[], None]) -> None:
    """A server publishes it again from a journal: it was ACKed, and the owner takes it."""
    lower_limit()
    update = _tree()
    async with served(MemoryNats(), _STREAM) as (server, probe):
        await server.context.vouchers.give("doc", [digest(update)])
        again = chunks.split(update, "again", chunk_bytes_max=100_000, inbox=probe.inbox, again=True)
        await probe.put("doc", again)
        assert isinstance(await probe.answer(), Ack)
        assert await _nodes(probe) == _NODES


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        made = World(stack, tmp_path)
        await made.begin()
        yield made


async def test_without_a_voucher_an_update_is_refused_once_and_comes_with_the_next_pass(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that started after the vouchers were sent refuses it; the journal still has it."""
    monkeypatch.setattr(Reconciler, "run", no_passes)
    await world.written(3)
    world.nats.store(WAL).remove(3)
    settings = replace(QUICK, durability="stream", document_bytes_max=1)
    async with Server(world.nats.connect("owner"), settings, clock=world.clock) as owner:
        await world.probe.start("doc")
        with monkeypatch.context() as patch:
            patch.setattr(owner.context.vouchers, "_keep", _not_started_yet)
            second = await reconciled(await world.server())
            await until(lambda: so(owner.stats()["refused"] == 1))
        kept = await world.probe.rejected.last(subjects.rejected("doc"))
        assert kept is not None
        assert kept.headers[h.REASON] == Reason.DOCUMENT_FULL.value
        assert await world.probe.value("doc") == {"body": "0 1 "}
        await reconciled(second)

        async def whole() -> bool:
            return await world.probe.value("doc") == {"body": world.writer.text}

        await until(whole)
        assert owner.stats()["refused"] == 1
        assert second.stats()["lost_for_good"] == 0


def _not_started_yet(_: str, _digests: Sequence[str]) -> None:
    pass
