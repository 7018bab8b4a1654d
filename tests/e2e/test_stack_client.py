"""Apps on an open and on a closed lorogo: the client does the same on both."""

import asyncio
import random

import pytest
from loro import ExportMode, LoroDoc

from lorogo_client import Change, Refused, Session, State, Update
from tests.e2e.stacks import Stack, same
from tests.e2e.support import eventually
from tests.gateway.relay_pages import Page, relayed

pytestmark = pytest.mark.nats

DEADLINE = 30.0
LARGE_BYTES = 9_000_000  # more than two windows of a call


def text_of(session: Session) -> str:
    return session.doc.get_text("body").to_string()


async def until_text(session: Session, wanted: str) -> None:
    """Wait until the text is there; every change of others is a reason to look again."""
    async with asyncio.timeout(DEADLINE):
        changes = session.changes()
        while text_of(session) != wanted:
            await anext(changes)


def large_document() -> LoroDoc:
    doc = LoroDoc()
    doc.get_map("files").insert("noise", random.Random(1).randbytes(LARGE_BYTES // 2).hex())
    doc.commit()
    return doc


async def test_two_clients_end_equal_and_what_is_acked_is_there_for_a_newcomer(
    stack: Stack, name: str
) -> None:
    """Each client gets the other's edits, and a later third client reads the same."""
    async with (
        stack.client() as one,
        stack.client() as two,
        one.open(name) as anna,
        two.open(name) as bob,
    ):
        changes = bob.changes()
        anna.doc.get_text("body").insert(0, "hello")
        anna.commit()
        receipt = await anna.flush(timeout=DEADLINE)
        assert receipt is not None
        assert receipt.sequence > 0
        assert anna.state is State.SAVED
        await until_text(bob, "hello")
        async with asyncio.timeout(DEADLINE):
            first = await anext(changes)
        assert isinstance(first, Change)
        assert first.sequence == receipt.sequence
        bob.doc.get_text("body").insert(5, " world")
        await bob.flush(timeout=DEADLINE)
        await until_text(anna, "hello world")
        async with stack.client() as three, three.open(name, read_only=True) as eve:
            assert text_of(eve) == "hello world"
            assert eve.state is State.SAVED
            answer = await three.document(name).get()
            assert answer["value"] == {"body": "hello world"}


async def test_presence_reaches_the_others_and_goes_with_its_session(stack: Stack, name: str) -> None:
    """A cursor is seen while its session is open, and no longer."""
    async with stack.client() as one, stack.client() as two, two.open(name) as bob:
        async with one.open(name) as anna:
            anna.presence.set({"cursor": 5})
            await eventually(lambda: list(bob.presence.all().values()) == [{"cursor": 5}])
        await eventually(lambda: not bob.presence.all())


async def test_an_update_of_many_chunks_arrives_whole(stack: Stack, name: str) -> None:
    """20 MiB in one commit are saved, and another client has them."""
    async with (
        stack.client() as client,
        stack.client() as other,
        client.open(name) as session,
        other.open(name, read_only=True) as reader,
    ):
        changes = reader.changes()
        noise = bytes(range(256)) * (20 * 1024 * 4)
        session.doc.get_map("files").insert("noise", noise)
        assert await session.flush(timeout=60) is not None
        async with asyncio.timeout(60):
            await anext(changes)
        assert same(reader.doc.get_map("files").get_deep_value(), {"noise": noise})


async def test_calls_and_replies_of_several_windows_arrive_whole(stack: Stack, name: str) -> None:
    """9 MB are imported, read, exported, forked and synced, by an app and by an operator."""
    doc = large_document()
    async with stack.client() as app, stack.operator() as operator:
        receipt = await app.document(name).import_(doc.export(ExportMode.Snapshot()))
        assert receipt.durability == "journal"
        await app.document(name).fork(f"{name}-copy")
        for client in (app, operator):
            got = await client.document(f"{name}-copy").get(timeout=DEADLINE)
            assert same(got["value"], doc.get_deep_value())
            copy = LoroDoc()
            copy.import_(await client.document(name).export())
            assert same(copy.get_deep_value(), doc.get_deep_value())
            async with client.open(name, read_only=True) as session:
                assert same(session.doc.get_deep_value(), doc.get_deep_value())


async def test_a_document_goes_back_and_its_history_is_there(stack: Stack, name: str) -> None:
    """Patch, history, an older version, revert, compact, status."""
    async with stack.client() as client:
        document = client.document(name)
        await document.patch([{"op": "add", "path": "/t", "value": "one"}])
        first = (await document.version())["frontiers"]
        assert isinstance(first, bytes)
        await document.patch([{"op": "replace", "path": "/t", "value": "two"}])
        assert (await document.get(at=first))["value"] == {"t": "one"}
        await document.revert(first)
        assert (await document.get())["value"] == {"t": "one"}
        assert await document.history()
        await document.compact()
        assert (await document.get())["value"] == {"t": "one"}
        assert await document.status()


async def test_a_deleted_document_comes_back_when_it_is_restored(stack: Stack, name: str) -> None:
    """Until then no client reads it; an erased one never comes back."""
    async with stack.client() as client, stack.client() as other:
        document = client.document(name)
        await document.patch([{"op": "add", "path": "/t", "value": "one"}])
        await document.delete()
        with pytest.raises(Refused, match=r"deleted|erased"):
            await other.document(name).get()
        await document.restore()
        assert (await other.document(name).get())["value"] == {"t": "one"}
        await document.delete(purge=True)
        with pytest.raises(Refused, match=r"deleted|erased"):
            await other.document(name).get()


async def test_a_feed_gives_every_update_once(stack: Stack, name: str) -> None:
    """The feed has the updates from before and after an operator's subscription, large ones too."""
    noise = random.Random(2).randbytes(LARGE_BYTES)
    async with stack.client() as client, stack.operator() as operator, client.open(name) as session:
        session.doc.get_text("body").insert(0, "before")
        session.commit()
        await session.flush(timeout=DEADLINE)
        async with operator.feed(0, [name]) as feed:
            session.doc.get_map("files").insert("noise", noise)
            session.commit()
            last = await session.flush(timeout=DEADLINE)
            assert last is not None
            copy, sequence = LoroDoc(), 0
            async with asyncio.timeout(DEADLINE):
                while sequence < last.sequence:
                    item = await anext(feed)
                    assert isinstance(item, Update)
                    copy.import_(item.payload)
                    sequence = item.sequence
    assert same(copy.get_deep_value(), {"body": "before", "files": {"noise": noise}})


async def test_a_relay_passes_bytes_on_both_ways(stack: Stack, name: str) -> None:
    """A page without a replica in its client sees a session's edits, and the session the page's."""
    page = Page("a")
    async with (
        stack.client() as one,
        stack.client() as two,
        one.open(name) as session,
        relayed(two, name, page) as page.member,
    ):
        session.doc.get_text("t").insert(0, "hello")
        session.commit()
        await session.flush(timeout=DEADLINE)
        await page.join(timeout=DEADLINE)
        assert page.text == "hello"
        await page.type(" world")
        await eventually(lambda: session.doc.get_text("t").to_string() == "hello world")
