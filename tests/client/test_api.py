"""Calls: they start the document, ask again when that is safe, and say what was refused."""

from dataclasses import replace

import pytest

from lorogo_client import NotServed, Refused, Timeout
from lorogo_protocol.reasons import Reason
from lorogo_transport.memory import MemoryNats
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
