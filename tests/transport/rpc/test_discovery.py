"""Which servers there are, by their own account."""

import asyncio
import json

import pytest

from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Message, ServiceInfo
from lorogo_transport.rpc.discovery import FoundServer, ServerStats, find_servers, server_stats


async def test_every_answering_server_is_found() -> None:
    """The result has the facts of each server; foreign answers are left out."""
    nats = MemoryNats()
    for number in range(3):
        facts = {"server_id": f"s{number}", "durability": "journal", "journals": "ab cd"}
        await nats.connect("server").announce(ServiceInfo("lorogo", "1.0.0", "", facts), dict)
    other = nats.connect("other").bus
    answers = [b"", b"{}", b"nonsense", json.dumps({"metadata": {"server_id": "a.b"}}).encode()]

    def on_ask(message: Message) -> None:
        tasks.extend(asyncio.ensure_future(other.publish(message.reply, answer)) for answer in answers)

    tasks: list[asyncio.Task[None]] = []
    await other.subscribe("$SRV.INFO.lorogo", on_ask)
    found = await find_servers(nats.connect("client").bus, gather_seconds=0.05)
    assert sorted(found, key=lambda one: one.server_id) == [
        FoundServer(f"s{number}", "journal", ("ab", "cd")) for number in range(3)
    ]
    await asyncio.gather(*tasks)


async def test_everybody_tells_their_figures() -> None:
    """As they are, beside who they are; what is no answer of ours is left out."""
    nats = MemoryNats(now_ns=lambda: 0)
    facts = {"server_id": "s", "durability": "journal", "journals": ""}
    await nats.connect("server").announce(ServiceInfo("lorogo", "1.0.0", "", facts), lambda: {"acked": 3})
    other = nats.connect("other").bus
    odd = [{"metadata": {"server_id": "a"}, "endpoints": [{"data": [1]}]}, {"endpoints": 7}, [], None]
    answers = [b"", b"nonsense", b"[" * 100_000, *(json.dumps(one).encode() for one in odd)]

    def on_ask(message: Message) -> None:
        tasks.extend(asyncio.ensure_future(other.publish(message.reply, answer)) for answer in answers)

    tasks: list[asyncio.Task[None]] = []
    await other.subscribe("$SRV.STATS.lorogo", on_ask)
    found = await server_stats(nats.connect("client").bus, gather_seconds=0.05)
    assert found == [ServerStats("s", "1.0.0", "1970-01-01T00:00:00.000Z", {"acked": 3})]
    await asyncio.gather(*tasks)


async def test_no_server_is_known_at_once() -> None:
    """NATS reports that there is no responder, so the client does not wait."""
    async with asyncio.timeout(1):
        assert await find_servers(MemoryNats().connect("client").bus, first_seconds=30) == []
        assert await server_stats(MemoryNats().connect("client").bus, first_seconds=30) == []


@pytest.mark.parametrize("turns", range(12))
async def test_a_search_that_is_cancelled_ends(turns: int) -> None:
    """Also when an answer comes in the same moment."""
    nats = MemoryNats()
    facts = {"server_id": "s", "durability": "journal", "journals": "ab"}
    await nats.connect("server").announce(ServiceInfo("lorogo", "1.0.0", "", facts), dict)

    async def for_ever() -> None:
        while True:
            await find_servers(nats.connect("client").bus, gather_seconds=0.001)

    searching = asyncio.ensure_future(for_ever())
    for _ in range(turns):
        await asyncio.sleep(0)
    searching.cancel()
    async with asyncio.timeout(2):
        await asyncio.gather(searching, return_exceptions=True)
    assert searching.cancelled()
