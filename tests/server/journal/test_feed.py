"""Pages of a server's journal: in order, bounded, waited for, and never kept open by a server that stops."""

import asyncio
from collections.abc import AsyncIterator

import nanoid
import pytest

from lorogo_protocol.journal import pages
from lorogo_protocol.journal.pages import FeedPage, FeedStart
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server
from lorogo_transport.clock import SystemClock
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.rpc.discovery import find_servers
from tests.server.support import WAIT, Writer
from tests.server.worlds import World, memory_world


class Asking:
    """A client that requests pages from one server."""

    def __init__(self, world: World, server: Server) -> None:
        assert server.journal is not None
        self.world = world
        self.server = server
        (self.journal,) = server.journal.ids()
        self.caller = Caller(world.probe.bus, SystemClock(), nanoid.generate)

    async def page(self, **arguments: object) -> FeedPage:
        subject = subjects.server_feed(self.server.server_id)
        body = {"journal": self.journal, **arguments}
        return pages.decode(await self.caller.ask(subject, body, timeout=WAIT))


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    async with memory_world() as world:
        server, _ = await world.server()
        asking = Asking(world, server)
        await asking.caller.start()
        await world.probe.start("doc")
        yield asking
        await asking.caller.close()


async def write(asking: Asking, writer: Writer, *words: str) -> None:
    for word in words:
        await asking.world.probe.accept("doc", writer.type(word))


async def test_servers_are_found_with_their_journals(asking: Asking) -> None:
    """Through the NATS services protocol, by permitted clients."""
    (found,) = await find_servers(asking.world.probe.bus)
    assert (found.server_id, found.durability) == (asking.server.server_id, "journal")
    assert found.journals == (asking.journal,)


async def test_pages_follow_each_other(asking: Asking) -> None:
    """However small they are, nothing is left out or comes twice; each has at least one record."""
    await write(asking, Writer(), *(f"{number} " for number in range(20)))
    whole = await asking.page()
    assert whole.end
    assert len(whole.entries) == 20
    after, found, turns = "", list[pages.PageEntry](), 0
    while True:
        page = await asking.page(after=after, bytes_max=200)
        found += page.entries
        after, turns = page.next, turns + 1
        if page.end:
            break
        assert 1 <= len(page.entries) < 5
    assert tuple(found) == whole.entries
    assert turns > 5
    assert (await asking.page(after=after)).entries == ()
    first = await asking.page(after=f"{found[7].sequence}:0:0")  # a place without the hints
    assert first.entries == tuple(found[7:])


async def test_a_page_is_waited_for(asking: Asking) -> None:
    """The answer comes with the next record on the disk, and only with the requested records."""
    writer = Writer()
    await write(asking, writer, "a")
    after = (await asking.page()).next
    waiting = asyncio.create_task(asking.page(after=after, wait_seconds=10))
    other = asyncio.create_task(asking.page(after=after, wait_seconds=0.5, documents=["other"]))
    await asyncio.sleep(0)
    await write(asking, writer, "b")
    async with asyncio.timeout(5):
        page = await waiting
    assert [entry.document for entry in page.entries] == ["doc"]
    nothing = await other
    assert nothing.entries == ()
    assert int(nothing.next.split(":")[0]) > int(after.split(":")[0])  # it need not be read again


async def test_starting_points(asking: Asking) -> None:
    """Behind a sequence, at a time; a time that nothing reaches is the end."""
    await write(asking, Writer(), "a", "b", "c")
    entries = (await asking.page()).entries
    last = entries[-1]
    assert (await asking.page(time_ns=last.time_ns)).entries[-1] == last
    assert (await asking.page(epoch=1, sequence=entries[1].record.sequence)).entries == entries[2:]  # type: ignore[union-attr]  # updates
    none = await asking.page(time_ns=last.time_ns + 10**12)
    assert none == FeedPage((), none.next, end=True)
    assert int(none.next.split(":")[0]) == last.sequence + 1
    assert FeedStart().everything


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"journal": "00"}, Reason.NOT_FOUND),
        ({"after": "99999:0:0"}, Reason.CONFLICT),
        ({"after": "here"}, Reason.INVALID_REQUEST),
        ({"bytes_max": -1}, Reason.INVALID_REQUEST),
    ],
    ids=str,
)
async def test_questions_that_cannot_be_answered(
    asking: Asking, arguments: dict[str, object], reason: Reason
) -> None:
    """A reason and a sentence."""
    with pytest.raises(Refused) as refused:
        await asking.page(**arguments)
    assert refused.value.reason is reason


async def test_a_server_that_stops_answers_those_who_wait(asking: Asking) -> None:
    """With what it has, which may be nothing."""
    waiting = [asyncio.create_task(asking.page(wait_seconds=20)) for _ in range(5)]
    while asking.server.stats()["feeds_asking"] != 5:  # noqa: ASYNC110  # nothing tells
        await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await asking.server.stop()
        assert all(page.entries == () for page in await asyncio.gather(*waiting))
