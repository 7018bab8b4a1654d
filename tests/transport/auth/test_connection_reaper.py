"""Connections whose token is good no more are found on every nats-server, and closed."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from lorogo_protocol.access import callout
from lorogo_protocol.access.grants import Grants
from lorogo_protocol.access.tokens import Token
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth import connection_reaper
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.connection_reaper import FIND, PAGE, ConnectionReaper
from lorogo_transport.errors import RequestTimeout, TransportError
from lorogo_transport.ports import Message


class FakeAuthority:
    """Some tokens are good no more."""

    def __init__(self) -> None:
        self.known = True
        self.bad: set[str] = set()
        self.listeners: list[Callable[[], None]] = []

    def is_valid(self, token: Token) -> bool:
        return token.token_id not in self.bad

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def revoke(self, token_id: str) -> None:
        self.bad.add(token_id)
        for listener in self.listeners:
            listener()


class FakeServers:
    """nats-servers that list connections in pages, and close them."""

    def __init__(self, *names: str) -> None:
        self.nats = MemoryNats()
        self.transport = self.nats.connect()
        self.connections: dict[str, dict[int, str]] = {name: {} for name in names}
        self.kicked: list[tuple[str, int]] = []
        self.closed = asyncio.Event()
        self.garbage = b""
        self.dumb: set[str] = set()  # pages and kicks that are not answered

    async def start(self) -> None:
        bus = self.transport.bus
        await bus.subscribe(FIND, lambda message: self._found(message, *self.connections))
        for name in self.connections:
            prefix = f"$SYS.REQ.SERVER.{name}"
            await bus.subscribe(f"{prefix}.CONNZ", lambda message, name=name: self._found(message, name))  # type: ignore[misc]  # mypy does not know defaults of lambdas
            await bus.subscribe(f"{prefix}.KICK", lambda message, name=name: self._kick(message, name))  # type: ignore[misc]  # the same
        await bus.barrier()

    def add(self, server: str, connection_id: int, token_id: str) -> None:
        token = Token("ann b", Grants(), 2e9, 1.0, token_id, "k1", "f" * 32, "print")
        self.connections[server][connection_id] = callout.name_of(token)

    def _found(self, message: Message, *names: str) -> None:
        question = json.loads(message.data)
        if self.garbage:
            self._say(message.reply, self.garbage)
            self.garbage = b""
            return
        for name in names:
            if f"{name} {question['offset']}" in self.dumb:
                continue
            listed = [
                {"cid": cid, "authorized_user": user, "ip": "10.0.0.7"}
                for cid, user in self.connections[name].items()
            ]
            page = listed[question["offset"] : question["offset"] + question["limit"]]
            self._say(message.reply, {"server": {"id": name}, "data": {"connections": page}})

    def _kick(self, message: Message, name: str) -> None:
        connection_id = json.loads(message.data)["cid"]
        if f"{name} kick" in self.dumb:
            return
        del self.connections[name][connection_id]
        self.kicked.append((name, connection_id))
        self._say(message.reply, {})
        self.closed.set()

    def _say(self, reply: str, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self._saying = asyncio.ensure_future(self.transport.bus.publish(reply, data))


def _kicker(servers: FakeServers, authority: FakeAuthority) -> ConnectionReaper:
    return ConnectionReaper(servers.transport.bus, cast(Authority, authority))


async def test_every_server_and_every_page_is_looked_at() -> None:
    """Bad ones are closed wherever they are; good ones and services stay."""
    servers, authority = FakeServers("N1", "N2"), FakeAuthority()
    await servers.start()
    for number in range(PAGE + 10):
        servers.add("N1", number, "good" if number != PAGE + 5 else "bad")
    servers.add("N2", 1, "bad")
    servers.add("N2", 2, "good")
    servers.connections["N2"][3] = "U" + "A" * 55
    authority.bad.add("bad")
    kicker = _kicker(servers, authority)
    assert await kicker.check() == 2
    assert sorted(servers.kicked) == [("N1", PAGE + 5), ("N2", 1)]
    assert await kicker.check() == 0


async def test_no_connection_is_closed_while_revocations_are_unknown() -> None:
    """Otherwise a slow NATS would make the reaper close every connection."""
    servers, authority = FakeServers("N1"), FakeAuthority()
    await servers.start()
    servers.add("N1", 1, "bad")
    authority.bad.add("bad")
    authority.known = False
    assert await _kicker(servers, authority).check() == 0
    assert servers.kicked == []


async def test_a_connection_in_progress_is_found_by_the_second_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection verified before the revocation and listed after it is closed without another
    notification.
    """
    servers, authority = FakeServers("N1"), FakeAuthority()
    await servers.start()
    monkeypatch.setattr("lorogo_transport.auth.connection_reaper.RECHECK_SECONDS", 0.05)
    monkeypatch.setattr("lorogo_transport.auth.connection_reaper.CHECK_SECONDS", 3600.0)
    async with asyncio.timeout(30), _kicker(servers, authority):
        servers.add("N1", 1, "bad")
        authority.revoke("bad")
        await servers.closed.wait()
        servers.closed.clear()
        servers.add("N1", 2, "bad")
        await servers.closed.wait()
    assert servers.kicked == [("N1", 1), ("N1", 2)]
    assert authority.listeners == []


async def test_an_answer_that_cannot_be_read_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails, and the reaper repeats it a second later."""
    servers, authority = FakeServers("N1"), FakeAuthority()
    await servers.start()
    servers.garbage = b"{"
    servers.add("N1", 1, "bad")
    authority.bad.add("bad")
    for name in ("RECHECK_SECONDS", "CHECK_SECONDS"):
        monkeypatch.setattr(f"lorogo_transport.auth.connection_reaper.{name}", 3600.0)
    async with asyncio.timeout(30), _kicker(servers, authority):
        await servers.closed.wait()
    assert servers.kicked == [("N1", 1)]


@pytest.mark.parametrize("dumb", ["N1 kick", f"N1 {PAGE}"], ids=["a kick", "a page"])
async def test_a_silent_server_does_not_delay_the_others(dumb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reaper closes the connections of the other servers and those already listed; the check fails and is
    repeated.
    """
    monkeypatch.setattr(connection_reaper, "REQUEST_SECONDS", 0.5)
    servers, authority = FakeServers("N1", "N2"), FakeAuthority()
    await servers.start()
    for number in range(PAGE + 1):
        servers.add("N1", number, "good")
    servers.add("N1", 0, "bad")
    servers.add("N1", PAGE, "bad")
    servers.add("N2", 1, "bad")
    authority.bad.add("bad")
    servers.dumb.add(dumb)
    kicker = _kicker(servers, authority)
    with pytest.raises(TransportError, match="1 of 2 nats-servers"):
        await kicker.check()
    assert ("N2", 1) in servers.kicked
    assert (("N1", 0) in servers.kicked) is (dumb != "N1 kick")
    servers.dumb.clear()
    async with asyncio.timeout(30), _kicker(servers, authority):
        while len(servers.kicked) < 3:
            await servers.closed.wait()
            servers.closed.clear()
    assert sorted(servers.kicked) == [("N1", 0), ("N1", PAGE), ("N2", 1)]


async def test_silence_is_not_taken_for_an_empty_list() -> None:
    """A check that no nats-server answers is an error: the reaper knows nothing about the connections."""
    servers, authority = FakeServers(), FakeAuthority()
    await servers.start()
    kicker = _kicker(servers, authority)
    with pytest.raises(RequestTimeout):
        await kicker.check()
