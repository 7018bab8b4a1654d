"""A relay in trouble: lost messages, lost owners, lost connections. Members are told, or never notice."""

import asyncio
from dataclasses import replace

import pytest
from loro import LoroDoc

from lorogo_client import Refused, SessionClosed
from lorogo_gateway.relay.errors import GivenUp
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Failed
from lorogo_testing.broker import BrokerSubscription
from lorogo_testing.bus import MemoryBus
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Message
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import QUICK, FakeOwner, client_of, eventually
from tests.gateway.relay_pages import Page, foreign, relayed, relays_of

WATCHFUL = replace(QUICK, relay_silence_seconds=0.1, relay_grace_seconds=0.3)
CALM = replace(QUICK, relay_silence_seconds=5.0, relay_grace_seconds=5.0, reply_seconds=1.0)


class Loss:
    """Drops accepted updates on their way to one connection, when a test says so."""

    def __init__(self, bus: MemoryBus) -> None:
        self._deliver = bus.deliver
        self.drop = 0
        bus.deliver = self  # type: ignore[method-assign]

    def __call__(self, listener: BrokerSubscription, message: Message) -> None:
        if self.drop and message.subject.startswith("loro.accepted."):
            self.drop -= 1
        else:
            self._deliver(listener, message)


async def test_a_lost_update_is_filled_in_by_one_sync(world: MemoryNats, owner: FakeOwner) -> None:
    """The next one tells of the gap; all members get what was missed, once."""
    transport = world.connect("gateway")
    loss = Loss(transport.bus)
    ana, ben = Page(), Page()
    async with (
        client_of(world, CALM, transport=transport) as client,
        relayed(client, "doc", ana) as ana.member,
        relayed(client, "doc", ben) as ben.member,
    ):
        await owner.edit("0 ", tell=False)
        await ana.join()
        await ben.join()
        asked = len(owner.syncs)
        loss.drop = 1
        await owner.edit("1 ")
        await owner.edit("2 ")
        await eventually(lambda: ana.text == ben.text == "0 1 2 ")
        await owner.edit("3 ")
        await eventually(lambda: ana.text == ben.text == "0 1 2 3 ")
        assert len(owner.syncs) == asked + 1
        assert (ana.told, ben.told) == ([], [])


async def test_a_gap_is_filled_in_the_name_of_another_if_a_token_is_not_good_any_more(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """Who has that token must join again; others are not disturbed for it, and get what was missed."""
    transport = world.connect("gateway")
    loss = Loss(transport.bus)
    ana, ben = Page(), Page()
    async with (
        client_of(world, CALM, transport=transport) as client,
        relayed(client, "doc", ana, token="ana's") as ana.member,
        relayed(client, "doc", ben, token="ben's") as ben.member,
    ):
        await owner.edit("0 ", tell=False)
        await ana.join()
        await ben.join()
        loss.drop = 1
        owner.refuse_calls.append(Reason.PERMISSION_DENIED)
        await owner.edit("1 ")
        await owner.edit("2 ")
        await eventually(lambda: ben.text == "0 1 2 ")
        assert ben.told == []
        assert ana.told == ["the owner does not take its token"]
        assert ana.text == "0 "


async def test_a_gap_in_the_first_update_of_an_empty_document(world: MemoryNats, owner: FakeOwner) -> None:
    """The owner answers with a whole snapshot, which anybody can import."""
    transport = world.connect("gateway")
    loss = Loss(transport.bus)
    page = Page()
    async with (
        client_of(world, CALM, transport=transport) as client,
        relayed(client, "doc", page) as page.member,
    ):
        await page.join()
        loss.drop = 1
        await owner.edit("1 ")
        await owner.edit("2 ")
        await eventually(lambda: page.text == "1 2 ")
        assert page.told == []


async def test_a_status_bucket_that_begins_lower_is_heard(world: MemoryNats) -> None:
    """NATS lost the bucket, and a clock that is behind began it anew: a lost tail still shows."""
    transport = world.connect("gateway")
    page = Page()
    async with (
        FakeOwner(world, name="first") as first,
        client_of(world, CALM, transport=transport) as client,
        relayed(client, "doc", page) as page.member,
    ):
        await page.join()
        for _ in range(20):
            await first.renew()
        await eventually(lambda: page.member._relay._monitor.revision == first.revision)
        transport.cut()
        await first.vanish_with_statuses()
        async with FakeOwner(world, name="second") as second:
            transport.heal()
            await page.join()
            assert second.revision < first.revision
            await second.edit("silent", tell=False)
            await second.renew()
            await eventually(lambda: page.text == "silent")


async def test_a_lost_tail_shows_in_the_renewal(world: MemoryNats, owner: FakeOwner) -> None:
    """Nothing comes after it; the status says how far the owner is."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        await owner.edit("lost", tell=False)
        await owner.renew()
        await eventually(lambda: page.text == "lost")


async def test_an_update_that_is_only_announced_is_fetched(world: MemoryNats, owner: FakeOwner) -> None:
    """A large one: the relay syncs, and passes that on."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        previous = owner.head
        update = await owner.edit("large", tell=False)
        await owner.publish_accepted("large-1", update, previous, omitted=True)
        await eventually(lambda: page.text == "large")
        await owner.edit(" and on")
        await eventually(lambda: page.text == "large and on")


async def test_a_large_update_that_is_fetched_is_not_told_to_its_sender(
    world: MemoryNats, owner: FakeOwner
) -> None:
    one, two = Page("one"), Page("two")
    async with (
        client_of(world, CALM) as client,
        relayed(client, "doc", one) as one.member,
        relayed(client, "doc", two) as two.member,
    ):
        await one.join()
        await two.join()
        owner.announce = False
        await one.type("large")
        await owner.publish_accepted(owner.received[-1][0], b"large", 0, omitted=True)
        await eventually(lambda: two.text == "large")
        assert one.heard == []
        previous = owner.head  # of another one only the place in the chain is known: all are told
        update = await owner.edit(" lost", tell=False)
        await owner.edit(" and on", tell=False)
        await owner.publish_accepted("other", update, previous + 1, omitted=True)
        await eventually(lambda: one.text == two.text == "large lost and on")


async def test_an_update_in_chunks_comes_whole(world: MemoryNats, owner: FakeOwner) -> None:
    """As one payload."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        previous = owner.head
        update = await owner.edit("x" * 1000, tell=False)
        await owner.publish_accepted("chunked", update, previous, chunk_bytes=100)
        await eventually(lambda: page.heard == [update])


@pytest.mark.parametrize("body", [b"", b"junk", b"loro" + b"\x00" * 40])
async def test_what_is_no_update_is_not_passed_on(world: MemoryNats, owner: FakeOwner, body: bytes) -> None:
    """Somebody else published it: a sync tells what is true."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await owner.edit("true", tell=False)
        await page.join()
        await owner.publish_accepted("forged", body, owner.head)
        await world.connect("stranger").bus.publish(subjects.accepted("doc"), body)
        await owner.edit(" still")
        await eventually(lambda: page.text == "true still")
        assert body not in page.heard


async def test_a_gap_that_history_cannot_fill_asks_for_a_join(world: MemoryNats, owner: FakeOwner) -> None:
    """What comes back is a shallow snapshot: it is for no one who has something."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await owner.edit("one ", tell=False)
        await page.join()
        await owner.edit("two ", tell=False)
        owner.compact()
        await owner.renew()
        await eventually(lambda: len(page.told) == 1)
        assert page.heard == []


async def test_another_life_of_the_document_asks_for_a_join(world: MemoryNats, owner: FakeOwner) -> None:
    """It was deleted and restored while we were not told."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await owner.edit("1", tell=False)
        await page.join()
        owner.generation += 1
        await owner.edit("2", tell=False)
        await owner.renew()
        await eventually(lambda: len(page.told) == 1)
        assert (await page.join()).generation == owner.generation


async def test_a_quick_takeover_disturbs_nobody(world: MemoryNats, owner: FakeOwner) -> None:
    """What was in flight goes to the new owner; what was missed is filled in."""
    ana, ben = Page(), Page()
    async with (
        client_of(world, CALM) as client,
        relayed(client, "doc", ana) as ana.member,
        relayed(client, "doc", ben) as ben.member,
    ):
        await ana.join()
        await ben.join()
        await ana.type("one ")
        owner.mute = 10
        waiting = ana.type("two ")
        await eventually(lambda: len(owner.received) == 2)
        async with FakeOwner(world, name="second") as second:
            second.replica = owner.replica
            await owner.stop()
            await waiting
            await eventually(lambda: ben.text == "one two ")
            assert second.token > owner.token
            assert (ana.told, ben.told) == ([], [])


async def test_a_dead_owner_is_told_without_any_traffic(world: MemoryNats, owner: FakeOwner) -> None:
    """Its silence is noticed, nobody takes its place: everybody is told once, and joins the next one."""
    pages = [Page(), Page()]
    async with (
        client_of(world, WATCHFUL) as client,
        relayed(client, "doc", pages[0]) as pages[0].member,
        relayed(client, "doc", pages[1]) as pages[1].member,
    ):
        for page in pages:
            await page.join()
        await owner.vanish()
        await eventually(lambda: all(page.told for page in pages))
        with pytest.raises(GivenUp):
            await pages[0].type("offline ")
        joins = [asyncio.ensure_future(page.join()) for page in pages]
        async with FakeOwner(world, name="second"):
            await asyncio.gather(*joins)
            await eventually(lambda: pages[1].text == "offline ")
        assert [len(page.told) for page in pages] == [1, 1]


async def test_an_owner_that_says_nothing_but_pings_keeps_its_members(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A quiet document is not a lost one."""
    page = Page()
    async with client_of(world, WATCHFUL) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        relay = relays_of(client)._relays["doc"]
        seen = relay.doubted_at
        for _ in range(3):
            await eventually(lambda seen=seen: relay.doubted_at > seen)  # type: ignore[misc]
            seen = relay.doubted_at
        assert page.told == []


async def test_a_lost_connection_is_told_at_once(world: MemoryNats, owner: FakeOwner) -> None:
    """What was in flight is given up, and nothing is sent until the member has joined again."""
    transport = world.connect("gateway")
    page = Page()
    async with (
        client_of(world, QUICK, transport=transport) as client,
        relayed(client, "doc", page) as page.member,
    ):
        await page.join()
        owner.mute = 1
        waiting = page.type("unknown ")
        await eventually(lambda: len(owner.received) == 1)
        transport.cut()
        with pytest.raises(GivenUp):
            await waiting
        assert len(page.told) == 1
        with pytest.raises(GivenUp):
            await page.type("meanwhile ")
        joining = asyncio.ensure_future(page.join())
        await asyncio.sleep(0)
        transport.heal()
        await joining
        await eventually(lambda: owner.text() == "unknown meanwhile ")
        assert len(page.told) == 1


async def test_a_document_in_error_is_told(world: MemoryNats, owner: FakeOwner) -> None:
    """It says so to those who follow, and to those who join."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        statuses = Statuses(world.connect("operator"))
        await statuses.write("doc", Failed("trace-1", 0), expected_revision=owner.revision)
        await eventually(lambda: len(page.told) == 1)
        assert "trace-1" in page.told[0]


async def test_the_ack_of_a_server_that_lost_the_document_is_not_believed(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """The update is sent again."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.leases.append(owner.token - 1)
        receipt = await page.type("x")
        assert receipt.lease == owner.token
        assert len(owner.received) == 2


async def test_too_much_during_a_join_asks_for_another(
    world: MemoryNats, owner: FakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held for a member has a bound."""
    monkeypatch.setattr("lorogo_gateway.relay.subscriber._HELD_MAX", 2)
    first, late = Page(), Page()
    async with (
        client_of(world, CALM) as client,
        relayed(client, "doc", first) as first.member,
        relayed(client, "doc", late) as late.member,
    ):
        await first.join()
        owner.refuse_calls.extend([Reason.BUSY] * 3)
        joining = asyncio.ensure_future(late.join())
        await eventually(lambda: not owner.refuse_calls)
        for _ in range(5):
            await owner.edit("x")
        await eventually(lambda: len(first.heard) == 5)
        await joining
        await eventually(lambda: len(late.told) == 1)
        assert late.heard == []
        await late.join()
        assert late.text == "xxxxx"


async def test_too_much_without_an_answer_asks_for_a_join(world: MemoryNats, owner: FakeOwner) -> None:
    """A member that does not wait is bounded all the same."""
    page = Page()
    settings = replace(CALM, unsent_bytes_max=1000)
    async with client_of(world, settings) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.mute = 1000
        futures = [page.member.send(foreign("x" * 100)) for _ in range(20)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(outcome, GivenUp) for outcome in outcomes)
        assert len(page.told) == 1


async def test_a_join_that_is_cancelled_leaves_nothing_behind(world: MemoryNats) -> None:
    """And the next one works."""
    page = Page()
    async with client_of(world) as client, relayed(client, "doc", page) as page.member:
        joining = asyncio.ensure_future(page.join())
        await asyncio.sleep(0.05)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        assert relays_of(client)._relays["doc"]._audience() == ()
        async with FakeOwner(world):
            await page.join()


async def test_a_member_that_leaves_during_its_join_is_not_in(world: MemoryNats, owner: FakeOwner) -> None:
    """The join says so; others follow on."""
    page, other = Page(), Page()
    async with client_of(world) as client, relayed(client, "doc", other) as other.member:
        await other.join()
        page.member = await relays_of(client).enter("doc", page)
        joining = asyncio.ensure_future(page.join())
        await asyncio.sleep(0)
        await relays_of(client).leave(page.member)
        with pytest.raises(SessionClosed):
            await joining
        await owner.edit("on")
        await eventually(lambda: other.text == "on")
        assert page.heard == []


async def test_a_second_join_that_fails_puts_the_member_out(world: MemoryNats, owner: FakeOwner) -> None:
    """It follows no more, and may not send, until a join succeeds."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.refuse_calls.append(Reason.INVALID_REQUEST)
        with pytest.raises(Refused):
            await page.join()
        with pytest.raises(GivenUp):
            await page.type("x")
        await page.join()
        await eventually(lambda: owner.text() == "x")


async def test_a_member_that_begins_anew_gets_its_own_update_in_flight(
    world: MemoryNats, owner: FakeOwner
) -> None:
    """A page that was loaded again has nothing of what it sent before."""
    page = Page()
    async with client_of(world, CALM) as client, relayed(client, "doc", page) as page.member:
        await page.join()
        owner.mute = 1
        sent = page.type("mine")
        await eventually(lambda: len(owner.received) == 1)
        page.doc = LoroDoc()
        await page.join()
        await sent
        await eventually(lambda: page.text == "mine")
