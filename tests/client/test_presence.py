"""Presence: one entry per session, seen by everybody, gone when the session is."""

import asyncio
from dataclasses import replace

import pytest

from lorogo_client import SessionClosed
from lorogo_client.presence import PresenceTooLarge
from lorogo_protocol import crdt, subjects
from lorogo_transport.memory import MemoryNats
from lorogo_transport.ports import Message
from tests.client.support import DEADLINE, QUICK, FakeOwner, client_of, eventually


async def test_an_entry_is_seen_by_others_and_goes_with_its_session(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """set() shows it, leaving takes it away, watch() tells both."""
    async with client_of(world) as one, client_of(world, seed=2) as two, two.open("doc") as bob:
        seen = bob.presence.watch()
        async with asyncio.timeout(DEADLINE):
            assert await anext(seen) == {}
            async with one.open("doc") as anna:
                anna.presence.set({"name": "anna", "cursor": 3})
                assert anna.presence.all() == {anna.presence.key: {"name": "anna", "cursor": 3}}
                assert await anext(seen) == {anna.presence.key: {"name": "anna", "cursor": 3}}
                anna.presence.set({"name": "anna", "cursor": 4})
                anna.presence.set({"name": "anna", "cursor": 5})
                while await anext(seen) != {anna.presence.key: {"name": "anna", "cursor": 5}}:
                    pass
            assert await anext(seen) == {}
        with pytest.raises(SessionClosed):
            anna.presence.set({})


async def test_two_sessions_of_one_process_have_two_entries(world: MemoryNats, owner: FakeOwner) -> None:
    """The room is shared, the entries are not."""
    async with client_of(world) as client, client.open("doc") as one, client.open("doc") as two:
        one.presence.set("one")
        two.presence.set("two")
        assert one.presence.all() == {one.presence.key: "one", two.presence.key: "two"}
        one.presence.clear()
        assert two.presence.all() == {two.presence.key: "two"}


async def test_an_entry_is_renewed_before_it_expires(world: MemoryNats, owner: FakeOwner) -> None:
    """It is published again and again while the session lives, and nothing else is."""
    published: list[Message] = []
    await owner.transport.bus.subscribe(subjects.awareness("doc"), published.append)
    settings = replace(QUICK, presence_seconds=0.3)
    async with client_of(world, settings) as client, client.open("doc") as session:
        session.presence.set("here")
        await eventually(lambda: len(published) >= 5)
        watcher = crdt.Presence(0.3)
        watcher.apply(published[-1].data)
        assert watcher.states() == {session.presence.key: "here"}


async def test_an_entry_of_somebody_who_vanished_expires(world: MemoryNats, owner: FakeOwner) -> None:
    """And watch() tells it without anybody asking."""
    settings = replace(QUICK, presence_seconds=0.2)
    async with client_of(world, settings) as client, client.open("doc") as session:
        other = crdt.Presence(0.2)
        other.store.set("ghost", "boo")
        seen = session.presence.watch()
        await owner.transport.bus.publish(subjects.awareness("doc"), other.encode_all())
        async with asyncio.timeout(DEADLINE):
            while await anext(seen) != {"ghost": "boo"}:
                pass
            assert await anext(seen) == {}


async def test_newcomers_get_the_merged_presence_with_the_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """Who is here is known when open() returns."""
    others = crdt.Presence(30)
    others.store.set("anna", {"cursor": 1})
    owner.presence = others.encode_all()
    async with client_of(world) as client, client.open("doc") as session:
        assert session.presence.all() == {"anna": {"cursor": 1}}


async def test_an_entry_has_a_bound(world: MemoryNats, owner: FakeOwner) -> None:
    """Too large is an error of set(); what was there before stays."""
    async with client_of(world) as client, client.open("doc") as session:
        session.presence.set("small")
        with pytest.raises(PresenceTooLarge):
            session.presence.set("x" * (QUICK.presence_bytes_max + 1))
        assert session.presence.all() == {session.presence.key: "small"}


async def test_too_large_a_message_of_others_is_dropped(world: MemoryNats, owner: FakeOwner) -> None:
    """It cannot fill our memory."""
    other = crdt.Presence(30)
    other.store.set("big", "x" * (QUICK.presence_bytes_max + 1))
    small = crdt.Presence(30)
    small.store.set("small", 1)
    async with client_of(world) as client, client.open("doc") as session:
        for store in (other, small):
            await owner.transport.bus.publish(subjects.awareness("doc"), store.encode_all())
        await eventually(lambda: session.presence.all() == {"small": 1})
