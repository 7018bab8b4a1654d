"""The rights of a token in a closed NATS, in real NATS and in memory alike (docs/decisions/0016)."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lorogo_protocol import limits
from lorogo_protocol.access import tokens
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import PermissionDenied
from lorogo_transport.ports import Message, PermissionViolation, StreamSpec
from lorogo_transport.rpc.calls import Caller, ReplyBudget, Responder
from tests.transport.closed import ANN, BOB, Closed, closed_memory, closed_nats
from tests.transport.support import AnyTransport, Collector, until

WAL = StreamSpec(name=subjects.WAL_STREAM, subjects=("loro.wal.*",))


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def closed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Closed]:
    world = closed_memory(MemoryNats()) if request.param == "memory" else closed_nats(tmp_path)
    async with world as made:
        yield made


def watching(transport: AnyTransport) -> list[PermissionViolation]:
    seen: list[PermissionViolation] = []
    transport.bus.watch_refusals(seen.append)
    return seen


async def caller_of(transport: AnyTransport) -> Caller:
    numbers = itertools.count()
    caller = Caller(transport.bus, SystemClock(), lambda: f"call-{next(numbers)}")
    await caller.start()
    return caller


async def test_a_request_that_is_not_allowed_fails_at_once(closed: Closed) -> None:
    """A forbidden request fails at once and does not disturb the other requests of the client."""
    server, bob = await closed.server(), await closed.user(BOB)
    await server.bus.subscribe(subjects.ping("d1"), lambda message: None)
    await server.bus.barrier()
    allowed = asyncio.ensure_future(bob.bus.request(subjects.ping("d1"), timeout=60))
    for forbidden in (subjects.wal("d1"), subjects.ping("d3"), subjects.call("patch", "d1"), "$JS.API.INFO"):
        async with asyncio.timeout(10):
            with pytest.raises(PermissionDenied) as caught:
                await bob.bus.request(forbidden, timeout=60)
        assert caught.value.subject == forbidden
    await bob.bus.barrier()
    assert not allowed.done()
    allowed.cancel()


async def test_ids_that_differ_in_case_are_not_mixed_up(closed: Closed) -> None:
    """`D1` is refused, `d1` waits on."""
    server, ann = await closed.server(), await closed.user(ANN)
    await server.bus.subscribe("loro.ping.*", lambda message: None)
    await server.bus.barrier()
    allowed = asyncio.ensure_future(ann.bus.request(subjects.ping("d1"), timeout=60))
    with pytest.raises(PermissionDenied):
        await ann.bus.request(subjects.ping("D1"), timeout=60)
    await ann.bus.barrier()
    assert not allowed.done()
    allowed.cancel()


async def test_a_call_that_is_not_allowed_fails_at_once(closed: Closed) -> None:
    """As a request does, though it is published."""
    caller = await caller_of(await closed.user(BOB))
    async with asyncio.timeout(10):
        with pytest.raises(PermissionDenied, match=r"loro\.doc\.patch\.d1"):
            await caller.call("patch", "d1", timeout=60)
    await caller.close()


async def test_streams_cannot_be_asked(closed: Closed) -> None:
    """Nor read, nor changed; but what may be written is stored."""
    server, ann, bob = await closed.server(), await closed.user(ANN), await closed.user(BOB)
    await server.ensure(WAL)
    stream = ann.stream(subjects.WAL_STREAM)
    await stream.append_unconfirmed(subjects.wal("d1"), b"update")
    await ann.bus.barrier()
    async with asyncio.timeout(20):
        for question in (
            stream.last(subjects.wal("d1")),
            stream.get(1),
            stream.state(),
            stream.purge(subjects.wal("d1")),
            stream.delete(1),
            stream.append(subjects.wal("d2"), b"no"),
            anext(aiter(stream.read(subjects.wal("d1")))),
            stream.subjects("loro.wal.*"),
            anext(aiter(stream.newest_of([subjects.wal("d1")]))),
            bob.stream(subjects.WAL_STREAM).append(subjects.wal("d1"), b"no"),
            ann.ensure(WAL),
        ):
            with pytest.raises(PermissionDenied):
                await question
    assert [stored.data async for stored in server.stream(subjects.WAL_STREAM).read("loro.wal.*")] == [
        b"update"
    ]


async def test_a_forbidden_subscription_receives_nothing_and_is_reported(closed: Closed) -> None:
    """Inboxes and documents of other users are silent; messages of the client's own document arrive."""
    server, ann, bob = await closed.server(), await closed.user(ANN), await closed.user(BOB)
    refusals, received = watching(ann), Collector()
    theirs = subjects.user_inboxes(tokens.user_of(BOB.token))
    forbidden = [theirs, subjects.accepted("d2"), subjects.committed("d1"), "loro.wal.*", ">", "_TAKEN.>"]
    for subject in forbidden:
        await ann.bus.subscribe(subject, received)
    await ann.bus.subscribe(subjects.accepted("d1"), received)
    await ann.bus.barrier()
    await until(lambda: len(refusals) == len(forbidden))
    assert [refusal.subject for refusal in refusals] == forbidden
    assert not any(refusal.publish for refusal in refusals)
    got = Collector()
    inbox = bob.bus.new_inbox()
    await bob.bus.subscribe(inbox, got)
    await bob.bus.barrier()
    for subject in (inbox, subjects.accepted("d2"), subjects.committed("d1"), "_TAKEN.x"):
        await server.bus.publish(subject, b"secret")
    await server.bus.publish(subjects.accepted("d1"), b"mine")
    await received.wait(1)
    await got.wait(1)
    await ann.bus.barrier()
    assert received.bodies == [b"mine"]


async def test_a_forbidden_publication_is_reported(closed: Closed) -> None:
    """The publication reaches no subscriber; the client's watcher receives its subject."""
    server, ann = await closed.server(), await closed.user(ANN)
    refusals, received = watching(ann), Collector()
    await server.bus.subscribe("loro.*.*", received)
    await server.bus.barrier()
    for subject in (subjects.status("d1"), subjects.accepted("d1"), subjects.awareness("d2")):
        await ann.bus.publish(subject, b"forged")
    await ann.bus.publish(subjects.awareness("d1"), b"mine")
    await received.wait(1)
    await until(lambda: len(refusals) == 3)
    assert received.bodies == [b"mine"]
    assert refusals[0] == PermissionViolation(subjects.status("d1"), publish=True)


async def test_a_closed_server_answers_inboxes_of_users_only(closed: Closed) -> None:
    """Whatever else a message names as its reply, the handler sees none; and it is counted."""
    server, ann = await closed.server(), await closed.user(ANN)
    got = Collector()
    await server.bus.subscribe(subjects.ping("d1"), got)
    await server.bus.barrier()
    good = ann.bus.new_inbox()
    for reply in ("_INBOX.x", "$JS.API.STREAM.PURGE.loro-wal", "loro.wal.d1", "_TAKEN.x", good):
        await ann.bus.publish(subjects.ping("d1"), reply=reply)
    assert [message.reply for message in await got.wait(5)] == ["", "", "", "", good]
    assert server.bus.unanswerable == 4


async def test_a_long_reply_and_a_long_request(closed: Closed) -> None:
    """Several windows each way, with no right but those of the token; the token is on every chunk."""
    server, ann = await closed.server(), await closed.user(ANN)
    seen: set[str | None] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(verb: str, body: dict[str, object]) -> dict[str, object]:
        data = body["data"]
        assert isinstance(data, bytes)
        return {"data": data[::-1]}

    responder = Responder(
        server.bus,
        SystemClock(),
        lambda _: serve,
        spawn=lambda work: tasks.add(asyncio.ensure_future(work)),
        budget=ReplyBudget(1 << 30),
    )

    def on_call(message: Message) -> None:
        seen.add(message.headers.get(h.TOKEN))
        responder.on_message(message)

    await server.bus.subscribe(subjects.calls("d1"), on_call)
    await server.bus.barrier()
    caller = await caller_of(ann)
    data = bytes(range(256)) * (2 * limits.WINDOW_BYTES // 256 + 100)
    answer = await caller.call("import", "d1", {"data": data}, timeout=30, token=ANN.token)
    assert answer == {"data": data[::-1]}
    assert seen == {ANN.token}
    await caller.close()
    await asyncio.gather(*tasks)


async def test_no_other_user_can_release_a_window(closed: Closed) -> None:
    """A word on `_TAKEN` answers the window that it was made for, and no other request."""
    server, ann, bob = await closed.server(), await closed.user(ANN), await closed.user(BOB)
    replies: list[str] = []
    inbox = ann.bus.new_inbox()
    await ann.bus.subscribe(inbox, lambda message: replies.append(message.reply))
    await ann.bus.barrier()
    window = asyncio.ensure_future(server.bus.request(inbox, timeout=60, window=True))
    plain = asyncio.ensure_future(server.bus.request(inbox, timeout=60))
    await until(lambda: len(replies) == 2)
    taken = next(reply for reply in replies if reply.startswith("_TAKEN."))
    before = taken.rpartition(".")[0]
    for number in range(20):
        await bob.bus.publish(f"{before}.{number}", b"forged")
    await bob.bus.barrier()
    await server.bus.barrier()
    assert not window.done()
    assert not plain.done()
    await ann.bus.publish(taken)
    await window
    assert not plain.done()
    plain.cancel()
