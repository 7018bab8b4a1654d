"""A client with a token, in memory: the broker allows what the token grants and counts everything else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

import lorogo_client
from lorogo_client import Client, ClientSettings, NotAllowed, ReadOnly, State
from lorogo_client.auth.token_provider import TokenSource
from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import Access, subjects_of
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_testing.broker import ConnectionIdentity
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_transport.ports import Message, PermissionViolation
from tests.client.support import DEADLINE, QUICK, FakeOwner, eventually, text_of, type_in, until_state
from tests.client.tokens import SetClock, token_for
from tests.gateway.relay_pages import Page, relayed


@dataclass
class Guest:
    """A client with a token, its connection, and what the broker refused it."""

    client: Client
    line: MemoryTransport
    refusals: list[PermissionViolation] = field(default_factory=list)


@asynccontextmanager
async def _guest(
    world: MemoryNats,
    source: TokenSource,
    token: str,
    *,
    clock: SetClock | None = None,
    settings: ClientSettings = QUICK,
) -> AsyncIterator[Guest]:
    """The rights of the connection are those of the documents that the token names."""
    said = tokens.peek(token)
    named = [(document, said.grants.access(document)) for document in said.grants.named]
    standing = ConnectionIdentity(subjects.user_inbox(said.user), permissions=subjects_of(said.user, named))
    line = world.connect("guest", standing)
    refusals: list[PermissionViolation] = []
    line.bus.watch_refusals(refusals.append)
    async with lorogo_client.connect(line, token=source, settings=settings, clock=clock) as client:
        yield Guest(client, line, refusals)


async def test_a_session_needs_nothing_but_what_the_token_grants(world: MemoryNats, owner: FakeOwner) -> None:
    """Starting, syncing, editing, presence and calls, through a loss of the owner and of the connection."""
    token = token_for("ann", {"doc": "write"})
    async with _guest(world, token, token) as ann, ann.client.open("doc") as session:
        type_in(session.doc, "hello")
        await session.flush(DEADLINE)
        session.presence.set({"name": "ann"})
        assert (await ann.client.document("doc").get())["value"] == {"t": "hello"}
        await ann.client.document("doc").patch([])
        ann.line.bus.cut()
        type_in(session.doc, "offline ")
        session.commit()
        ann.line.bus.heal()
        await session.flush(DEADLINE)
        await owner.vanish()
        async with FakeOwner(world, name="next") as following:
            following.replica = owner.replica
            type_in(session.doc, "again ")
            await session.flush(DEADLINE)
        assert ann.refusals == []
        assert ann.client.subject == "ann"
        assert ann.client.access("doc") is Access.WRITE


async def test_nobody_looks_for_servers_with_a_token(world: MemoryNats) -> None:
    """Where nobody serves the document the error comes without asking what only services may ask."""
    token = token_for("ann", {"doc": "write"})
    async with _guest(world, token, token) as ann:
        with pytest.raises(lorogo_client.NotServed, match="no server is connected"):
            await ann.client.document("doc").get(timeout=1.0)
        assert ann.refusals == []


async def test_a_grant_to_read_opens_read_only(world: MemoryNats, owner: FakeOwner) -> None:
    """Whether or not it was asked for; edits are dropped, nothing is sent."""
    token = token_for("ann", {"doc": "read"})
    async with _guest(world, token, token) as ann, ann.client.open("doc") as session:
        assert session.read_only
        type_in(session.doc, "no")
        with pytest.raises(ReadOnly):
            session.commit()
        await owner.edit("theirs")
        await eventually(lambda: text_of(session) == "theirs")
        assert owner.received == []
        assert ann.refusals == []


async def test_every_call_carries_the_token_or_the_one_that_is_given(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Syncs too; a member of a relay has its own."""
    token, other = token_for("ann", {"doc": "write"}), token_for("bob", {"doc": "read"})
    heard: list[tuple[str, str]] = []

    def note(message: Message) -> None:
        heard.append((message.subject.split(".")[2], message.headers.get(h.TOKEN, "")))

    await world.connect("tap").bus.subscribe(subjects.calls("doc"), note)
    async with _guest(world, token, token) as ann:
        async with ann.client.open("doc"):
            await ann.client.document("doc").version()
            await ann.client.document("doc", token=other).get()
        assert set(heard) == {("sync", token), ("version", token), ("get", other)}
        heard.clear()
        page = Page()
        async with relayed(ann.client, "doc", page, token=other) as page.member:
            await page.join()
        assert set(heard) == {("sync", other)}
        assert ann.refusals == []


async def test_what_the_owner_denies_is_the_same_error(world: MemoryNats, owner: FakeOwner) -> None:
    """To calls, to a session that opens, and to a member that joins."""
    token = token_for("ann", {"doc": "write"})
    slow = replace(QUICK, retry_seconds_max=5.0)
    async with _guest(world, token, token, settings=slow) as ann:
        owner.refuse_calls.append(Reason.PERMISSION_DENIED)
        with pytest.raises(NotAllowed, match="as told"):
            await ann.client.document("doc").patch([])
        owner.refuse_calls.append(Reason.PERMISSION_DENIED)
        with pytest.raises(NotAllowed, match="as told") as no:
            await ann.client.open("doc")
        assert no.value.document_id == "doc"
        page = Page()
        async with relayed(ann.client, "doc", page) as page.member:
            owner.refuse_calls.append(Reason.PERMISSION_DENIED)
            with pytest.raises(NotAllowed, match="as told"):
                await page.join()
            await page.join()


async def test_a_session_that_is_denied_keeps_its_edits_and_asks_again(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A server that has not read its keys yet says no, too: that passes by itself."""
    token = token_for("ann", {"doc": "write"})
    async with _guest(world, token, token) as ann, ann.client.open("doc") as session:
        owner.refuse_calls.extend([Reason.PERMISSION_DENIED] * 3)
        ann.line.bus.cut()
        await until_state(session, State.OFFLINE)
        type_in(session.doc, "kept")
        session.commit()
        ann.line.bus.heal()
        await eventually(lambda: isinstance(session.problem, NotAllowed))
        assert session.state is State.CONNECTING
        assert session.unsaved == 1
        await until_state(session, State.SAVED)
        assert session.problem is None
        assert owner.text() == "kept"


async def test_a_fresh_token_may_grant_less(world: MemoryNats, owner: FakeOwner) -> None:
    """What is open goes on as far as it may; the rest is told, and not sent."""
    clock = SetClock()
    given = [token_for("ann", {"doc": "write"}, seconds=100)]

    async def source() -> str:
        return given[-1]

    async with _guest(world, source, given[0], clock=clock) as ann, ann.client.open("doc") as session:
        type_in(session.doc, "mine ")
        await session.flush(DEADLINE)
        given.append(token_for("ann", {"doc": "read"}, seconds=1000))
        clock.ahead = 95.0
        await ann.client.pool.renew_if_due()
        type_in(session.doc, "no ")
        session.commit()
        with pytest.raises(NotAllowed, match="only grants read on 'doc'; write is needed"):
            await session.flush(DEADLINE)
        await owner.edit("theirs")
        await eventually(lambda: text_of(session) == "no mine theirs")
        assert [len(owner.received), session.unsaved] == [1, 1]
        given.append(token_for("ann", {"doc": "write"}, seconds=5000))
        clock.ahead = 950.0
        await ann.client.pool.renew_if_due()
        await session.flush(DEADLINE)
        assert owner.text() == "no mine theirs"


@pytest.mark.parametrize("less", ["read", "none"])
async def test_a_fresh_token_that_grants_it_again_is_noticed(
    world: MemoryNats, owner: FakeOwner, less: str
) -> None:
    """At the owner's next renewal at the latest, without anybody who asks: the edits leave."""
    clock = SetClock()
    given = [token_for("ann", {"doc": "write"}, seconds=100)]

    async def source() -> str:
        return given[-1]

    async with _guest(world, source, given[0], clock=clock) as ann, ann.client.open("doc") as session:
        given.append(token_for("ann", {"other": "write"} if less == "none" else {"doc": less}, seconds=1000))
        clock.ahead = 95.0
        await ann.client.pool.renew_if_due()
        type_in(session.doc, "kept")
        session.commit()
        room = session._room
        await eventually(lambda: not room._wake.is_set() and room._timer._handle is None)
        assert [len(owner.received), session.unsaved] == [0, 1]
        given.append(token_for("ann", {"doc": "write"}, seconds=5000))
        clock.ahead = 950.0
        await ann.client.pool.renew_if_due()
        await owner.renew()
        await until_state(session, State.SAVED)
        assert owner.text() == "kept"


@pytest.mark.parametrize("token", ["", "a.b.c", "Bearer x"])
async def test_what_is_no_token_opens_nothing(world: MemoryNats, token: str) -> None:
    """An empty one, too: it does not mean "none"."""
    with pytest.raises(TokenRefused):
        await lorogo_client.connect(world.connect("c"), token=token)


async def test_a_source_that_fails_is_told_at_the_door(world: MemoryNats) -> None:
    """Its own error comes out; nothing is left behind."""

    async def source() -> str:
        await asyncio.sleep(0)
        raise LookupError("signed out")

    with pytest.raises(LookupError, match="signed out"):
        await lorogo_client.connect(world.connect("c"), token=source)
