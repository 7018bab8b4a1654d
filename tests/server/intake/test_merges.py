"""A merge that may take long runs in a child process, and is refused if it takes too long."""

import random
import string
from dataclasses import replace

import pytest

from lorogo_client import State
from lorogo_protocol.loro.crdt import CrdtPanic, Replica
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server
from lorogo_server.document.quarantine import Quarantine
from lorogo_server.intake import admission
from lorogo_server.sandbox.child_process import ChildProcesses, Work
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, client_of, until_state
from tests.server.document.test_full import served
from tests.server.support import QUICK, Probe, Writer, so, until

SETTINGS = replace(QUICK, durability="stream")
PASTE = "".join(random.Random(1).choices(string.ascii_letters, k=80_000))


class Merges:
    """Counts merges in children: of new updates, and of others; `refuses` makes them fail."""

    def __init__(self) -> None:
        self.tried = self.loaded = 0
        self.refuses: Reason | None = None


@pytest.fixture
def merges(monkeypatch: pytest.MonkeyPatch) -> Merges:
    counted, merge = Merges(), ChildProcesses.merge

    async def counting(
        self: ChildProcesses, document_id: str, work: Work, *, bounded: bool
    ) -> tuple[bytes, float]:
        counted.tried += bounded
        counted.loaded += not bounded
        if counted.refuses is not None:
            raise Refused(counted.refuses, "no")
        return await merge(self, document_id, work, bounded=bounded)

    monkeypatch.setattr(ChildProcesses, "merge", counting)
    return counted


async def parted(probe: Probe) -> tuple[Writer, Writer]:
    """Return two writers with the document's first version; the first has pasted much since."""
    one = Writer()
    await probe.accept("doc", one.type("hello "))
    other = Writer(one.everything())
    await probe.accept("doc", one.type(PASTE))
    return one, other


async def test_an_edit_on_an_old_version_is_merged_in_a_child(merges: Merges) -> None:
    """It is ACKed, and both writers read the same text; an edit after it is merged on the loop."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        late = other.type("late ", at=0)
        await probe.accept("doc", late)
        assert (merges.tried, merges.loaded) == (1, 0)
        one.doc.import_(late)
        assert await probe.value("doc") == {"body": one.text}
        await probe.accept("doc", one.type("!"))
        assert merges.tried == 1
        assert await probe.value("doc") == {"body": one.text}


async def test_a_merge_that_takes_too_long_is_refused_and_harms_nothing(merges: Merges) -> None:
    """The refused update is kept in the stream of rejected updates; the document continues without it."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        merges.refuses = Reason.TOO_LARGE
        late = other.type("late ", at=0)
        assert (await probe.refuse("doc", late)).reason is Reason.OUTDATED
        await probe.accept("doc", one.type("!"))
        assert await probe.value("doc") == {"body": one.text}
        kept = [stored.data async for stored in probe.rejected.read(subjects.rejected("doc"))]
        assert kept == [late]


async def test_a_server_that_cannot_start_a_child_asks_for_a_retry(merges: Merges) -> None:
    """Nothing is refused for good because the server is busy."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        merges.refuses = Reason.BUSY
        late = other.type("late ", at=0)
        assert (await probe.refuse("doc", late)).reason is Reason.BUSY
        merges.refuses = None
        await probe.accept("doc", late)
        one.doc.import_(late)
        assert await probe.value("doc") == {"body": one.text}


async def test_a_slow_update_that_was_early_is_sent_again(merges: Merges) -> None:
    """A child imports it after its dependencies, and not before."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        first, second = other.type("first ", at=0), other.type("second ", at=0)
        assert (await probe.refuse("doc", second)).reason is Reason.MISSING_DEPENDENCIES
        await probe.accept("doc", first)
        await probe.accept("doc", second)
        for update in (first, second):
            one.doc.import_(update)
        assert await probe.value("doc") == {"body": one.text}
        assert merges.tried == 2


async def test_an_outdated_update_leaves_the_wal_before_its_nack(
    merges: Merges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client makes the edit again, and a load would apply both. If the move fails: `busy`."""

    async def stays(*_: object) -> bool:
        return False

    world = MemoryNats()
    async with served(world, SETTINGS) as (_, probe):
        _, other = await parted(probe)
        merges.refuses = Reason.TOO_LARGE
        late = other.type("late ", at=0)
        with monkeypatch.context() as patch:
            patch.setattr(Quarantine, "move", stays)
            assert (await probe.refuse("doc", late)).reason is Reason.BUSY
        merges.refuses = None
        assert (await probe.refuse("doc", late)).reason is Reason.OUTDATED  # known: not tried again
        assert merges.tried == 1
        before = await probe.value("doc")
    async with served(world, SETTINGS) as (_, probe):
        assert await probe.value("doc") == before


async def test_an_older_forged_update_is_not_blamed_on_a_slow_one(
    merges: Merges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loro panics in the child over one of two updates: a load that tries each of them finds which."""
    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        late = other.type("late ", at=0)

        def panics(_: Replica) -> bytes:
            raise CrdtPanic("an older update")

        with monkeypatch.context() as patch:
            patch.setattr(admission, "_imported", lambda replica, payload: panics(replica))
            await probe.put("doc", probe.split(late))
            await until(lambda: so(merges.tried == 1))
        await probe.accept("doc", late)
        one.doc.import_(late)
        assert await probe.value("doc") == {"body": one.text}


async def test_a_slow_update_that_makes_loro_panic_is_refused(
    merges: Merges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checked load blames it, and the document is served without it."""

    def panics(_: Replica, __: bytes) -> bytes:
        raise CrdtPanic("this update")

    async with served(MemoryNats(), SETTINGS) as (_, probe):
        one, other = await parted(probe)
        monkeypatch.setattr(admission, "_imported", panics)
        assert (await probe.refuse("doc", other.type("late ", at=0))).reason is Reason.INVALID_UPDATE
        await probe.accept("doc", one.type("!"))
        assert await probe.value("doc") == {"body": one.text}
    assert merges.tried == 1


async def test_a_load_merges_in_a_child_and_refuses_nothing(merges: Merges) -> None:
    """An accepted update is in the document after every load, however long its merge takes."""
    world = MemoryNats()
    async with served(world, SETTINGS) as (_, probe):
        one, other = await parted(probe)
        late = other.type("late ", at=0)
        await probe.accept("doc", late)
        one.doc.import_(late)
    for refuses in (None, Reason.TOO_LARGE):
        merges.refuses, before = refuses, merges.loaded
        async with served(world, SETTINGS) as (_, probe):
            assert await probe.value("doc") == {"body": one.text}
        assert merges.loaded > before
    assert merges.tried == 1


async def test_a_client_whose_edits_are_refused_as_outdated_makes_them_again(merges: Merges) -> None:
    """The SDK makes them on the current state: both texts are saved."""
    world = MemoryNats()
    cut_off = world.connect("second")
    async with (
        world.connect("server") as transport,
        Server(transport, SETTINGS),
        client_of(world, transport=world.connect("first")) as first,
        client_of(world, transport=cut_off, seed=2) as second,
        first.open("doc") as one,
        second.open("doc") as two,
    ):
        for session in (one, two):
            await until_state(session, State.SAVED)
        cut_off.cut()
        one.doc.get_text("body").insert(0, PASTE)
        one.commit()
        await one.flush(DEADLINE)
        two.doc.get_text("body").insert(0, "late")
        two.commit()
        merges.refuses = Reason.TOO_LARGE
        cut_off.heal()
        await two.flush(DEADLINE)
        assert merges.tried == 1
        assert sorted(str(two.doc.get_text("body").to_string())) == sorted(PASTE + "late")
