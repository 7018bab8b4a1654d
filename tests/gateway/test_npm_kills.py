"""Servers and gateways are killed while npm clients type: what was Acked is there, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.support import text_of
from tests.gateway.npm import NpmClient
from tests.gateway.processes import GatewayProcess, World, world

pytestmark = [pytest.mark.nats, pytest.mark.node]

ROOM = "drill"
EVERY = 10  # milliseconds between two words


async def typing(found: World, gateway: GatewayProcess, *names: str) -> list[NpmClient]:
    """Clients that type, and got their first Acks."""
    clients = [await found.npm.client(gateway.websocket, name) for name in names]
    for client in clients:
        await client("join", room=ROOM)
        await client("startTyping", room=ROOM, name=client.name, every=EVERY)
    await asyncio.gather(*(client("ackedWords", count=20) for client in clients))
    return clients


async def acked(clients: list[NpmClient]) -> list[str]:
    """The words that were Acked so far."""
    return [word for client in clients for word in (await client("typed"))["acked"]]


async def whole(found: World, clients: list[NpmClient]) -> None:
    """Assert that all clients and a new one have every typed word exactly once."""
    words = [word for client in clients for word in (await client("rest"))["typed"]]
    texts = await asyncio.gather(*(client("sees", room=ROOM, words=words) for client in clients))
    fresh = await found.npm.client(await clients[0]("url"))
    await fresh("join", room=ROOM)
    seen = await fresh("sees", room=ROOM, words=words)
    assert {*texts, seen} == {seen}
    assert len(seen) == sum(map(len, words))


async def more(clients: list[NpmClient]) -> None:
    """Words that are typed from now on are Acked again."""
    already = [len((await client("typed"))["acked"]) for client in clients]
    await asyncio.gather(
        *(client("ackedWords", count=count + 20) for client, count in zip(clients, already, strict=True))
    )


async def test_a_server_is_killed_while_two_type_and_another_takes_over(tmp_path: Path) -> None:
    """The clients reconnect without a reload, and every word is there."""
    async with world(tmp_path) as found:
        first = await found.server()
        clients = await typing(found, await found.gateway(), "ann", "bob")
        await first.kill()
        await found.server()
        await more(clients)
        await whole(found, clients)


async def test_who_joins_before_there_is_a_server_waits_for_it(tmp_path: Path) -> None:
    """The gateway answers the join once a server owns the document."""
    async with world(tmp_path) as found:
        ann = await found.npm.client((await found.gateway()).websocket)
        joining = asyncio.create_task(ann("join", room=ROOM))
        await ann("ping")
        assert not joining.done()
        await found.server()
        assert (await joining)["permission"] == "write"
        assert await ann("type", room=ROOM, text="at last") == 0


async def test_a_server_that_stops_hands_its_documents_over(tmp_path: Path) -> None:
    """SIGTERM while two type: the other server goes on with them."""
    async with world(tmp_path) as found:
        first = await found.server()
        clients = await typing(found, await found.gateway(), "ann", "bob")
        await found.server()
        assert await first.stop() == 0
        await more(clients)
        await whole(found, clients)


async def test_acked_words_survive_although_no_client_can_resend_them(tmp_path: Path) -> None:
    """Server and gateway die together: the next server has every Acked word before a client is back."""
    async with world(tmp_path) as found:
        first, gateway = await found.server(), await found.gateway()
        clients = await typing(found, gateway, "ann", "bob")
        await asyncio.gather(first.kill(), gateway.kill())
        promised = await acked(clients)
        await found.server()
        text = await text_of(found.nats.url, ROOM)
        assert len(promised) >= 40
        assert [word for word in promised if word not in text] == []
        await gateway.start()
        await more(clients)
        await whole(found, clients)


async def test_a_gateway_is_killed_and_comes_back_on_its_port(tmp_path: Path) -> None:
    """The clients come back by themselves; what they typed meanwhile is sent."""
    async with world(tmp_path) as found:
        await found.server()
        gateway = await found.gateway()
        clients = await typing(found, gateway, "ann", "bob")
        await gateway.kill()
        await gateway.start()
        await more(clients)
        await whole(found, clients)


async def test_a_gateway_that_stops_answers_what_is_in_flight(tmp_path: Path) -> None:
    """SIGTERM closes with 1001, and the clients go on with the next one."""
    async with world(tmp_path) as found:
        await found.server()
        gateway = await found.gateway()
        clients = await typing(found, gateway, "ann", "bob")
        assert await gateway.stop() == 0
        for client in clients:
            first, *rest = [close["code"] for close in await client("closes")]
            assert first == 1001
            assert set(rest) <= {1013}  # it came back before the gateway had ended
        await gateway.start()
        await more(clients)
        await whole(found, clients)


async def test_nats_is_killed_and_comes_back(tmp_path: Path) -> None:
    """The clients need no reload and lose nothing after a NATS crash either."""
    async with world(tmp_path) as found:
        await found.server()
        clients = await typing(found, await found.gateway(), "ann", "bob")
        await found.nats.kill()
        await found.nats.start()
        await more(clients)
        await whole(found, clients)
