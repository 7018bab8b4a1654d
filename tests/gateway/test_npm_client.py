"""The unchanged npm client against the real gateway: documents."""

import asyncio
import base64
import hashlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import nanoid
import pytest
import pytest_asyncio
from loro import LoroDoc, VersionVector

from lorogo_client import Session
from lorogo_gateway.server.lifecycle import GatewaySettings, running
from tests.e2e.support import ServerProcess, eventually
from tests.gateway.npm import NpmClient, NpmError
from tests.gateway.processes import GatewayProcess, World, world

pytestmark = [pytest.mark.nats, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

MIB = 1 << 20
OK, PERMISSION_DENIED, INVALID_UPDATE = 0, 3, 4


@dataclass
class Place:
    """One gateway with one server behind it."""

    world: World
    server: ServerProcess
    gateway: GatewayProcess

    async def client(self) -> NpmClient:
        return await self.world.npm.client(self.gateway.websocket)

    async def joined(self, room: str) -> NpmClient:
        client = await self.client()
        await client("join", room=room)
        return client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with world(tmp_path_factory.mktemp("npm")) as found:
        server = await found.server()
        yield Place(found, server, await found.gateway())


@pytest.fixture
def room() -> str:
    """A document that no other test uses."""
    return str(nanoid.generate("abcdefghijkl", 12))


async def refused(client: NpmClient, code: str, **given: str) -> None:
    """The join fails for the client's user, with our code on the wire."""
    with pytest.raises(NpmError, match="Join failed: 127 - "):
        await client("join", **given)
    error = await client("joinError")
    assert (error["room"], error["appCode"]) == (given["room"], code)


def text_of(session: Session) -> str:
    return str(session.doc.get_text("body").to_string())


def type_into(session: Session, text: str) -> None:
    body = session.doc.get_text("body")
    body.insert(len(body), text)
    session.commit()


async def test_two_npm_clients_and_a_python_session_type_at_once_and_converge(
    place: Place, room: str
) -> None:
    """All three have every word, in the same order."""
    ann, bob = await asyncio.gather(place.joined(room), place.joined(room))
    async with place.world.client.open(room) as session:
        await ann("startTyping", room=room, name="ann", every=5)
        await bob("startTyping", room=room, name="bob", every=5)
        mine = [f"py{number:05d} " for number in range(40)]
        for word in mine:
            type_into(session, word)
            await asyncio.sleep(0.003)
        await asyncio.gather(ann("ackedWords", count=40), bob("ackedWords", count=40))
        words = mine + (await ann("rest"))["typed"] + (await bob("rest"))["typed"]
        await session.flush(timeout=20)
        seen = await asyncio.gather(*(one("sees", room=room, words=words) for one in (ann, bob)))
        await eventually(lambda: all(word in text_of(session) for word in words))
        assert {*seen, text_of(session)} == {text_of(session)}
        assert len(text_of(session)) == sum(map(len, words))


async def test_clients_of_two_gateways_share_a_document(place: Place, room: str) -> None:
    """Gateways know nothing of each other."""
    other = await place.world.gateway()
    ann, bob = await place.joined(room), await place.world.npm.client(other.websocket)
    await bob("join", room=room)
    assert await ann("type", room=room, text="from one ") == OK
    await bob("sees", room=room, words=["from one "])
    assert await bob("type", room=room, text="from the other ") == OK
    assert await ann("sees", room=room, words=["from the other "]) == "from one from the other "
    assert await other.stop() == 0


async def test_who_types_faster_than_allowed_loses_nothing(place: Place, room: str) -> None:
    """The gateway refuses updates above the rate; the client sends them again after the suggested rejoin."""
    bob = await place.joined(room)
    strict = GatewaySettings(port=0, updates_per_second=200, burst_seconds=0.5)
    async with running(place.world.nats.url, strict) as address:
        ann = await place.world.npm.client(f"ws{address.removeprefix('http')}/ws")
        await ann("join", room=room)
        words = await ann("burst", room=room, name="ann", count=1_000)
        text = await bob("sees", room=room, words=words)
        assert len(text) == sum(map(len, words))
        refused = (await ann("facts", room=room))["refused"]
        assert {refusal["reason"] for refusal in refused} == {"rate_limited"}
        assert await ann("type", room=room, text="calm again") == OK


async def test_a_join_tells_the_owners_version_and_the_client_reaches_it(place: Place, room: str) -> None:
    """JoinResponseOk has the owner's version vector, and the client has all updates once it reports that
    version.
    """
    async with place.world.client.open(room) as session:
        type_into(session, "before any client")
        await session.flush(timeout=20)
        peer = session.doc.peer_id
    ann = await place.client()
    joined = await ann("join", room=room)
    assert joined["permission"] == "write"
    vector = VersionVector.decode(bytes.fromhex(joined["version"]))
    owner = await place.world.client.document(room).version()
    assert vector == VersionVector.decode(owner["vector"])  # type: ignore[arg-type]  # it is bytes
    assert await ann("text", room=room) == "before any client"
    assert (await ann("facts", room=room))["version"] == {str(peer): len("before any client")}


async def test_a_fresh_client_joins_a_document_of_5_mib(place: Place, room: str) -> None:
    """It comes in many fragments, and is exactly what was written."""
    content = base64.b64encode(random.Random(5).randbytes(5 * MIB * 3 // 4)).decode()
    async with place.world.client.open(room) as session:
        type_into(session, content)
        await session.flush(timeout=30)
    ann = await place.joined(room)
    facts = await ann("facts", room=room)
    assert facts["characters"] == len(content) == 5 * MIB
    assert facts["sha256"] == hashlib.sha256(content.encode()).hexdigest()
    assert facts["fragments"] > 5 * MIB * 3 // 4 // (240 << 10)
    assert await ann("type", room=room, text=" and on") == OK


async def test_an_update_above_1_mib_goes_up_in_fragments(place: Place, room: str) -> None:
    """It is Acked once, and others have all of it."""
    content = base64.b64encode(random.Random(6).randbytes(MIB * 3 // 2)).decode()
    ann, bob = await asyncio.gather(place.joined(room), place.joined(room))
    async with place.world.client.open(room) as session:
        assert await ann("type", room=room, text=content) == OK
        await eventually(lambda: text_of(session) == content)
        await bob("sees", room=room, words=[content[-1000:]])
        facts = await bob("facts", room=room)
        assert facts["sha256"] == hashlib.sha256(content.encode()).hexdigest()
        assert facts["fragments"] > 1


async def test_one_connection_has_many_rooms(place: Place, room: str) -> None:
    """Each has its own text; the 65th is one too many, and the 64 go on."""
    ann, bob = await place.client(), await place.client()
    rooms = [f"{room}-{number}" for number in range(64)]
    for one in (ann, bob):
        await asyncio.gather(*(one("join", room=name) for name in rooms))
    assert (
        await asyncio.gather(*(ann("type", room=name, text=f"I am {name}.") for name in rooms)) == [OK] * 64
    )
    await asyncio.gather(*(bob("sees", room=name, words=[f"I am {name}."]) for name in rooms))
    assert [await bob("text", room=name) for name in rooms] == [f"I am {name}." for name in rooms]
    await refused(ann, "too_many_rooms", room=f"{room}-more")
    assert await ann("type", room=rooms[0], text=" Still.") == OK
    await ann("leave", room=rooms[1])
    await ann("join", room=f"{room}-more")


@pytest.mark.parametrize("bad", ["has space", "a/b", "a.b", "*", "-a", "_kv", "é", ""])
async def test_a_room_id_that_is_no_document_id_is_refused(place: Place, bad: str) -> None:
    """The join fails with our code, and the connection goes on."""
    ann = await place.client()
    for _ in range(2):
        await refused(ann, "invalid_document_id", room=bad)
    await ann("ping")
    assert await ann("closes") == []


@pytest.mark.parametrize("crdt", ["%YJS", "%YAW", "%ELO", "%FLO"])
async def test_a_crdt_that_we_do_not_have_is_refused(place: Place, room: str, crdt: str) -> None:
    """The join fails, and one with Loro on the same connection does not."""
    ann = await place.client()
    await refused(ann, "unsupported_crdt", room=room, crdt=crdt)
    await ann("join", room=room)
    assert await ann("type", room=room, text="fine") == OK


async def test_a_refused_update_reaches_no_other_client(place: Place, room: str) -> None:
    """The sender of invalid bytes gets the reason, others never see them, and the document continues."""
    ann, bob = await asyncio.gather(place.joined(room), place.joined(room))
    async with place.world.client.open(room) as session:
        assert await ann("type", room=room, text="one ") == OK
        batch = await ann("sendBytes", room=room, hex=random.Random(1).randbytes(200).hex())
        assert await ann("acked", batch=batch) == INVALID_UPDATE
        assert await ann("refused", room=room) == {"code": INVALID_UPDATE, "reason": "invalid_update"}
        assert await ann("type", room=room, text="two ") == OK
        assert await bob("sees", room=room, words=["two "]) == "one two "
        await eventually(lambda: text_of(session) == "one two ")
    assert (await bob("facts", room=room))["importErrors"] == []


async def test_an_update_that_needs_one_which_is_missing_heals(place: Place, room: str) -> None:
    """An update sent without those before it is not lost: the client joins again and sends all of it."""
    ann, bob = await asyncio.gather(place.joined(room), place.joined(room))
    assert await ann("type", room=room, text="known ") == OK
    await ann("typeUnsent", room=room, text="hidden ")
    await ann("type", room=room, text="shown ", acked=False)
    assert await bob("sees", room=room, words=["shown "]) == "known hidden shown "


async def test_a_read_only_gateway_refuses_every_write(place: Place, room: str) -> None:
    """Clients of a read-only gateway see others' edits; the gateway refuses their own, and no other client
    sees those.
    """
    gateway = await place.world.gateway("--read-only")
    reader = await place.world.npm.client(gateway.websocket)
    await refused(reader, "not_found", room=room)  # nor does it make documents
    ann = await place.joined(room)
    assert (await reader("join", room=room))["permission"] == "read"
    assert await ann("type", room=room, text="written ") == OK
    assert await reader("sees", room=room, words=["written "]) == "written "
    assert await reader("type", room=room, text="forbidden ") == PERMISSION_DENIED
    assert await reader("refused", room=room) == {"code": PERMISSION_DENIED, "reason": "permission_denied"}
    assert await ann("type", room=room, text="more ") == OK
    value = await place.world.client.document(room).get()
    assert value["value"] == {"body": "written more "}
    assert await gateway.stop() == 0


async def test_a_deleted_document_evicts_its_members(place: Place, room: str) -> None:
    """Members get a room error, and joins are refused until the document is restored."""
    ann = await place.joined(room)
    assert await ann("type", room=room, text="gone ") == OK
    document = place.world.client.document(room)
    await document.delete()
    errors = await ann("roomErrors")
    assert [(error["room"], error["code"]) for error in errors] == [(room, 2)]
    bob = await place.client()
    await refused(bob, "deleted", room=room)
    await document.restore()
    await bob("join", room=room)
    assert await bob("text", room=room) == "gone "


async def test_ping_is_answered_whatever_else_goes_on(place: Place, room: str) -> None:
    """Also with joined rooms, and many at once."""
    ann = await place.joined(room)
    await asyncio.gather(*(ann("ping") for _ in range(50)))
    assert await ann("closes") == []


async def test_an_ack_comes_after_the_journal_and_not_before(place: Place, room: str) -> None:
    """While the owner stands still nothing is Acked; when an Ack came, the edit is in the journal on disk."""
    ann = await place.joined(room)
    assert await ann("type", room=room, text="first ") == OK
    place.server.pause()
    try:
        batch = await ann("type", room=room, text="second ", acked=False)
        unanswered = [await ann("ping") for _ in range(20)]
    finally:
        place.server.go_on()
    assert unanswered == [1] * 20
    assert await ann("acked", batch=batch) == OK
    doc = LoroDoc()
    for payload in place.world.journalled(room):
        doc.import_(payload)
    assert doc.get_text("body").to_string() == "first second "


async def test_who_has_left_sees_nothing_more(place: Place, room: str) -> None:
    """And may come back to all of it."""
    ann, bob, cid = await asyncio.gather(*(place.joined(room) for _ in range(3)))
    await bob("leave", room=room)
    await bob("ping")
    assert await ann("type", room=room, text="alone ") == OK
    await cid("sees", room=room, words=["alone "])
    await bob("ping")
    assert await bob("text", room=room) == ""
