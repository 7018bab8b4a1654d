"""Presence that is kept: merged by compare-and-swap, heard by others, bounded."""

import asyncio

import pytest
from loro import EphemeralStore

from lorogo_client import DocumentDeleted, InvalidDocumentId, InvalidUpdate, PresenceTooLarge
from lorogo_protocol import limits
from lorogo_protocol.messages import subjects
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import StreamMissing
from tests.client.support import client_of, eventually
from tests.journals import in_memory
from tests.server.support import QUICK as SERVER

TEN_YEARS_MS = 10 * 366 * 86_400_000


def entry(key: str, value: str) -> bytes:
    store = EphemeralStore(TEN_YEARS_MS)
    store.set(key, value)
    return store.encode_all()


def states(data: bytes) -> dict[str, object]:
    store = EphemeralStore(TEN_YEARS_MS)
    store.apply(data)
    return dict(store.get_all_states())


async def test_what_is_merged_is_there_for_the_next(world: MemoryNats) -> None:
    """Nothing at first; then everything that anybody merged."""
    async with client_of(world) as one, client_of(world, seed=2) as two:
        assert await one.kept_presence.load("doc") == b""
        assert states(await one.kept_presence.merge("doc", entry("ana", "a"))) == {"ana": "a"}
        both = await two.kept_presence.merge("doc", entry("ben", "b"))
        assert states(both) == states(await one.kept_presence.load("doc")) == {"ana": "a", "ben": "b"}
        assert await one.kept_presence.load("other") == b""


async def test_many_at_once_lose_nothing(world: MemoryNats) -> None:
    """Who loses the compare-and-swap merges again."""
    async with client_of(world) as one, client_of(world, seed=2) as two:
        await asyncio.gather(
            *(one.kept_presence.merge("doc", entry(f"one-{n}", "x")) for n in range(8)),
            *(two.kept_presence.merge("doc", entry(f"two-{n}", "x")) for n in range(8)),
        )
        assert len(states(await one.kept_presence.load("doc"))) == 16


async def test_the_same_again_writes_nothing(world: MemoryNats) -> None:
    """A merge that changes nothing is no revision."""
    async with client_of(world) as client:
        data = entry("ana", "a")
        await client.kept_presence.merge("doc", data)
        before = world.store(subjects.PRESENCE_STREAM).last_sequence(subjects.presence_key("doc"))
        await client.kept_presence.merge("doc", data)
        assert world.store(subjects.PRESENCE_STREAM).last_sequence(subjects.presence_key("doc")) == before


async def test_an_unknown_outcome_is_resolved_by_reading(world: MemoryNats) -> None:
    """It was stored, and the confirmation was lost."""
    transport = world.connect("gateway")
    async with client_of(world, transport=transport) as client:
        transport.drop_next_ack()
        assert states(await client.kept_presence.merge("doc", entry("ana", "a"))) == {"ana": "a"}
        assert states(await client.kept_presence.load("doc")) == {"ana": "a"}


async def test_others_hear_of_a_merge(world: MemoryNats) -> None:
    """As the whole value; a removed key is not told."""
    heard: list[bytes] = []
    async with client_of(world) as one, client_of(world, seed=2) as two:
        subscription = await one.kept_presence.follow("doc", heard.append)
        value = await two.kept_presence.merge("doc", entry("ana", "a"))
        await eventually(lambda: heard == [value])
        await two.transport.bus.publish(subjects.presence_key("doc"), b"", headers={"KV-Operation": "DEL"})
        await two.transport.bus.barrier()
        assert await one.kept_presence.load("doc") == b""
        assert heard == [value]
        await subscription.close()


@pytest.mark.parametrize("data", [b"", b"junk", b"\xff" * 100])
async def test_what_is_no_presence_is_refused(world: MemoryNats, data: bytes) -> None:
    """Nothing is written."""
    async with client_of(world) as client:
        with pytest.raises(InvalidUpdate):
            await client.kept_presence.merge("doc", data)
        with pytest.raises(InvalidDocumentId):
            await client.kept_presence.merge("a.b", entry("a", "b"))
        assert await client.kept_presence.load("doc") == b""


async def test_it_has_a_bound(world: MemoryNats) -> None:
    """One that is too large, or too much together, is refused; what was there stays."""
    async with client_of(world) as client:
        half = entry("half", "x" * (limits.AWARENESS_BYTES_MAX // 2))
        await client.kept_presence.merge("doc", half)
        for data in (b"x" * (limits.AWARENESS_BYTES_MAX + 1), entry("more", "x" * 40_000)):
            with pytest.raises(PresenceTooLarge):
                await client.kept_presence.merge("doc", data)
        assert set(states(await client.kept_presence.load("doc"))) == {"half"}


async def test_marks_of_removed_entries_do_not_fill_it_up(world: MemoryNats) -> None:
    """When there is no room they go, and what is there stays."""
    store = EphemeralStore(TEN_YEARS_MS)
    store.set("stays", "here")
    for number in range(4500):
        store.set(f"left-{number}", "x")
        store.delete(f"left-{number}")
    async with client_of(world) as client:
        bus = client.transport.bus
        await bus.publish(subjects.presence_key("doc"), store.encode_all())
        await bus.barrier()
        value = await client.kept_presence.merge("doc", entry("new", "n"))
        assert states(value) == {"stays": "here", "new": "n"}
        assert len(value) < 1000


async def test_a_value_that_does_not_decode_is_replaced(world: MemoryNats) -> None:
    """Somebody else wrote it."""
    async with client_of(world) as client:
        await client.transport.bus.publish(subjects.presence_key("doc"), b"\xff" * 50)
        await client.transport.bus.barrier()
        assert states(await client.kept_presence.merge("doc", entry("a", "b"))) == {"a": "b"}


async def test_without_the_bucket_it_says_so() -> None:
    """No server has run on this NATS."""
    async with client_of(MemoryNats()) as client:
        with pytest.raises(StreamMissing):
            await client.kept_presence.load("doc")


async def test_erasing_a_document_erases_it(world: MemoryNats) -> None:
    """`delete --purge` leaves nothing of it."""
    async with Server(world.connect("server"), SERVER, **in_memory()), client_of(world) as client:
        await client.kept_presence.merge("doc", entry("ana", "a"))
        await client.kept_presence.merge("other", entry("ana", "a"))
        await client.document("doc").delete(purge=True)
        assert await client.kept_presence.load("doc") == b""
        assert await client.kept_presence.load("other") != b""


@pytest.mark.parametrize("there", [False, True])
async def test_nothing_comes_back_of_what_is_erased_during_a_merge(
    world: MemoryNats, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Whether or not anything was kept before."""
    async with Server(world.connect("server"), SERVER, **in_memory()), client_of(world) as client:
        kept = client.kept_presence
        await client.document("doc").patch([{"op": "add", "path": "/t", "value": "hello"}])
        if there:
            await kept.merge("doc", entry("ana", "a"))
        check, erased = kept.check, False

        async def erase_after_the_first_look(document_id: str) -> None:
            nonlocal erased
            await check(document_id)
            if not erased:
                erased = True
                await client.document(document_id).delete(purge=True)

        monkeypatch.setattr(kept, "check", erase_after_the_first_look)
        with pytest.raises(DocumentDeleted):
            await kept.merge("doc", entry("ben", "b"))
        assert await kept.load("doc") == b""
