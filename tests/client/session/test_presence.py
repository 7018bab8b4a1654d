"""Presence: one entry per session, seen by everybody, gone when the session is."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_client import SessionClosed
from lorogo_client.session.presence import PresenceTooLarge, RoomPresence
from lorogo_protocol.loro import ephemeral
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Message
from tests.client.support import DEADLINE, QUICK, FakeOwner, client_of, eventually, new_world


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
        watcher = ephemeral.PresenceStore(0.3)
        watcher.apply(published[-1].data)
        assert watcher.states() == {session.presence.key: "here"}


async def test_an_entry_of_somebody_who_vanished_expires(world: MemoryNats, owner: FakeOwner) -> None:
    """And watch() tells it without anybody asking."""
    settings = replace(QUICK, presence_seconds=0.2)
    async with client_of(world, settings) as client, client.open("doc") as session:
        other = ephemeral.PresenceStore(0.2)
        other.store.set("ghost", "boo")
        seen = session.presence.watch()
        await owner.transport.bus.publish(subjects.awareness("doc"), other.encode_all())
        async with asyncio.timeout(DEADLINE):
            while await anext(seen) != {"ghost": "boo"}:
                pass
            assert await anext(seen) == {}


async def test_newcomers_get_the_merged_presence_with_the_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """Who is here is known when open() returns."""
    others = ephemeral.PresenceStore(30)
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
    other = ephemeral.PresenceStore(30)
    other.store.set("big", "x" * (QUICK.presence_bytes_max + 1))
    small = ephemeral.PresenceStore(30)
    small.store.set("small", 1)
    async with client_of(world) as client, client.open("doc") as session:
        for store in (other, small):
            await owner.transport.bus.publish(subjects.awareness("doc"), store.encode_all())
        await eventually(lambda: session.presence.all() == {"small": 1})


async def test_an_entry_without_a_value_is_an_entry(world: MemoryNats, owner: FakeOwner) -> None:
    """`None` is something to show; only who clears it shows nothing."""
    async with (
        client_of(world) as one,
        client_of(world, seed=2) as two,
        one.open("doc") as anna,
        two.open("doc") as bob,
    ):
        anna.presence.set(None)
        await eventually(lambda: bob.presence.all() == {anna.presence.key: None})
        anna.presence.clear()
        await eventually(lambda: bob.presence.all() == {})


async def test_what_was_handed_out_stays_as_it_was(world: MemoryNats, owner: FakeOwner) -> None:
    """An app may keep or change it: it is a copy."""
    async with client_of(world) as client, client.open("doc") as session:
        session.presence.set(1)
        first, seen = session.presence.all(), session.presence.watch()
        first["mine"] = "alone"
        session.presence.set(2)
        assert first == {session.presence.key: 1, "mine": "alone"}
        async with asyncio.timeout(DEADLINE):
            told = await anext(seen)
        assert told == session.presence.all() == {session.presence.key: 2}
        session.presence.set(3)
        assert told == {session.presence.key: 2}


_DOINGS = st.sampled_from(["theirs", "theirs gone", "set", "remove", "publish", "forged"])


@given(steps=st.lists(st.tuples(_DOINGS, st.sampled_from("abc"), st.integers(0, 2)), max_size=40))
def test_what_is_shown_is_what_loro_has_and_what_we_set(steps: Sequence[tuple[str, str, int]]) -> None:
    """After every step, and whoever watches has been told the newest of it; nobody is told the same twice."""

    async def run() -> None:
        world = await new_world()
        presence = RoomPresence(
            world.connect("client").bus, "doc", timeout_seconds=30, bytes_max=QUICK.presence_bytes_max
        )
        theirs, ours = ephemeral.PresenceStore(30), dict[str, int]()
        unpublished = set[str]()
        feed = presence.watch()
        told = await anext(feed)
        for doing, key, value in steps:
            match doing:
                case "theirs":
                    theirs.store.set(key, value)
                    presence.apply(theirs.store.encode(key))
                case "theirs gone":
                    theirs.store.delete(key)
                    presence.apply(theirs.store.encode(key))
                case "set":
                    ours[key] = value
                    unpublished.add(key)
                    presence.set(key, value)
                case "remove":
                    if ours.pop(key, None) is not None:
                        unpublished.add(key)
                    presence.remove(key)
                case "publish":
                    await presence.publish(set(unpublished))
                    unpublished.clear()
                case "forged":
                    presence.apply(b"not a presence")
            stored = presence._presence.states().items()
            expected = {**{one: it for one, it in stored if one not in unpublished}, **ours}
            assert presence.all() == expected
            if expected != told:
                assert feed._items
                told = await anext(feed)
            assert told == expected
            assert not feed._items

    asyncio.run(run())
