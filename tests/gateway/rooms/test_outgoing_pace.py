"""Updates that do not fit a frame: as fast as each reader reads, in order, and bounded."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from loro import LoroDoc

from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt, RoomErrorCode
from lorogo_gateway.limits.limiter import Limiter
from lorogo_gateway.rooms.connection_port import ConnectionPort
from lorogo_gateway.rooms.outgoing_pace import OutgoingQueue, deliver
from lorogo_gateway.state.counters import GatewayCounters
from lorogo_gateway.state.fan_out import Fanout
from lorogo_gateway.state.gateway_state import GatewayState
from lorogo_gateway.state.shared_payload import SharedPayloadBudget
from lorogo_gateway.transport.transport import FrameWriter
from lorogo_gateway.websocket.connection import WebSocketConnection
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.tasks import Tasks
from tests.client.support import FakeOwner
from tests.gateway.support import SETTINGS, Peer, eventually, gate, since, text_of


async def whole(peer: Peer) -> bytes:
    """The next update that comes in fragments, put together."""
    header = await peer.take(frames.FragmentHeader)
    parts = [
        (await peer.take(frames.Fragment, lambda part: part.batch == header.batch)).data
        for _ in range(header.count)
    ]
    return b"".join(parts)


@pytest.mark.parametrize("plain", [False, True], ids=["own line", "plain ASGI"])
async def test_an_update_above_the_unread_limit_reaches_every_reader(
    world: MemoryNats, owner: FakeOwner, plain: bool
) -> None:
    """The gateway drops no client that reads; later updates arrive after the large one."""
    settings = replace(SETTINGS, unread_bytes_max=512 * 1024)
    async with gate(world, settings, plain=plain) as served, served.peer() as one, served.peer() as two:
        await one.join()
        await two.join()
        large = await owner.edit(random.Random(1).randbytes(2_000_000).hex(), tell=False)
        await owner.publish_accepted("large", large, 0, chunk_bytes=1 << 19)
        small = await owner.edit("after")
        for peer in (one, two):
            assert await whole(peer) == large
            assert peer.waiting == []
            assert await peer.received() == (small,)
        assert served.stat("slow_readers_dropped") == 0
        await eventually(lambda: served.sockets._gateway.large.bytes == 0)


async def test_a_newcomer_without_backfill_budget_is_asked_to_join_again(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A full backfill budget delays a join for a limited time, then the gateway suggests a rejoin."""
    await owner.edit(random.Random(1).randbytes(300_000).hex(), tell=False)
    async with gate(world) as served, served.peer() as one:
        budget, empty = served.sockets._gateway.backfill, LoroDoc().oplog_vv.encode()
        async with budget.holding(SETTINGS.backfill_bytes_max):
            await one.join()
            assert (await one.room_error()).error is RoomErrorCode.REJOIN_SUGGESTED
            await one.send(frames.JoinRequest(Crdt.LORO, "doc", b"", empty))
            assert await one.quiet() == []  # it is not fetched again before there is room
            assert len(owner.syncs) == 1
        doc = LoroDoc()
        doc.import_(await whole(one))
        assert text_of(doc) == owner.text()
        assert since(doc, empty)


async def test_only_so_many_answers_wait_in_memory_for_room(world: MemoryNats, owner: FakeOwner) -> None:
    """The gateway does not request the states for the other newcomers before memory is free."""
    await owner.edit(random.Random(1).randbytes(200_000).hex(), tell=False)
    async with gate(world, replace(SETTINGS, full_seconds=30.0)) as served, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(served.peer()) for _ in range(12)]
        gateway = served.sockets._gateway
        async with gateway.backfill.holding(SETTINGS.backfill_bytes_max):
            for peer in peers:
                await peer.send(frames.JoinRequest(Crdt.LORO, "doc", b"", b""))
            await eventually(lambda: served.stat("joins") == 8)
            for peer in peers:
                peer.waiting += await peer.quiet()
            assert len(owner.syncs) == 8
        for peer in peers:
            doc = LoroDoc()
            doc.import_(await whole(peer))
            assert text_of(doc) == owner.text()
        assert not gateway.joining.locked()


@pytest.mark.usefixtures("owner")
async def test_a_document_without_an_owner_delays_no_other_join(world: MemoryNats) -> None:
    async with gate(world) as served, served.peer() as one, served.peer() as two:
        for number in range(12):
            await one.send(frames.JoinRequest(Crdt.LORO, f"ownerless-{number}", b"", b""))
        assert await one.quiet() == []
        await two.join()


# -------------------------------------------------------------------------------- without a network


class Reader:
    """A connection (Seat) that takes frames when a test lets it."""

    def __init__(self, *, seconds: float = 10.0) -> None:
        settings = replace(
            SETTINGS, fragment_bytes=100, unread_bytes_max=1_000, update_bytes_max=1_000, join_seconds=seconds
        )
        self.gateway = cast(
            "GatewayState",
            SimpleNamespace(
                settings=settings,
                fanout=Fanout(100, random.Random(1)),
                counters=GatewayCounters(),
                large=SharedPayloadBudget(10_000),
                limiter=Limiter(settings),
                tasks=Tasks(self._broke),
            ),
        )
        self.tasks = self.gateway.tasks
        self.reads = asyncio.Event()
        self.pause = 0.0
        self.frames: list[bytes] = []
        self.was_slow = False

    def _broke(self, error: Exception) -> None:
        raise AssertionError from error

    async def send_paced(self, data: bytes, wanted: Callable[[], bool]) -> bool:
        await self.reads.wait()
        await asyncio.sleep(self.pause)
        if wanted():
            self.frames.append(data)
        return wanted()

    def slow(self) -> None:
        self.was_slow = True

    def updates(self) -> list[bytes]:
        """The updates that the frames carry, reassembled."""
        assembler = frames.FragmentAssembler(bytes_max=1 << 20, update_bytes_max=1 << 20, seconds=10.0)
        updates: list[bytes] = []
        for frame in map(frames.decode, self.frames):
            match frame:
                case frames.DocUpdate():
                    updates += frame.updates
                case frames.FragmentHeader():
                    assert assembler.begin(frame, now=0.0) is None
                case frames.Fragment():
                    payload = assembler.add(frame)
                    updates += [payload] if isinstance(payload, bytes) else []
        return updates


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    reader = Reader()
    yield reader
    await reader.tasks.close()


def queue_of(reader: Reader) -> OutgoingQueue:
    return OutgoingQueue(cast("ConnectionPort", reader), "doc")


async def test_what_comes_behind_a_large_update_keeps_its_place(reader: Reader) -> None:
    queue, sent = queue_of(reader), [b"a" * 500, b"b", b"c" * 300, b"d"]
    for payload in sent:
        assert queue.put(payload)
    reader.reads.set()
    await eventually(lambda: not queue.busy)
    assert reader.updates() == sent
    assert reader.gateway.large.bytes == 0


async def test_too_much_behind_a_large_update_is_dropped_and_what_is_half_sent_goes_on(
    reader: Reader,
) -> None:
    queue = queue_of(reader)
    first, second = b"a" * 5_000, b"b" * 1_500
    assert queue.put(first)
    await asyncio.sleep(0)  # it is under way
    assert queue.put(second)  # the first that waits may be as large as it likes
    assert not queue.put(b"c")
    assert reader.gateway.large.bytes == len(first)
    reader.reads.set()
    await eventually(lambda: not queue.busy)
    assert reader.updates() == [first]
    assert reader.gateway.large.bytes == 0


async def test_updates_behind_a_large_one_are_bounded_in_number(reader: Reader) -> None:
    queue = queue_of(reader)
    taken = [queue.put(b"") for _ in range(2_000)]
    assert taken.index(False) == 1024


async def test_a_reader_that_takes_a_little_now_and_then_is_too_slow() -> None:
    """There is one deadline for all of it, not one for each frame."""
    reader = Reader(seconds=0.05)
    reader.reads.set()
    reader.pause = 0.02
    await deliver(cast("ConnectionPort", reader), "doc", bytes(2_000), lambda: True)
    assert reader.was_slow
    assert len(reader.frames) < 20
    assert reader.gateway.counters.updates_out == 0


def test_a_payload_counts_once_however_many_get_it() -> None:
    shared, one, two, three = SharedPayloadBudget(100), bytes(60), bytes(50), bytes(300)
    assert [shared.take(payload) for payload in (one, one, two)] == [True, True, False]
    shared.give_back(one)
    assert not shared.take(two)
    shared.give_back(one)
    assert shared.bytes == 0
    assert shared.take(three)  # larger than all of it: alone
    assert not shared.take(two)


class Full:
    """A line to one that reads nothing."""

    def __init__(self) -> None:
        self.unread_bytes = 0

    def write(self, data: bytes) -> None:
        self.unread_bytes += len(data)

    async def close(self, code: int, reason: str, *, seconds: float) -> None:
        pass


async def test_nothing_is_written_to_a_connection_that_is_over(reader: Reader) -> None:
    """Until the close frame is out, the gateway may send hundreds of frames to the connection, which drops
    them.
    """
    line = Full()
    connection = WebSocketConnection(reader.gateway, cast("FrameWriter", line), now=0.0)
    for _ in range(50):
        connection.send(bytes(300))
    assert line.unread_bytes == 1_200
    assert reader.gateway.counters.slow_readers == 1
