"""Sessions: saving, hearing others, honest states, and leaving."""

import asyncio
import time
from dataclasses import replace

import pytest
from loro import Diff, TextDelta

import lorogo_client
from lorogo_client import (
    Change,
    DocumentDeleted,
    DocumentFailed,
    NotServed,
    OfflineBufferFull,
    ReadOnly,
    SessionClosed,
    State,
    StorageFull,
    Timeout,
    TooLargeUpdate,
    Unsaved,
    UpdateRefused,
)
from lorogo_client.session.notifications import Item
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Failed
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


async def test_an_edit_is_saved_when_the_owner_acked_it(world: MemoryNats, owner: FakeOwner) -> None:
    """commit() sends in the background; flush() returns with the receipt; the owner has the text."""
    async with client_of(world) as client, client.open("doc") as session:
        await until_state(session, State.SAVED)
        assert await session.flush() is None
        type_in(session.doc, "hello")
        session.commit("a message")
        assert session.state is not State.SAVED
        receipt = await session.flush(DEADLINE)
        assert receipt is not None
        assert (receipt.sequence, receipt.lease) == (owner.head, owner.token)
        assert receipt.durability == "stream"
        assert receipt.frontiers == session.version().frontiers
        await until_state(session, State.SAVED)
        assert owner.text() == "hello"


async def test_flush_commits_what_is_open(world: MemoryNats, owner: FakeOwner) -> None:
    """Every local edit is ACKed after flush(), also one that nobody committed."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "open")
        await session.flush(DEADLINE)
        assert owner.text() == "open"


async def test_an_edit_that_an_import_commits_is_not_lost(world: MemoryNats, owner: FakeOwner) -> None:
    """Loro commits open edits when it imports; they are sent like any other."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "mine ")
        await owner.edit("theirs")
        await eventually(lambda: "mine" in owner.text() and "theirs" in text_of(session))
        await until_state(session, State.SAVED)
        assert owner.text() == text_of(session)


async def test_saved_is_never_said_before_the_ack(world: MemoryNats, owner: FakeOwner) -> None:
    """Between commit and ACK the state is never SAVED, whatever else arrives."""
    async with client_of(world) as client, client.open("doc") as session:
        states = session.states()
        owner.mute = 1
        type_in(session.doc, "x")
        session.commit()
        seen: list[State] = []
        async with asyncio.timeout(DEADLINE):
            async for state in states:
                if state is State.SAVED and not session.unsaved:
                    break
                seen.append(state)
                assert state is not State.SAVED
        assert State.SAVING in seen
        assert len(owner.received) >= 2


async def test_a_lost_answer_leads_to_the_same_bytes_under_the_same_id(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Without an answer the whole message goes again, with its log id."""
    async with client_of(world) as client, client.open("doc") as session:
        owner.mute = 2
        type_in(session.doc, "once")
        await session.flush(DEADLINE)
        assert len(owner.received) == 3
        assert len(set(owner.received)) == 1
        assert owner.text() == "once"


async def test_a_first_try_that_nats_dropped_is_sent_again_before_the_answer_is_overdue(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """The owner answers a ping and not the update: a stream that was busy may have dropped it."""
    settings = replace(QUICK, reply_seconds=10 * DEADLINE)
    async with client_of(world, settings) as client, client.open("doc") as session:
        owner.mute = 1
        type_in(session.doc, "once")
        await session.flush(DEADLINE)
        assert len(owner.received) == 2
        assert len(set(owner.received)) == 1
        assert owner.text() == "once"


async def test_the_ack_of_a_server_that_lost_the_document_is_ignored(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A receipt with a lower token saves nothing; the update is sent again and then ACKed rightly."""
    async with client_of(world) as client, client.open("doc") as session:
        owner.leases.extend([owner.token - 1, owner.token - 1])
        type_in(session.doc, "x")
        receipt = await session.flush(DEADLINE)
        assert receipt is not None
        assert receipt.lease == owner.token
        assert len(owner.received) == 3
        assert len(set(owner.received)) == 1


@pytest.mark.parametrize(
    "reason",
    [Reason.DIGEST_MISMATCH, Reason.CHUNK_MISSING, Reason.NOT_OWNER, Reason.BUSY, Reason.RATE_LIMITED],
)
async def test_a_passing_refusal_leads_to_the_same_bytes_again(
    world: MemoryNats, owner: FakeOwner, reason: Reason
) -> None:
    """The same id and bytes, until they are taken."""
    async with client_of(world) as client, client.open("doc") as session:
        owner.nacks.extend([reason, reason])
        type_in(session.doc, "x")
        await session.flush(DEADLINE)
        assert len(owner.received) == 3
        assert len(set(owner.received)) == 1
        assert session.problem is None


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (Reason.INVALID_UPDATE, UpdateRefused),
        (Reason.TOO_LARGE, TooLargeUpdate),
        (Reason.READ_ONLY, UpdateRefused),
        (Reason.DELETED, DocumentDeleted),
    ],
)
async def test_a_final_refusal_reaches_the_app_and_the_state_stays_honest(
    world: MemoryNats, owner: FakeOwner, reason: Reason, error: type[Exception]
) -> None:
    """flush(), commit(), changes() and leaving say it; nothing ever says SAVED again."""
    async with client_of(world) as client:
        with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
            async with client.open("doc") as session:
                changes = session.changes()
                owner.nacks.append(reason)
                type_in(session.doc, "x")
                with pytest.raises(error):
                    await session.flush(DEADLINE)
                assert isinstance(session.problem, error)
                assert session.state is State.SAVING
                with pytest.raises(error):
                    await anext(changes)
                type_in(session.doc, "y")
                with pytest.raises(error):
                    session.commit()
                assert session.state is State.SAVING
        assert len(owner.received) == 1


async def test_a_long_change_that_is_refused_is_sent_in_parts(world: MemoryNats, owner: FakeOwner) -> None:
    """An owner takes 20,000 tree operations, but 2,000 beside an edit that came first: no client can know."""
    async with client_of(world) as client, client.open("doc") as session:
        owner.nacks.append(Reason.TOO_LARGE)
        for _ in range(2500):
            session.doc.get_tree("tree").create()
        session.commit()
        await session.flush(DEADLINE)
        assert session.problem is None
        assert len(owner.received) == 1 + 4
        assert len(owner.replica.doc.get_tree("tree").nodes()) == 2500


async def test_a_long_change_that_is_refused_in_parts_fails(world: MemoryNats, owner: FakeOwner) -> None:
    """It is cut once."""
    async with client_of(world) as client:
        with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
            async with client.open("doc") as session:
                owner.nacks.extend([Reason.TOO_LARGE] * 4)
                for _ in range(2500):
                    session.doc.get_tree("tree").create()
                session.commit()
                with pytest.raises(TooLargeUpdate):
                    await session.flush(DEADLINE)


async def test_a_full_stream_is_an_error_and_not_an_endless_retry(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """flush() says StorageFull; another flush() asks again, and succeeds when there is room."""
    async with client_of(world) as client, client.open("doc") as session:
        world.store(subjects.WAL_STREAM).config["max_bytes"] = 1
        type_in(session.doc, "x")
        with pytest.raises(StorageFull):
            await session.flush(DEADLINE)
        assert session.state is State.SAVING
        world.store(subjects.WAL_STREAM).config["max_bytes"] = -1
        await session.flush(DEADLINE)
        assert owner.text() == "x"
        assert session.problem is None


async def test_what_the_owner_misses_is_sent_with_the_edit(world: MemoryNats, owner: FakeOwner) -> None:
    """missing-dependencies: a sync by version vector, then one update with all that it lacks."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "first ")
        await session.flush(DEADLINE)
        owner.replica, owner.head = type(owner.replica)(), 0  # it forgot what it had ACKed
        type_in(session.doc, "second", at=6)
        await session.flush(DEADLINE)
        assert owner.text() == "first second"
        assert "vector" in owner.syncs[-1]


async def test_what_an_owner_lost_comes_back_from_a_client(world: MemoryNats, owner: FakeOwner) -> None:
    """After any sync the client sends what the owner's vector lacks, edits or not."""
    async with client_of(world) as client, client.open("doc") as session:
        type_in(session.doc, "kept")
        await session.flush(DEADLINE)
        owner.replica = type(owner.replica)()
        await owner.renew(head=owner.head + 100)
        await eventually(lambda: owner.text() == "kept")
        await until_state(session, State.SAVED)


async def test_edits_made_while_offline_leave_as_one_update(world: MemoryNats, owner: FakeOwner) -> None:
    """They are kept in order, merged, and sent after the reconnect; the state says OFFLINE."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        transport.cut()
        await until_state(session, State.OFFLINE)
        for number in range(20):
            type_in(session.doc, f"{number} ")
            session.commit()
        assert session.unsaved == 20
        with pytest.raises(Timeout):
            await session.flush(0.05)
        transport.heal()
        await session.flush(DEADLINE)
        assert owner.text() == text_of(session)
        assert len(owner.received) == 1


async def test_what_was_in_flight_at_the_cut_keeps_its_id_and_bytes(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Only what was never sent is merged."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        owner.mute = 1
        type_in(session.doc, "sent ")
        session.commit()
        await eventually(lambda: len(owner.received) == 1)
        transport.cut()
        for number in range(3):
            type_in(session.doc, f"{number} ")
            session.commit()
        transport.heal()
        await session.flush(DEADLINE)
        assert owner.received[0] == owner.received[1]
        assert len({log_id for log_id, _ in owner.received}) == 2
        assert owner.text() == text_of(session)


async def test_a_full_offline_buffer_leaves_the_edit_open(world: MemoryNats, owner: FakeOwner) -> None:
    """OfflineBufferFull from commit(); nothing queued is lost and the edit is sent later."""
    transport = world.connect("client")
    settings = replace(QUICK, unsent_bytes_max=200)
    async with client_of(world, settings, transport=transport) as client, client.open("doc") as session:
        transport.cut()
        type_in(session.doc, "a" * 300)
        session.commit()
        type_in(session.doc, "b")
        with pytest.raises(OfflineBufferFull):
            session.commit()
        assert session.doc.get_pending_txn_len() == 1
        transport.heal()
        await session.flush(DEADLINE)
        assert owner.text() == "b" + "a" * 300


async def test_an_update_above_the_limit_is_refused_before_a_byte_is_sent(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """commit() says TooLargeUpdate, and the session never says SAVED again."""
    settings = replace(QUICK, update_bytes_max=1000)
    async with client_of(world, settings) as client:
        with pytest.raises(Unsaved):  # noqa: PT012 - leaving is what raises
            async with client.open("doc") as session:
                session.doc.get_map("m").insert("noise", bytes(range(256)) * 8)
                with pytest.raises(TooLargeUpdate, match=r"^the update was refused .* in smaller parts$"):
                    session.commit()
                assert session.state is State.SAVING
        assert owner.received == []


async def test_changes_tell_the_edits_of_others_with_their_sequence(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Only what others did, as Loro events."""
    async with client_of(world) as client, client.open("doc") as session:
        changes = session.changes()
        type_in(session.doc, "mine")
        await session.flush(DEADLINE)
        await owner.edit("theirs")
        async with asyncio.timeout(DEADLINE):
            change = await anext(changes)
        assert isinstance(change, Change)
        assert change.sequence == owner.head
        assert len(change.events.events) == 1
        assert text_of(session) == "minetheirs"


async def test_changes_tell_of_what_others_do_from_the_call_on(world: MemoryNats, owner: FakeOwner) -> None:
    """Not of what the document had before; and each session that asks is told, whoever asked first."""
    await owner.edit("first ", tell=False)
    async with client_of(world) as client, client.open("doc") as one, client.open("doc") as two:
        await owner.edit("second ")
        await eventually(lambda: text_of(one) == "first second ")
        early = one.changes()
        await owner.edit("third ")
        await eventually(lambda: text_of(one) == "first second third ")
        late = two.changes()
        await owner.edit("fourth ")
        async with asyncio.timeout(DEADLINE):
            told = [await anext(early), await anext(early), await anext(late)]
        assert [inserted(item) for item in told] == ["third ", "fourth ", "fourth "]


async def test_what_a_reconnect_brings_is_told_as_a_change(world: MemoryNats, owner: FakeOwner) -> None:
    """By the sync that follows it."""
    transport = world.connect("client")
    async with client_of(world, transport=transport) as client, client.open("doc") as session:
        changes = session.changes()
        transport.cut()
        await owner.edit("theirs", tell=False)
        transport.heal()
        async with asyncio.timeout(DEADLINE):
            assert inserted(await anext(changes)) == "theirs"


def inserted(item: Item) -> str:
    assert isinstance(item, Change)
    (event,) = item.events.events
    assert isinstance(event.diff, Diff.Text)
    return "".join(step.insert for step in event.diff.diff if isinstance(step, TextDelta.Insert))


async def test_two_sessions_of_a_document_share_one_room(world: MemoryNats, owner: FakeOwner) -> None:
    """One document, one set of subscriptions, one sync; the room lives as long as the last session."""
    async with client_of(world) as client:
        bus = client.transport.bus
        before = set(bus._listeners)  # type: ignore[attr-defined]
        async with client.open("doc") as one:
            mine = [
                listener.subject
                for sid, listener in bus._listeners.items()  # type: ignore[attr-defined]
                if sid not in before
            ]
            assert sorted(mine) == ["loro.accepted.doc", "loro.awareness.doc", "loro.status.doc"]
            async with client.open("doc") as two:
                assert len(bus._listeners) == len(before) + 3  # type: ignore[attr-defined]
                assert one.doc is two.doc
                assert len(owner.syncs) == 1
                type_in(one.doc, "x")
                await two.flush(DEADLINE)
                assert owner.text() == "x"
            type_in(one.doc, "y")
            await one.flush(DEADLINE)
        assert set(bus._listeners) == before  # type: ignore[attr-defined]


async def test_a_read_only_session_sends_nothing(world: MemoryNats, owner: FakeOwner) -> None:
    """Its edits raise ReadOnly and are dropped; it goes on hearing others."""
    async with client_of(world) as client, client.open("doc", read_only=True) as session:
        assert session.read_only
        session.commit()
        type_in(session.doc, "forbidden")
        with pytest.raises(ReadOnly):
            session.commit()
        assert text_of(session) == ""  # at once, not with the next sync
        await owner.edit("allowed")
        await eventually(lambda: text_of(session) == "allowed")
        assert owner.received == []


@pytest.mark.parametrize("committed", [False, True])
async def test_a_dropped_edit_is_out_of_the_document_when_the_error_is_raised(
    world: MemoryNats, owner: FakeOwner, committed: bool
) -> None:
    """What others wrote stays, and a second edit goes the same way."""
    await owner.edit("theirs")
    async with client_of(world) as client, client.open("doc", read_only=True) as session:
        for _ in range(2):
            session.doc.get_text("t").insert(2, "forbidden")
            session.doc.get_map("more").insert("key", 1)
            if committed:
                session.doc.commit()
            with pytest.raises(ReadOnly, match="the edit is undone"):
                session.commit()
            assert text_of(session) == "theirs"
            assert session.doc.get_map("more").get_deep_value() == {}
        await eventually(lambda: not session._mirror.need.fresh)
        assert text_of(session) == "theirs"
        assert owner.received == []


async def test_an_edit_that_a_read_only_import_commits_is_dropped_too(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Nothing that was edited here stays in the replica of a reader."""
    async with client_of(world) as client, client.open("doc", read_only=True) as session:
        type_in(session.doc, "forbidden")
        await owner.edit("allowed")
        await eventually(lambda: text_of(session) == "allowed")
        assert owner.received == []


async def test_readers_and_writers_of_one_process_do_not_share_rights(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """An edit in a reader's document cannot leave through a writer of the same process."""
    async with (
        client_of(world) as client,
        client.open("doc", read_only=True) as reader,
        client.open("doc") as writer,
    ):
        assert reader.doc is not writer.doc
        type_in(writer.doc, "x")
        await writer.flush(DEADLINE)
        await eventually(lambda: text_of(reader) == "x")


async def test_a_document_in_error_cannot_be_opened_until_it_is_reset(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """DocumentFailed with the trace; reset() clears it; False if there was nothing to reset."""
    await Statuses(world.connect("hand")).write("doc", Failed("trace-9", 0), expected_revision=0)
    async with client_of(world) as client:
        with pytest.raises(DocumentFailed, match="trace-9"):
            await client.open("doc")
        assert await client.reset("doc") is True
        assert await client.reset("doc") is False
        async with client.open("doc") as session:
            assert session.state is State.SAVED
        assert [document_id async for document_id, _ in client.statuses()] == ["doc"]


async def test_a_deleted_document_cannot_be_opened(world: MemoryNats, owner: FakeOwner) -> None:
    """And after it is restored it can."""
    owner.deleted = True
    async with client_of(world) as client:
        with pytest.raises(DocumentDeleted):
            await client.open("doc")
        owner.deleted = False
        async with client.open("doc") as session:
            assert session.state is State.SAVED


async def test_opening_without_a_server_ends_in_time(world: MemoryNats) -> None:
    """NotServed says what to start."""
    async with client_of(world) as client:
        with pytest.raises(NotServed, match="lorogo serve"):
            await client.open("doc", timeout=0.3)
        assert client._rooms == {}


@pytest.mark.parametrize("document_id", ["", "a.b", "*", "-x", "_kv_epoch", "x" * 129, "a b"])
async def test_a_bad_id_is_refused_before_a_byte_is_sent(world: MemoryNats, document_id: str) -> None:
    """By open() and by document(), at once."""
    async with client_of(world) as client:
        with pytest.raises(InvalidDocumentId):
            client.open(document_id)
        with pytest.raises(InvalidDocumentId):
            client.document(document_id)


async def test_leaving_a_session_waits_for_the_ack(world: MemoryNats, owner: FakeOwner) -> None:
    """An edit that was not even committed is saved when the block ends."""
    async with client_of(world) as client:
        async with client.open("doc") as session:
            type_in(session.doc, "last words")
        assert owner.text() == "last words"
        with pytest.raises(SessionClosed):
            session.commit()
        with pytest.raises(SessionClosed):
            await session.flush()
        assert session.state is State.OFFLINE


async def test_leaving_with_edits_that_nobody_acked_says_so(world: MemoryNats, owner: FakeOwner) -> None:
    """Unsaved, after a bounded wait; but an error of the app's own is not hidden by it."""
    settings = replace(QUICK, close_seconds=0.2)
    async with client_of(world, settings) as client:
        with pytest.raises(Unsaved, match="not ACKed"):  # noqa: PT012 - leaving is what raises
            async with client.open("doc") as session:
                owner.mute = 1000
                type_in(session.doc, "x")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - leaving must not hide it
            async with client.open("doc") as session:
                type_in(session.doc, "x")
                raise ZeroDivisionError
        assert client._rooms == {}


async def test_closing_the_client_ends_everything(world: MemoryNats, owner: FakeOwner) -> None:
    """Readers of changes and states end, tasks are gone, sessions are closed."""
    tasks = asyncio.all_tasks()
    async with client_of(world) as client:
        session = await client.open("doc")
        reading = asyncio.ensure_future(anext(session.changes(), None))
        await asyncio.sleep(0)
        type_in(session.doc, "x")
    assert await reading is None
    assert owner.text() == "x"
    with pytest.raises(SessionClosed):
        await client.open("doc")
    left = {task for task in asyncio.all_tasks() - tasks if not task.done()} - owner._tasks
    assert left == set()


async def test_flush_can_be_cancelled(world: MemoryNats, owner: FakeOwner) -> None:
    """Cancellation passes through, and the edit is still sent."""
    async with client_of(world) as client, client.open("doc") as session:
        owner.mute = 1
        type_in(session.doc, "x")
        waiting = asyncio.ensure_future(session.flush())
        await eventually(lambda: len(owner.received) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await session.flush(DEADLINE)
        assert owner.text() == "x"


async def test_many_sessions_without_a_server_are_left_together(world: MemoryNats) -> None:
    """Closing the client waits once for all of them, not once for each."""
    settings = replace(QUICK, close_seconds=0.3)
    owners = [FakeOwner(world, f"doc-{number}") for number in range(8)]
    client = await lorogo_client.connect(world.connect("client"), settings=settings)
    for owner in owners:
        async with owner:
            session = await client.open(owner.document_id)
            owner.mute = 1000
            type_in(session.doc, "x")
    started = time.monotonic()
    with pytest.raises(Unsaved):
        await client.close()
    assert time.monotonic() - started < 3 * settings.close_seconds
