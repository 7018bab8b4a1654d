"""A room follows the owner: in order, without gaps, from one owner to the next."""

import weakref
from pathlib import Path

import pytest

from lorogo_client import Client, SessionClosed, State
from lorogo_client.session.room import Room
from lorogo_protocol.loro.crdt import Applied, Unready
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Down, Failed, Starting, Status, Up
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import (
    DEADLINE,
    QUICK,
    FakeOwner,
    client_of,
    eventually,
    text_of,
    type_in,
    until_state,
)
from tests.freed import no_collection, until_freed


def room_of(client: Client) -> Room:
    return next(iter(client._rooms.values()))


async def test_what_follows_is_applied_without_a_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """One sync at the start is enough while nothing is missing."""
    async with client_of(world) as client, client.open("doc", read_only=True) as session:
        for number in range(50):
            await owner.edit(f"{number} ")
        await eventually(lambda: text_of(session) == owner.text())
        assert len(owner.syncs) == 1


async def test_a_newcomer_gets_everything_in_one_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """The state is there when open() returns."""
    await owner.edit("before", tell=False)
    async with client_of(world) as client, client.open("doc") as session:
        assert text_of(session) == "before"
        assert owner.syncs[0]["frontiers"] == b"\x00"


async def test_a_gap_leads_to_one_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """A predecessor that we have not seen: we ask, and lose nothing."""
    async with client_of(world) as client, client.open("doc") as session:
        await owner.edit("lost ", tell=False)
        await owner.edit("heard")
        await eventually(lambda: text_of(session) == "lost heard")
        assert len(owner.syncs) == 2
        await owner.edit(" more")
        await eventually(lambda: text_of(session) == "lost heard more")
        assert len(owner.syncs) == 2


async def test_many_gaps_at_once_are_not_many_syncs(world: MemoryNats, owner: FakeOwner) -> None:
    """Never two syncs at the same time, and one covers all that came before it."""
    async with client_of(world) as client, client.open("doc") as session:
        for number in range(20):
            await owner.edit(f"{number}", tell=number % 2 == 1)
        await eventually(lambda: text_of(session) == owner.text())
        assert len(owner.syncs) <= 4


async def test_an_announced_update_is_fetched(world: MemoryNats, owner: FakeOwner) -> None:
    """LORO_OMITTED: too large to push, so we sync."""
    async with client_of(world) as client, client.open("doc") as session:
        previous = owner.head
        update = await owner.edit("large", tell=False)
        await owner.publish_accepted("other", update, previous, omitted=True)
        await eventually(lambda: text_of(session) == "large")
        assert len(owner.syncs) == 2


async def test_an_accepted_update_in_chunks_is_put_together(world: MemoryNats, owner: FakeOwner) -> None:
    """No sync is needed for it."""
    async with client_of(world) as client, client.open("doc") as session:
        previous = owner.head
        update = await owner.edit("in many pieces", tell=False)
        await owner.publish_accepted("other", update, previous, chunk_bytes=10)
        await eventually(lambda: text_of(session) == "in many pieces")
        assert len(owner.syncs) == 1


async def test_a_head_that_we_have_not_seen_leads_to_a_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """A lost tail shows with the next renewal."""
    async with client_of(world) as client, client.open("doc") as session:
        await owner.edit("silent", tell=False)
        await owner.renew()
        await eventually(lambda: text_of(session) == "silent")
        await owner.renew()
        await owner.edit(" loud")
        await eventually(lambda: text_of(session) == "silent loud")
        assert len(owner.syncs) == 2


async def test_statuses_of_a_bucket_that_counts_from_below_are_heard(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A status bucket that was lost and made anew may have lower revisions: the leader's word counts."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        room = room_of(client)
        room._revision = owner.revision + 1000  # as heard before the loss
        transport.cut()
        await eventually(lambda: room._connecting)
        transport.heal()
        await until_state(session, State.SAVED)
        await owner.edit("silent", tell=False)
        await owner.renew()
        await eventually(lambda: text_of(session) == "silent")


async def test_damaged_messages_change_nothing(world: MemoryNats, owner: FakeOwner) -> None:
    """Junk on the accepted, status and presence subjects is dropped; a bad update leads to a fresh copy."""
    async with client_of(world) as client, client.open("doc") as session:
        await owner.edit("good")
        await eventually(lambda: text_of(session) == "good")
        bus = owner.transport.bus
        for subject in (subjects.accepted("doc"), subjects.status("doc"), subjects.awareness("doc")):
            await bus.publish(subject, b"junk")
            await bus.publish(subject, b"junk", headers={"LORO_SEQUENCE": "x", "LORO_CHUNK_INDEX": "-1"})
        previous, owner.head = owner.head, owner.head + 1
        await owner.publish_accepted("junk", b"not a Loro update", previous)
        await owner.edit(" still")
        await eventually(lambda: text_of(session) == "good still")
        type_in(session.doc, "and ")
        await session.flush(DEADLINE)
        assert owner.text() == "and good still"


async def test_own_updates_are_not_imported_again(world: MemoryNats, owner: FakeOwner) -> None:
    """They are recognised by their log id and count for the chain."""
    async with client_of(world) as client, client.open("doc") as session:
        replica = room_of(client).mirror.replica
        applied: list[bytes] = []
        original = replica.apply

        def counted(update: bytes) -> Applied | Unready:
            applied.append(update)
            return original(update)

        replica.apply = counted  # type: ignore[method-assign]
        for number in range(5):
            type_in(session.doc, f"{number}")
            await session.flush(DEADLINE)
        await owner.edit("x")
        await eventually(lambda: len(applied) == 1)
        assert len(owner.syncs) == 1


async def test_after_a_reconnect_what_was_missed_is_there(world: MemoryNats, owner: FakeOwner) -> None:
    """A reconnect leads to a sync."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        transport.cut()
        await until_state(session, State.OFFLINE)
        await eventually(lambda: room_of(client)._connecting)
        await owner.edit("missed")
        transport.heal()
        await until_state(session, State.SAVED)
        assert text_of(session) == "missed"
        assert len(owner.syncs) == 2


async def test_an_owner_that_dies_is_replaced_and_the_edit_is_saved(world: MemoryNats) -> None:
    """No answer, no responders to a ping: the client starts the document elsewhere, and sends again."""
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world) as client,
        client.open("doc") as session,
    ):
        type_in(session.doc, "one ")
        await session.flush(DEADLINE)
        snapshot = first.replica.snapshot()
        await first.vanish()
        async with FakeOwner(world, name="second") as second:
            second.replica = type(second.replica).from_snapshot(snapshot)
            type_in(session.doc, "two", at=4)
            receipt = await session.flush(DEADLINE)
            assert receipt is not None
            assert receipt.lease == second.token > first.token
            assert second.text() == "one two"
            assert session.state is State.SAVED


async def test_a_document_that_went_down_is_started_by_the_next_edit(world: MemoryNats) -> None:
    """A graceful stop: nobody starts it for nothing, and the next edit does it at once."""
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world) as client,
        client.open("doc") as session,
    ):
        await first.stop()
        async with FakeOwner(world, name="second") as second:
            await eventually(lambda: room_of(client).mirror.need.owner)
            assert session.state is State.SAVED
            assert room_of(client)._next_due(0.0) is None
            assert second.inits == 0
            type_in(session.doc, "wake up")
            await session.flush(DEADLINE)
            assert second.inits == 1
            assert second.text() == "wake up"


async def test_a_down_tells_of_what_was_missed(world: MemoryNats) -> None:
    """A reader that missed the last update before a graceful stop has the document started, and syncs."""
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world) as client,
        client.open("doc", read_only=True) as reader,
    ):
        await first.edit("missed", tell=False)
        async with FakeOwner(world, name="second") as second:
            second.replica = first.replica
            await first.stop()
            await eventually(lambda: text_of(reader) == "missed")


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([], id="nothing"),
        pytest.param([Starting("op", 0, 0)], id="starting"),
        pytest.param([Failed("trace", 0), Down(0)], id="reset"),
    ],
)
async def test_what_was_missed_of_an_owner_that_died_without_a_word_comes_by_itself(
    world: MemoryNats, later: list[Status]
) -> None:
    """Its last update did not reach a reader, and no renewal tells of it.

    When nobody has renewed the status for `stale_seconds`, the reader has the document served and syncs,
    whatever others wrote meanwhile who do not go on.
    """
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world) as client,
        client.open("doc", read_only=True) as reader,
    ):
        await first.edit("missed", tell=False)
        await first.vanish()
        statuses, revision = Statuses(world.connect("hand")), first.revision
        for status in later:
            revision = await statuses.write("doc", status, expected_revision=revision)
        async with FakeOwner(world, name="second") as second:
            second.replica = first.replica
            await eventually(lambda: text_of(reader) == "missed" and reader.state is State.SAVED)


async def test_an_owner_that_is_silent_and_there_is_left_alone(world: MemoryNats, owner: FakeOwner) -> None:
    """It answers the ping: no sync, and the session says `saved` all the time."""
    async with client_of(world) as client, client.open("doc", read_only=True) as reader:
        room = room_of(client)
        asked = room._pinged_at
        await eventually(lambda: room._pinged_at > asked)
        assert reader.state is State.SAVED
        assert owner.calls == ["sync"]
        assert owner.inits == 1


async def test_a_new_owner_that_others_started_is_followed(world: MemoryNats) -> None:
    """A reader hears of the new lease and syncs with whoever has it."""
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world) as client,
        client.open("doc", read_only=True) as reader,
    ):
        await first.edit("one ")
        await eventually(lambda: text_of(reader) == "one ")
        snapshot = first.replica.snapshot()
        await first.stop()
        async with FakeOwner(world, name="second") as second, client_of(world, seed=2) as other:
            second.replica = type(second.replica).from_snapshot(snapshot)
            async with other.open("doc") as writer:
                type_in(writer.doc, "two", at=4)
                await writer.flush(DEADLINE)
            await eventually(lambda: text_of(reader) == "one two")
            assert len(second.syncs) == 2


async def test_a_status_bucket_that_begins_lower_is_followed(world: MemoryNats) -> None:
    """NATS lost the bucket, and a clock that is behind began it anew: what it says is heard."""
    transport = world.connect("client")
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world, transport=transport) as client,
        client.open("doc", read_only=True) as reader,
    ):
        for _ in range(20):
            await first.renew()
        await eventually(lambda: room_of(client)._revision == first.revision)
        transport.cut()
        await first.vanish_with_statuses()
        async with FakeOwner(world, name="second") as second:
            transport.heal()
            await eventually(lambda: len(second.syncs) == 1 and reader.state is State.SAVED)
            assert second.revision < first.revision
            await second.edit("silent", tell=False)
            await second.renew()
            await eventually(lambda: text_of(reader) == "silent")


async def test_a_server_that_lost_the_document_is_not_followed(world: MemoryNats, owner: FakeOwner) -> None:
    """Accepted updates with an older token than the newest seen are not taken."""
    async with client_of(world) as client, client.open("doc") as session:
        token = owner.token
        statuses = Statuses(world.connect("hand"))
        await statuses.write(
            "doc", Up("newer", 0), expected_revision=owner.revision, server="newer", lease=token + 100
        )
        await eventually(lambda: room_of(client).mirror.token == token + 100)
        await owner.edit("zombie")
        await owner.transport.bus.barrier()
        await client.transport.bus.barrier()
        assert text_of(session) == ""


@pytest.mark.parametrize("reason", [Reason.NOT_OWNER, Reason.BUSY])
async def test_a_sync_that_is_put_off_is_asked_again(
    world: MemoryNats, owner: FakeOwner, reason: Reason
) -> None:
    """A server that is losing the document, or has too much to do, is not an error for the app."""
    owner.refuse_calls.extend([reason, reason])
    await owner.edit("here", tell=False)
    async with client_of(world) as client, client.open("doc") as session:
        assert text_of(session) == "here"


async def test_an_idle_room_does_nothing(world: MemoryNats, owner: FakeOwner) -> None:
    """A room that has nothing to do waits for the owner's next word, and has no other timer."""
    async with client_of(world) as client, client.open("doc"):
        room = room_of(client)
        now = room._context.clock.now()
        due = room._next_due(now)
        assert due is not None
        assert due <= now + QUICK.stale_seconds
        await eventually(lambda: not room._wake.is_set())
        assert owner.calls == ["sync"]


@pytest.mark.parametrize("stored", [False, True])
async def test_a_closed_document_is_freed_at_once(
    world: MemoryNats, owner: FakeOwner, tmp_path: Path, stored: bool
) -> None:
    """An app in which documents come and go does not grow by those that went, whenever Python collects."""
    async with client_of(world, store=tmp_path if stored else None) as client:
        with no_collection():
            async with client.open("doc") as session:
                type_in(session.doc, "hello")
                session.commit()
                await session.flush()
                session.presence.set("here")
                room = room_of(client)
                freed = [weakref.ref(one) for one in (session, room, room.mirror, room.mirror.replica)]
            presence = session.presence
            del session, room
            for one in freed:
                await until_freed(one)
            with pytest.raises(SessionClosed):
                presence.all()
