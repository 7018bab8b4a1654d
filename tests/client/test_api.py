"""Calls: they start the document, ask again when that is safe, and say what was refused."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import lorogo_client
from lorogo_client import InvalidDocumentId, InvalidMoment, NotServed, Refused, Timeout
from lorogo_client.versions import show_version
from lorogo_protocol.messages.reasons import Reason
from lorogo_testing.memory_nats import MemoryNats
from tests.client.support import QUICK, FakeOwner, client_of


async def test_a_call_starts_the_document(world: MemoryNats, owner: FakeOwner) -> None:
    """Nobody needs a session to read."""
    await owner.edit("hello", tell=False)
    async with client_of(world) as client:
        document = client.document("doc")
        assert (await document.get())["value"] == {"t": "hello"}
        assert (await document.version())["lease"] == owner.token
        assert len(await document.history()) == 1
        assert await document.fork("copy") == "copy"
        assert (await document.patch([{"op": "add", "path": "/x", "value": 1}])).lease == owner.token
        assert (await document.revert(1)).durability == "stream"
        assert await document.export() == owner.replica.snapshot()
        assert owner.inits == 1
        assert owner.syncs == []


@pytest.mark.parametrize("reason", [Reason.NOT_OWNER, Reason.BUSY])
async def test_a_call_that_was_put_off_is_made_again(
    world: MemoryNats, owner: FakeOwner, reason: Reason
) -> None:
    """Both are said before anything was done, so a change may be asked for again too."""
    owner.refuse_calls.extend([reason, reason])
    async with client_of(world) as client:
        await client.document("doc").patch([])
        assert owner.calls == ["patch"] * 3


async def test_a_refusal_carries_its_reason(world: MemoryNats, owner: FakeOwner) -> None:
    """The owner's code and sentence reach the app."""
    owner.refuse_calls.append(Reason.PATCH_FAILED)
    async with client_of(world) as client:
        with pytest.raises(Refused, match="as told") as caught:
            await client.document("doc").patch([])
        assert caught.value.reason is Reason.PATCH_FAILED


async def test_a_call_without_servers_ends_in_time(world: MemoryNats) -> None:
    """And says how to start one."""
    async with client_of(world) as client:
        with pytest.raises(NotServed, match="lorogo serve"):
            await client.document("doc").get(timeout=1)


async def test_a_change_that_was_not_answered_is_not_made_twice(world: MemoryNats, owner: FakeOwner) -> None:
    """Timeout: it may have been done. A question is simply asked again."""
    async with client_of(world, replace(QUICK, call_seconds=1.0)) as client:
        document = client.document("doc")
        await document.version()
        inbox = client._context.caller._on_reply
        lost: list[object] = []
        for listener in client.transport.bus._listeners.values():  # type: ignore[attr-defined]
            if listener.handler == inbox:
                listener.handler = lost.append
        with pytest.raises(Timeout, match="may have been done"):
            await document.patch([], timeout=0.2)
        assert owner.calls.count("patch") == 1
        with pytest.raises(Timeout):
            await document.get(timeout=0.8)
        assert owner.calls.count("get") >= 2


async def test_one_path_is_one_path(world: MemoryNats, owner: FakeOwner) -> None:
    """A JSONPath given as text is that path, not a list of its letters."""
    async with client_of(world) as client:
        await client.document("doc").get("$.t")
        assert owner.arguments[-1]["paths"] == ["$.t"]


@pytest.mark.parametrize(
    ("at", "sent"),
    [
        (datetime(2024, 11, 18, 7, 0, tzinfo=UTC), 1_731_913_200_000_000_000),
        ("2024-11-18T07:00:00Z", 1_731_913_200_000_000_000),
        (show_version(b"\x01\x02"), b"\x01\x02"),
        (17, 17),
        (b"\x01", b"\x01"),
    ],
)
async def test_a_moment_may_be_named_in_any_form(
    world: MemoryNats, owner: FakeOwner, at: Any, sent: object
) -> None:
    """Calls take a datetime, and the texts that commands and HTTP take."""
    async with client_of(world) as client:
        document = client.document("doc")
        await document.get(at=at)
        await document.revert(at)
        await document.fork("copy", at)
        assert [body["at"] for body in owner.arguments[-3:]] == [sent] * 3


async def test_an_age_is_counted_from_now(world: MemoryNats, owner: FakeOwner) -> None:
    """`10m` is ten minutes before the clock of the client."""
    async with client_of(world) as client:
        before = client._context.clock.wall_ns()
        await client.document("doc").get(at="10m")
        asked: Any = owner.arguments[-1]["at"]
        assert before - 600e9 <= asked <= client._context.clock.wall_ns() - 600e9


@pytest.mark.parametrize("at", ["vNOPE!", "yesterday", 3.5, True, [1]])
async def test_what_is_no_moment_is_refused_before_it_is_sent(
    world: MemoryNats, owner: FakeOwner, at: Any
) -> None:
    """The error lists the forms that there are."""
    async with client_of(world) as client:
        with pytest.raises(InvalidMoment, match="version"):
            await client.document("doc").get(at=at)
        assert owner.calls == []


@pytest.mark.parametrize("at", ["2999-01-01", datetime(2999, 1, 1, tzinfo=UTC)])
async def test_a_time_in_the_future_is_refused_before_it_is_sent(
    world: MemoryNats, owner: FakeOwner, at: Any
) -> None:
    """A revert to it would change nothing, and look like a success."""
    async with client_of(world) as client:
        with pytest.raises(InvalidMoment, match="is in the future"):
            await client.document("doc").revert(at=at)


@pytest.mark.parametrize("operations", [{"op": "remove", "path": "/x"}, '[{"op": "remove"}]'])
async def test_a_patch_is_a_list(world: MemoryNats, owner: FakeOwner, operations: Any) -> None:
    """One operation without its list, or JSON text, is refused before it is sent."""
    async with client_of(world) as client:
        with pytest.raises(Refused, match="a patch is a list of operations"):
            await client.document("doc").patch(operations)
        assert owner.calls == []


@pytest.mark.parametrize("name", [5, None, b"doc", ["doc"]])
async def test_a_document_id_is_text(world: MemoryNats, owner: FakeOwner, name: Any) -> None:
    """Anything else is an InvalidDocumentId that names the type."""
    async with client_of(world) as client:
        for use in (client.open, client.document):
            with pytest.raises(InvalidDocumentId, match=f"it is {type(name).__name__}, not text"):
                use(name)
        with pytest.raises(InvalidDocumentId, match=f"it is {type(name).__name__}, not text"):
            await client.document("doc").fork(name)
        assert owner.calls == []


@pytest.mark.parametrize("where", [None, 5, ["nats://127.0.0.1"]])
def test_connect_names_what_it_takes(where: Any) -> None:
    """Neither an address nor a transport: the error shows an address."""
    with pytest.raises(TypeError, match=r"nats://127\.0\.0\.1:4222.*not " + type(where).__name__):
        lorogo_client.connect(where)


async def test_a_forgotten_await_is_explained(world: MemoryNats, owner: FakeOwner) -> None:
    """Using a connection or session before it is open says how to open it."""
    with pytest.raises(AttributeError, match=r"'open' is used before .* `async with"):
        lorogo_client.connect("nats://127.0.0.1:1").open("doc")  # type: ignore[attr-defined]
    async with client_of(world) as client:
        with pytest.raises(AttributeError, match=r"'doc' is used before .* `it = await"):
            client.open("doc").doc  # type: ignore[attr-defined]  # noqa: B018
    assert owner.calls == []
