"""Having a document served: who starts it, when, and by whose clock."""

import asyncio
import itertools
import random
import time
from dataclasses import replace

import pytest

from lorogo_client import ClientSettings, DocumentFailed, NotServed
from lorogo_client.delivery.starter import DocumentStarter
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.status import Down, Failed, Starting, Status, Up
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import Disconnected
from lorogo_transport.ports import Message
from lorogo_transport.stores.statuses import Statuses, status_of
from tests.client.support import DEADLINE, QUICK, FakeOwner, client_of, eventually

HOUR = 3600.0


class ShiftedClock:
    """A clock that goes right but shows another time."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def now(self) -> float:
        return time.monotonic() + self.shift

    def wall_ns(self) -> int:
        return time.time_ns() + int(self.shift * 1e9)


def starter_of(
    world: MemoryNats, *, shift: float = 0.0, settings: ClientSettings = QUICK, name: str = "c"
) -> DocumentStarter:
    ids = itertools.count(1)
    rng = random.Random(1)
    return DocumentStarter(
        world.connect(name), ShiftedClock(shift), rng, lambda: f"{name}-op-{next(ids)}", settings
    )


async def put(world: MemoryNats, status: Status, *, server: str = "", expected: int = 0) -> int:
    statuses = Statuses(world.connect("hand"))
    return await statuses.write("doc", status, expected_revision=expected, server=server)


async def read(world: MemoryNats) -> StatusEntry:
    entry = await Statuses(world.connect("hand")).read("doc")
    assert entry is not None
    return entry


@pytest.mark.parametrize("before", [None, Down(1)])
async def test_a_document_that_is_down_is_started(
    world: MemoryNats, owner: FakeOwner, before: Status | None
) -> None:
    """Nothing there, or DOWN: STARTING with a new operation, init, and then the owner answers."""
    if before is not None:
        await put(world, before)
    entry = await starter_of(world).served("doc", timeout=DEADLINE)
    assert entry is not None
    assert isinstance(entry.status, Up)
    assert owner.inits == 1


async def test_the_server_that_takes_it_makes_the_move(world: MemoryNats, owner: FakeOwner) -> None:
    """Nobody had it: the first entry of the key is the server's own, and its revision the token."""
    entry = await starter_of(world).served("doc", timeout=DEADLINE)
    assert entry is not None
    assert (entry.token, entry.revision) == (1, 2)


@pytest.mark.parametrize("before", [None, Down(1)])
async def test_an_older_server_is_left_nothing_to_move(
    world: MemoryNats, owner: FakeOwner, before: Status | None
) -> None:
    """It declines what is not STARTING; then the client makes the move, and asks again at once."""
    owner.old = True
    if before is not None:
        await put(world, before)
    entry = await starter_of(world).served("doc", timeout=DEADLINE)
    assert entry is not None
    assert isinstance(entry.status, Up)
    assert owner.inits == 2


async def test_a_document_that_is_up_is_left_alone(world: MemoryNats, owner: FakeOwner) -> None:
    """A ping that is answered is enough."""
    await starter_of(world).served("doc", timeout=DEADLINE)
    revision = (await read(world)).revision
    entry = await starter_of(world, name="d").served("doc", timeout=DEADLINE)
    assert entry is not None
    assert entry.revision == revision
    assert owner.inits == 1


async def test_who_heard_it_come_up_does_not_ask_whether_it_is_there(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """After our own STARTING: the owner was there just now. Who comes later pings it."""
    owner.pinged = False
    entry = await starter_of(world).served("doc", timeout=DEADLINE)
    assert entry == await read(world)
    assert entry.token == owner.token
    with pytest.raises(NotServed, match="does not answer"):
        await starter_of(world, name="d").served("doc", timeout=0.2)


async def test_who_listens_already_says_what_it_hears(world: MemoryNats, owner: FakeOwner) -> None:
    """Then one subscription is enough: what is heard counts as much as if the starter had subscribed."""
    starter = starter_of(world)
    bus = starter.bus

    def on_status(message: Message) -> None:
        if (entry := status_of(message)) is not None:
            starter.on_status("doc", entry)

    await bus.subscribe("loro.status.doc", on_status)
    before = dict(bus._listeners)  # type: ignore[attr-defined]
    owner.pinged = False
    entry = await starter.served("doc", timeout=DEADLINE, listening=True)
    assert entry == await read(world)
    assert dict(bus._listeners) == before  # type: ignore[attr-defined]
    assert not starter._attempts


async def test_an_owner_that_came_up_and_is_gone_at_once_is_replaced(world: MemoryNats) -> None:
    """Nobody pinged it: the first call finds nobody, and the next look for the owner does ask."""
    async with FakeOwner(world, name="brief") as brief:
        brief.serve = brief.renew  # type: ignore[method-assign]  # UP, and it listens to nothing
        async with client_of(world) as client:
            opening = asyncio.ensure_future(client.open("doc").__aenter__())
            await eventually(lambda: brief.inits > 0)
            async with FakeOwner(world, name="next") as owner:
                await brief.vanish()
                session = await opening
                assert owner.inits == 1
                session.doc.get_text("t").insert(0, "here")
                await session.flush(DEADLINE)
                assert owner.text() == "here"


async def test_an_owner_that_answers_is_never_replaced_however_old_its_entry_is(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A revision that was seen long ago is stale only if the owner does not answer now."""
    clock = ShiftedClock(0)
    starter = DocumentStarter(world.connect("c"), clock, random.Random(1), lambda: "op", QUICK)
    await starter.served("doc", timeout=DEADLINE)
    clock.shift += HOUR
    await starter.served("doc", timeout=DEADLINE)
    assert owner.inits == 1


@pytest.mark.parametrize("shift", [-HOUR, 0.0, HOUR])
async def test_an_owner_that_is_gone_is_replaced_at_once_whatever_the_clocks_say(
    world: MemoryNats, owner: FakeOwner, shift: float
) -> None:
    """UP but nobody listens: no waiting; timestamps an hour off change nothing."""
    await put(world, Up("dead", time.time_ns()), server="dead")
    started = time.monotonic()
    await starter_of(world, shift=shift).served("doc", timeout=DEADLINE)
    assert time.monotonic() - started < QUICK.stale_seconds
    assert owner.inits == 1


@pytest.mark.parametrize("shift", [-HOUR, HOUR])
@pytest.mark.parametrize("status", [Starting("other-op", 2, 0), Up("mute", 0)])
async def test_staleness_is_measured_by_the_observers_own_clock(
    world: MemoryNats, owner: FakeOwner, shift: float, status: Status
) -> None:
    """An entry from 1970 is not stale before we have seen it unchanged for `stale_seconds` ourselves."""
    bus = world.connect("mute").bus
    await bus.subscribe("loro.ping.doc", lambda _: None)
    await bus.barrier()
    revision = await put(world, status, server="other")
    started = time.monotonic()
    await starter_of(world, shift=shift).served("doc", timeout=DEADLINE)
    assert time.monotonic() - started >= QUICK.stale_seconds
    assert (await read(world)).revision > revision
    assert owner.inits == 1


@pytest.mark.parametrize(("server", "count"), [("other", 3), ("", 2)])
async def test_the_retry_count_grows_only_when_a_server_had_taken_it(
    world: MemoryNats, server: str, count: int
) -> None:
    """A STARTING that no server took says nothing about servers."""
    statuses = Statuses(world.connect("hand"))
    await statuses.write("doc", Starting("other-op", 2, 0), expected_revision=0, server=server, trace="why")
    with pytest.raises(NotServed):
        await starter_of(world).served("doc", timeout=1.0)
    entry = await read(world)
    assert entry.trace == "why"
    status = entry.status
    assert isinstance(status, Starting)
    assert status.operation_id != "other-op"
    assert status.retry_count == count


async def test_without_servers_the_count_stays_and_the_first_server_back_serves(world: MemoryNats) -> None:
    """No responders leaves the retry count alone, however long it lasts."""
    await put(world, Starting("gone", 0, 0))  # a client's that is there no more
    task = asyncio.ensure_future(starter_of(world).served("doc", timeout=DEADLINE))
    other = asyncio.ensure_future(starter_of(world, name="d").served("doc", timeout=DEADLINE))
    statuses = Statuses(world.connect("hand"))
    operations: set[str] = set()
    async with asyncio.timeout(DEADLINE):
        while len(operations) < 3:
            entry = await statuses.read("doc")
            if entry is not None:
                assert isinstance(entry.status, Starting)
                assert entry.status.retry_count == 0
                operations.add(entry.status.operation_id)
            await asyncio.sleep(0.01)
    async with FakeOwner(world):
        for waiting in (task, other):
            entry = await waiting
            assert entry is not None
            assert isinstance(entry.status, Up)


async def test_nobody_there_is_an_error_that_says_what_to_do(world: MemoryNats) -> None:
    """After the timeout: no server is connected, and how to start one."""
    with pytest.raises(NotServed, match=r"no server is connected to NATS.*lorogo serve"):
        await starter_of(world).served("doc", timeout=0.3)


async def test_no_bucket_means_that_no_server_ever_ran() -> None:
    """A NATS without our streams is told apart from a server that is away."""
    with pytest.raises(NotServed, match="no server has ever run"):
        await starter_of(MemoryNats()).served("doc", timeout=0.3)


async def test_error_is_final_and_names_the_trace(world: MemoryNats, owner: FakeOwner) -> None:
    """ERROR: nobody starts it any more."""
    await put(world, Failed("trace-1", 0))
    with pytest.raises(DocumentFailed) as caught:
        await starter_of(world).served("doc", timeout=DEADLINE)
    assert caught.value.trace_id == "trace-1"
    assert owner.inits == 0


async def test_one_of_many_clients_starts_it(world: MemoryNats, owner: FakeOwner) -> None:
    """All may ask, compare-and-swap lets one through; the others wait for UP."""
    starters = [starter_of(world, name=f"c{number}") for number in range(8)]
    entries = await asyncio.gather(*(starter.served("doc", timeout=DEADLINE) for starter in starters))
    assert [entry.token for entry in entries if entry is not None] == [1] * 8
    assert (await read(world)).token == owner.token == 1


async def test_servers_make_the_move_for_clients_without_rights(world: MemoryNats, owner: FakeOwner) -> None:
    """With start="server" the client sends an empty init and never touches the bucket."""
    settings = replace(QUICK, start="server")
    await starter_of(world, settings=settings).served("doc", timeout=DEADLINE)
    assert owner.inits == 1
    assert isinstance((await read(world)).status, Up)


async def test_a_lost_connection_ends_the_attempt(world: MemoryNats, owner: FakeOwner) -> None:
    """There is nothing to wait for without a connection: the caller knows when it is back."""
    owner.takes = False
    transport = world.connect("cut")
    starter = DocumentStarter(transport, ShiftedClock(0), random.Random(1), lambda: "op", QUICK)
    task = asyncio.ensure_future(starter.served("doc", timeout=DEADLINE))
    await eventually(lambda: owner.inits > 0)
    transport.cut()
    with pytest.raises(Disconnected):
        await task
