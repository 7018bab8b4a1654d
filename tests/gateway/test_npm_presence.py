"""The unchanged npm client against the real gateway: presence, passing (%EPH) and kept (%EPS)."""

from collections.abc import AsyncIterator

import nanoid
import pytest
import pytest_asyncio

from tests.e2e.support import eventually
from tests.gateway.npm import NpmClient
from tests.gateway.processes import World, world

pytestmark = [pytest.mark.nats, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

AT_ONCE = 10.0  # seconds: far below what an entry lives without a renewal
OK = 0


class Place:
    """One gateway with one server behind it."""

    def __init__(self, found: World, url: str) -> None:
        self.world = found
        self.url = url

    async def joined(self, room: str, crdt: str) -> NpmClient:
        client = await self.world.npm.client(self.url)
        await client("join", room=room, crdt=crdt)
        return client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with world(tmp_path_factory.mktemp("npm")) as found:
        await found.server()
        yield Place(found, (await found.gateway()).websocket)


@pytest.fixture
def room() -> str:
    """A document that no other test uses."""
    return str(nanoid.generate("abcdefghijkl", 12))


async def test_npm_clients_and_a_python_session_see_each_other(place: Place, room: str) -> None:
    """A later client sees the entries of earlier ones."""
    async with place.world.client.open(room) as session:
        session.presence.set({"name": "Py"})
        ann = await place.joined(room, "%EPH")
        await ann("set", room=room, key="ann", value={"name": "Ann", "at": 3})
        bob = await place.joined(room, "%EPH")
        await bob("set", room=room, key="bob", value={"name": "Bob"})
        everyone = {
            session.presence.key: {"name": "Py"},
            "ann": {"name": "Ann", "at": 3},
            "bob": {"name": "Bob"},
        }
        await ann("presence", room=room, states=everyone)
        await bob("presence", room=room, states=everyone)
        await eventually(lambda: session.presence.all() == everyone, AT_ONCE)
        key = session.presence.key
    await ann("presence", room=room, states={name: it for name, it in everyone.items() if name != key})


async def test_a_presence_update_is_acked(place: Place, room: str) -> None:
    """It was passed on."""
    ann = await place.joined(room, "%EPH")
    batch = await ann("set", room=room, key="ann", value=1)
    assert await ann("acked", batch=batch) == OK


@pytest.mark.parametrize("how", ["vanish", "close"])
async def test_presence_goes_at_once_with_its_socket(place: Place, room: str, how: str) -> None:
    """With or without a goodbye; others stay."""
    async with place.world.client.open(room) as session:
        ann, bob = await place.joined(room, "%EPH"), await place.joined(room, "%EPH")
        await ann("set", room=room, key="ann", value="here")
        await bob("set", room=room, key="bob", value="here")
        await bob("presence", room=room, states={"ann": "here", "bob": "here"})
        await eventually(lambda: set(session.presence.all()) == {"ann", "bob"}, AT_ONCE)
        await ann(how)
        await bob("presence", room=room, states={"bob": "here"}, seconds=AT_ONCE)
        await eventually(lambda: set(session.presence.all()) == {"bob"}, AT_ONCE)


async def test_presence_goes_with_leaving_the_room(place: Place, room: str) -> None:
    """The connection stays, the entry does not."""
    ann, bob = await place.joined(room, "%EPH"), await place.joined(room, "%EPH")
    await ann("set", room=room, key="ann", value="here")
    await bob("presence", room=room, states={"ann": "here"})
    await ann("leave", room=room, crdt="%EPH")
    await bob("presence", room=room, states={}, seconds=AT_ONCE)


async def test_kept_presence_survives_the_last_member(place: Place, room: str) -> None:
    """A client that returns sees the kept entries, also through another gateway."""
    ann, bob = await place.joined(room, "%EPS"), await place.joined(room, "%EPS")
    batch = await ann("set", room=room, crdt="%EPS", key="ann", value={"read": 7})
    assert await ann("acked", batch=batch) == OK
    batch = await bob("set", room=room, crdt="%EPS", key="bob", value=[1, 2])
    assert await bob("acked", batch=batch) == OK
    both = {"ann": {"read": 7}, "bob": [1, 2]}
    await ann("presence", room=room, crdt="%EPS", states=both)
    await ann("close")
    await bob("vanish")
    other = await place.world.gateway()
    cid = await place.world.npm.client(other.websocket)
    await cid("join", room=room, crdt="%EPS")
    await cid("presence", room=room, crdt="%EPS", states=both)
    assert await other.stop() == 0


async def test_bytes_that_are_no_presence_reach_no_client(place: Place, room: str) -> None:
    """The sender gets an error status, or the gateway drops the bytes; the entries of others still arrive."""
    ann, bob = await place.joined(room, "%EPH"), await place.joined(room, "%EPH")
    batch = await ann("sendBytes", room=room, crdt="%EPH", hex="ff" * 40)
    assert await ann("acked", batch=batch) != OK
    await ann("set", room=room, key="ann", value="still")
    await bob("presence", room=room, states={"ann": "still"})
