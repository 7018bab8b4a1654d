"""Phases of a real host: what it answers while it drains, and while it reads the WAL again."""

import asyncio
from typing import Any

import pytest

from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_server.document import startup, wal_reader
from lorogo_server.document.document_state import Phase
from lorogo_server.document.loading import load, read_on
from lorogo_server.rpc import methods
from lorogo_transport.errors import RequestTimeout
from tests.server.support import Writer, so, until
from tests.server.worlds import World


async def test_while_it_drains_a_document_sends_acks_and_refuses_calls(memory: World) -> None:
    """An update that was queued before the stop is ACKed; a call is repeated to the next owner."""
    server, _ = await memory.server()
    probe = memory.probe
    await probe.start("doc")
    host = server.hosts["doc"]
    async with host.busy:
        await probe.put("doc", probe.split(Writer().type("queued")))
        await until(lambda: so(len(host.backlog) == 1))
        host.stop("idle")
        assert host.state.is_ending
        with pytest.raises(Refused) as refused:
            await methods.answer(host, "get", {})
        assert refused.value.reason is Reason.NOT_OWNER
    assert isinstance(await probe.answer(), Ack)
    await host.closed.wait()
    assert host.state.phase is Phase.CLOSED


async def test_a_document_is_live_again_once_the_wal_is_read_to_its_end(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A re-read that fails is repeated from the beginning; a call waits, and is refused if it fails."""
    server, _ = await memory.server()
    probe, writer = memory.probe, Writer()
    await probe.start("doc")
    await probe.accept("doc", writer.type("before "))
    host, failures, calls = server.hosts["doc"], 0, list[asyncio.Future[Any]]()
    monkeypatch.setattr(wal_reader, "RETRY_SECONDS", 0.01)

    async def fail_first(*arguments: Any, **named: Any) -> None:
        nonlocal failures
        assert host.state.phase is Phase.REREADING
        if len(calls) < 4:
            calls.append(asyncio.ensure_future(methods.answer(host, "get", {})))
        if failures < 3:
            failures += 1
            raise RequestTimeout("NATS does not answer")
        await read_on(*arguments, **named)

    monkeypatch.setattr(wal_reader, "read_on", fail_first)
    host.rewind()
    await until(lambda: so(host.state.phase is Phase.LIVE and failures == 3))
    *refused, answered = await asyncio.gather(*calls, return_exceptions=True)
    assert [one.reason for one in refused if isinstance(one, Refused)] == [Reason.BUSY] * 3
    assert not isinstance(answered, BaseException)
    assert await probe.value("doc") == {"body": "before "}
    await probe.accept("doc", writer.type("after "))
    assert await probe.value("doc") == {"body": "before after "}


async def test_a_reload_that_is_requested_during_a_reload_is_not_lost(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored state may have changed after the first one read it."""
    server, _ = await memory.server()
    await memory.probe.start("doc")
    host, loads = server.hosts["doc"], 0

    async def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal loads
        loads += 1
        loaded = await load(*arguments, **named)
        if loads == 1:
            host.request_reload()
        return loaded

    monkeypatch.setattr(startup, "load", counted)
    host.request_reload()
    await until(lambda: so(loads == 2 and host.state.is_settled))
