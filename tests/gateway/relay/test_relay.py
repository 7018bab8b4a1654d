"""A relay: many members follow a document, each gets what it lacks, and nobody gets its own back."""

import asyncio

import pytest
from loro import EphemeralStore, LoroDoc

from lorogo_client import (
    DocumentDeleted,
    HistoryTrimmed,
    InvalidDocumentId,
    InvalidUpdate,
    NotServed,
    PresenceTooLarge,
    SessionClosed,
    StorageFull,
    TooLargeUpdate,
    UpdateRefused,
)
from lorogo_gateway.relay.errors import GivenUp, InvalidVersion
from lorogo_protocol.messages.reasons import Reason
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import DEADLINE, QUICK, FakeOwner, client_of, eventually
from tests.gateway.relay_pages import Page, equal, foreign, relayed, relays_of

JUNK = (b"", b"junk", b"\xff" * 100)


async def test_members_see_each_other_and_not_themselves(world: MemoryNats, owner: FakeOwner) -> None:
    """An accepted update goes to everybody but its sender, as the bytes that it was sent as."""
    ana, ben, eva = Page(), Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", ana) as ana.member,
        relayed(client, "doc", ben) as ben.member,
        relayed(client, "doc", eva) as eva.member,
    ):
        for page in (ana, ben, eva):
            assert (await page.join()).payload == b""
        update = ana.edit("hello")
        receipt = await ana.member.send(update)
        await eventually(lambda: len(ben.heard) == 1 and len(eva.heard) == 1)
        assert ben.heard == eva.heard == [update]
        assert ana.heard == []
        assert (receipt.lease, receipt.durability) == (owner.token, "stream")
        assert len(owner.syncs) == 3


async def test_the_subscriptions_are_shared_and_end_with_the_last(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """One subscription of each kind, however many members."""
    one, two = Page(), Page()
    async with client_of(world) as client:
        before = len(client.transport.bus._listeners)  # type: ignore[attr-defined]
        async with relayed(client, "doc", one) as one.member, relayed(client, "doc", two) as two.member:
            assert len(client.transport.bus._listeners) == before + 3  # type: ignore[attr-defined]
            assert len(relays_of(client)._relays) == 1
        assert len(client.transport.bus._listeners) == before  # type: ignore[attr-defined]
        assert relays_of(client)._relays == {}


async def test_a_newcomer_gets_what_it_lacks(world: MemoryNats, owner: FakeOwner) -> None:
    """Nothing known: a snapshot. Something known: the updates since. All known: nothing."""
    await owner.edit("one ", tell=False)
    page, late = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", page) as page.member,
        relayed(client, "doc", late) as late.member,
    ):
        assert (await page.join()).snapshot
        assert page.text == "one "
        await owner.edit("two ")
        await eventually(lambda: page.text == "one two ")
        joined = await page.join()
        assert (joined.payload, joined.snapshot) == (b"", False)
        late.doc.import_(page.heard[0])  # pending: what it needs is not here
        joined = await late.member.join(b"")
        late.doc.import_(joined.payload)
        assert joined.snapshot
        await owner.edit("three ")
        await eventually(lambda: page.text == late.text == "one two three ")


async def test_what_is_accepted_during_a_join_is_told_after_it(world: MemoryNats, owner: FakeOwner) -> None:
    """Nothing is missed between the owner's answer and the join's return, and nothing comes before it."""
    first, second = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", first) as first.member,
        relayed(client, "doc", second) as second.member,
    ):
        await first.join()
        for number in range(30):
            joining = asyncio.ensure_future(second.member.join(b""))
            await owner.edit(f"{number} ")
            second.heard.clear()
            joined = await joining
            assert second.heard == []
            fresh = LoroDoc()
            fresh.import_(joined.payload)
            second.doc = fresh
            await owner.edit("x")
            await eventually(lambda: second.text == owner.text())
        await eventually(lambda: first.text == owner.text())


@pytest.mark.parametrize("vector", [b"\x01", b"\xff\xff\xff", b"\x01\x05", b"junk that is long enough"])
async def test_a_version_that_does_not_decode(world: MemoryNats, owner: FakeOwner, vector: bytes) -> None:
    """Nobody is asked, and the member may try another one."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        with pytest.raises(InvalidVersion):
            await page.member.join(vector)
        assert owner.syncs == []
        await page.join()


async def test_a_version_older_than_the_kept_history(world: MemoryNats, owner: FakeOwner) -> None:
    """It cannot be completed; with nothing known the whole state comes."""
    page, fresh = Page(), Page()
    await owner.edit("one ", tell=False)
    page.doc.import_(owner.replica.snapshot())
    await owner.edit("two ", tell=False)
    owner.compact()
    async with (
        client_of(world) as client,
        relayed(client, "doc", page) as page.member,
        relayed(client, "doc", fresh) as fresh.member,
    ):
        with pytest.raises(HistoryTrimmed):
            await page.join()
        await fresh.join()
        assert fresh.text == "one two "
        assert page.told == []


async def test_a_shallow_snapshot_does_nothing_to_a_document_with_something_in_it(owner: FakeOwner) -> None:
    """Why that is an error: Loro says that it is pending, and shows the old state."""
    await owner.edit("one ", tell=False)
    doc = LoroDoc()
    doc.import_(owner.replica.snapshot())
    await owner.edit("two ", tell=False)
    owner.compact()
    assert doc.import_(owner.replica.snapshot()).pending is not None
    assert doc.get_text("t").to_string() == "one "


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "x" * 129])
async def test_a_name_that_is_none(world: MemoryNats, name: str) -> None:
    """It is refused before anything is subscribed."""
    async with client_of(world) as client:
        with pytest.raises(InvalidDocumentId):
            await relays_of(client).enter(name, Page())


async def test_nobody_serves_it(world: MemoryNats) -> None:
    """A join says so after its time; the member may try again."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        with pytest.raises(NotServed):
            await page.join(timeout=1.0)
        with pytest.raises(GivenUp):
            await page.type("x")
        async with FakeOwner(world):
            await page.join()
            await page.type("y")


async def test_lanes_are_apart(world: MemoryNats, owner: FakeOwner) -> None:
    """A refused update is seen by nobody, and delays nobody; its sender goes on."""
    bad, good = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", bad) as bad.member,
        relayed(client, "doc", good) as good.member,
    ):
        await bad.join()
        await good.join()
        owner.nacks.extend(
            [Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED, Reason.TOO_LARGE, Reason.STORAGE_FULL]
        )
        for kind, reason in (
            (UpdateRefused, Reason.INVALID_UPDATE),
            (UpdateRefused, Reason.HISTORY_TRIMMED),
            (TooLargeUpdate, Reason.TOO_LARGE),
        ):
            with pytest.raises(kind) as refused:
                await bad.member.send(foreign("bad"))
            assert refused.value.reason is reason
        with pytest.raises(StorageFull):
            await bad.member.send(foreign("bad"))
        assert good.heard == []
        await good.type("good")
        await bad.member.send(foreign("also good"))
        await eventually(lambda: len(good.heard) == 1 and len(bad.heard) == 1)
        assert (bad.told, good.told, bad.member.unacked) == ([], [], 0)


async def test_a_stuck_lane_delays_no_other(world: MemoryNats, owner: FakeOwner) -> None:
    """An update without an answer waits alone."""
    stuck, other = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", stuck) as stuck.member,
        relayed(client, "doc", other) as other.member,
    ):
        await stuck.join()
        await other.join()
        owner.mute = 1
        waiting = stuck.type("stuck")
        await eventually(lambda: len(owner.received) == 1)
        for _ in range(10):
            await other.type("on")
        await waiting  # sent again after its time
        await equal(stuck, other)


@pytest.mark.parametrize(
    "reason", [Reason.BUSY, Reason.NOT_OWNER, Reason.CHUNK_MISSING, Reason.DIGEST_MISMATCH]
)
async def test_what_may_pass_is_sent_again(world: MemoryNats, owner: FakeOwner, reason: Reason) -> None:
    """The same bytes under the same log id."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.nacks.append(reason)
        await page.type("x")
        assert len(owner.received) == 2
        assert owner.received[0] == owner.received[1]


async def test_an_update_that_builds_on_a_lost_one_is_sent_again_in_order(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """The one before it had no answer: both go out once more."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.mute = 1
        first, second, third = page.type("a"), page.type("b"), page.type("c")
        await asyncio.wait_for(asyncio.gather(first, second, third), DEADLINE)
        assert (owner.text(), page.told) == ("abc", [])


async def test_an_update_that_builds_on_one_of_another_tab_is_sent_again(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Tabs of one browser show each other's edits before an owner accepts them; neither joins again."""
    one, two = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", one) as one.member,
        relayed(client, "doc", two) as two.member,
    ):
        await one.join()
        await two.join()
        update = one.edit("one ")
        two.doc.import_(update)
        early = two.type("two ")
        await eventually(lambda: len(owner.received) == 1)
        one.member.send(update)
        await asyncio.wait_for(early, DEADLINE)
        assert (owner.text(), one.told, two.told) == ("one two ", [], [])


async def test_an_update_that_builds_on_what_never_came_asks_for_a_join(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Only the member has what is missing; others hear nothing of it."""
    page, other = Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", page) as page.member,
        relayed(client, "doc", other) as other.member,
    ):
        await page.join()
        await other.join()
        page.edit("never sent ")
        with pytest.raises(GivenUp):
            await page.type("sent")
        assert len(page.told) == 1
        assert other.told == []
        with pytest.raises(GivenUp):
            await page.member.send(foreign("not joined"))
        await page.join()
        await eventually(lambda: page.text == other.text == "never sent sent")


async def test_too_large_an_update_never_leaves(world: MemoryNats, owner: FakeOwner) -> None:
    """The limit is told at once."""
    settings = QUICK.__class__(**{**{n: getattr(QUICK, n) for n in QUICK.__slots__}, "update_bytes_max": 100})
    page = Page()
    async with client_of(world, settings) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        with pytest.raises(TooLargeUpdate):
            await page.member.send(b"x" * 101)
        assert owner.received == []


async def test_members_are_slowed_down_by_what_has_no_answer(world: MemoryNats, owner: FakeOwner) -> None:
    """drained() returns when enough is ACKed."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        await page.member.drained(1, 1)
        owner.mute = 3
        futures = [page.type("x") for _ in range(3)]
        assert page.member.unacked == 3
        assert page.member.unacked_bytes > 0
        draining = asyncio.ensure_future(page.member.drained(1, 1_000_000))
        await eventually(lambda: len(owner.received) == 3)
        assert not draining.done()
        await asyncio.wait_for(draining, DEADLINE)
        await asyncio.gather(*futures)
        assert (page.member.unacked, page.member.unacked_bytes) == (0, 0)


async def test_a_deleted_document_is_gone_for_all(world: MemoryNats, owner: FakeOwner) -> None:
    """Those who follow are told, those who join are told, what is in flight ends."""
    page, other, late = Page(), Page(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", page) as page.member,
        relayed(client, "doc", other) as other.member,
    ):
        await page.join()
        await other.join()
        owner.nacks.append(Reason.DELETED)
        owner.deleted = True
        with pytest.raises(DocumentDeleted):
            await page.type("x")
        assert isinstance(page.ended, DocumentDeleted)
        assert isinstance(other.ended, DocumentDeleted)
        with pytest.raises(DocumentDeleted):
            await page.type("y")
        with pytest.raises(DocumentDeleted):
            await page.join()
        async with relayed(client, "doc", late) as late.member:
            with pytest.raises(DocumentDeleted):
                await late.join()
            assert late.ended is None
            owner.deleted = False
        async with relayed(client, "doc", late) as late.member:
            await late.join()


async def test_leaving_gives_up_what_has_no_answer(world: MemoryNats, owner: FakeOwner) -> None:
    """The future ends, and nothing of the member is left."""
    page = Page()
    async with client_of(world) as client:
        async with relayed(client, "doc", page) as page.member:
            await page.join()
            owner.mute = 1
            future = page.type("x")
            await eventually(lambda: len(owner.received) == 1)
        with pytest.raises(GivenUp):
            await future
        assert client._context.replies._takers == {}
        with pytest.raises(SessionClosed):
            await page.join()
        with pytest.raises(GivenUp):
            await page.type("y")


async def test_a_listener_that_raises_harms_nobody(world: MemoryNats, owner: FakeOwner) -> None:
    """It is logged; the others are told all the same."""

    class Bad(Page):
        def accepted(self, payload: bytes) -> None:
            raise RuntimeError("bad")

    bad, good = Bad(), Page()
    async with (
        client_of(world) as client,
        relayed(client, "doc", bad) as bad.member,
        relayed(client, "doc", good) as good.member,
    ):
        await bad.join()
        await good.join()
        await owner.edit("hello")
        await eventually(lambda: good.text == "hello")


def presence(key: str, value: str) -> bytes:
    store = EphemeralStore(30_000)
    store.set(key, value)
    return store.encode_all()


async def test_presence_goes_to_the_others(world: MemoryNats, owner: FakeOwner) -> None:
    """Not to the one who tells it; newcomers get what the owner keeps."""
    ana, ben = Page(), Page()
    owner.presence = presence("old", "here")
    async with (
        client_of(world) as client,
        relayed(client, "doc", ana) as ana.member,
        relayed(client, "doc", ben) as ben.member,
        client.open("doc", read_only=True) as session,
    ):
        assert (await ana.join()).presence == owner.presence
        await ben.join()
        data = presence("ana", "types")
        await ana.member.tell(data)
        await eventually(lambda: data in ben.presence)
        assert data not in ana.presence
        await eventually(lambda: session.presence.all().get("ana") == "types")
        session.presence.set("reads")
        await eventually(lambda: len(ana.presence) > 0)


async def test_presence_that_is_none_is_not_told(world: MemoryNats, owner: FakeOwner) -> None:
    """Too large, or not the bytes of an EphemeralStore."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        with pytest.raises(PresenceTooLarge):
            await page.member.tell(b"x" * (QUICK.presence_bytes_max + 1))
        for data in JUNK:
            with pytest.raises(InvalidUpdate):
                await page.member.tell(data)
