"""The bus against a wire that a test controls: races that a real socket shows once in a million."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import cast

import pytest
import structlog.testing

from lorogo_transport.errors import Disconnected, RequestTimeout, Unreachable
from lorogo_transport.nats.bus import JetStreamBus
from lorogo_transport.nats.wire import NatsConnection, NatsOptions, NatsSubscription
from lorogo_transport.ports import Message, PermissionViolation


class FakeWire:
    """A wire without a socket: it keeps the sent bytes, and answers pings when a test sets their futures."""

    def __init__(
        self,
        listeners: Mapping[int, NatsSubscription],
        on_lost: Callable[[NatsConnection, Exception], None],
        on_refused: Callable[[PermissionViolation], None],
    ) -> None:
        self.listeners = listeners
        self.on_refused = on_refused
        self.token: str | None = None
        self.on_lost = on_lost
        self.sent: list[bytes] = []
        self.pongs: list[asyncio.Future[bool]] = []
        self.last_problem: Exception | None = None
        self.congested = False
        self.dead = False
        self.max_payload = 1000
        self.broker_id = "broker"

    async def dial(self, server: str, options: NatsOptions, token: str | None) -> None:
        self.token = token

    def discovered(self, server: str) -> list[str]:
        return [server, "nats://other:4222"]

    def send(self, *parts: bytes) -> None:
        self.sent.append(b"".join(parts))

    async def drain(self) -> None:
        raise ConnectionResetError

    def ping(self) -> "asyncio.Future[bool]":
        self.pongs.append(asyncio.get_running_loop().create_future())
        return self.pongs[-1]

    def abort(self) -> None:
        self.dead = True

    async def ended(self) -> None: ...


class Wires:
    """Makes wires, and lets a test reach the newest."""

    def __init__(self) -> None:
        self.made: list[FakeWire] = []

    def __call__(
        self,
        listeners: Mapping[int, NatsSubscription],
        on_lost: Callable[[NatsConnection, Exception], None],
        on_refused: Callable[[PermissionViolation], None],
    ) -> NatsConnection:
        self.made.append(FakeWire(listeners, on_lost, on_refused))
        return cast(NatsConnection, self.made[-1])

    async def pinged(self) -> FakeWire:
        async with asyncio.timeout(5):
            while not self.made or not self.made[-1].pongs:  # noqa: ASYNC110  # one turn at a time
                await asyncio.sleep(0)
        return self.made[-1]


def options() -> NatsOptions:
    return NatsOptions(("nats://here:4222",), "test", timeout=5, rng=random.Random(1))


async def opened() -> tuple[JetStreamBus, FakeWire, Wires]:
    wires = Wires()
    bus = JetStreamBus(options(), wires)
    opening = asyncio.ensure_future(bus.open())
    wire = await wires.pinged()
    wire.pongs[0].set_result(True)
    await opening
    return bus, wire, wires


async def closed(bus: JetStreamBus, wire: FakeWire) -> None:
    closing = asyncio.ensure_future(bus.close())
    await asyncio.sleep(0)
    for pong in wire.pongs:
        if not pong.done():
            pong.set_result(True)
    await closing


async def test_a_wire_that_dies_with_its_first_pong_is_not_used() -> None:
    """Answered and lost within one turn of the loop: not connected."""
    wires = Wires()
    bus = JetStreamBus(options(), wires)
    opening = asyncio.ensure_future(bus.open())
    wire = await wires.pinged()
    wire.pongs[0].set_result(True)
    wire.on_lost(cast(NatsConnection, wire), ConnectionError("lost"))
    with pytest.raises(Unreachable):
        await opening
    assert not bus.connected


async def test_what_changed_while_dialling_is_brought_in_line() -> None:
    """The bus sends subscriptions made or ended during the dial to the new wire before it uses that wire."""
    bus, first, wires = await opened()
    ended = await bus.subscribe("ended", lambda _: None)
    first.on_lost(cast(NatsConnection, first), ConnectionError("lost"))
    wires.made.clear()
    second = await wires.pinged()
    await bus.subscribe("made", lambda _: None)
    await ended.close()
    assert b"SUB ended  " in b"".join(second.sent)
    second.pongs[0].set_result(True)
    while not bus.connected:  # noqa: ASYNC110  # one turn at a time
        await asyncio.sleep(0)
    assert b"SUB made  " in b"".join(second.sent)
    assert second.sent[-1].startswith(b"UNSUB ")
    await closed(bus, second)


async def test_every_waiting_call_fails_at_once() -> None:
    """A lost wire fails requests in the same turn, and a publisher that waited for the socket as well."""
    bus, wire, _ = await opened()
    seen: list[bool] = []
    bus.watch_connection(seen.append)
    request = asyncio.ensure_future(bus.request("a", timeout=60))
    await asyncio.sleep(0)
    wire.congested = True
    with pytest.raises(Disconnected):
        await bus.publish("a", b"x")
    wire.on_lost(cast(NatsConnection, wire), ConnectionError("lost"))
    with pytest.raises(RequestTimeout):
        await request
    with pytest.raises(Disconnected):
        await bus.publish("a", b"x")
    assert seen == [False]
    await closed(bus, wire)


async def test_a_late_answer_is_dropped() -> None:
    """The bus drops an answer that arrives after its request gave up, or twice."""
    bus, wire, _ = await opened()
    with pytest.raises(RequestTimeout):
        await bus.request("a", timeout=0)
    inbox = wire.sent[-1].split()[2].decode()
    (replies,) = (listener for listener in wire.listeners.values() if listener.subject.endswith(".r.*"))
    replies.handler(Message(inbox, b"late"))
    replies.handler(Message(inbox, b"again"))
    await closed(bus, wire)


@pytest.mark.parametrize(
    ("error", "level"),
    [(OSError("cut"), "warning"), (Disconnected("we wanted it"), "info")],
    ids=["cut", "renewed"],
)
async def test_a_reconnect_is_logged_at_the_level_of_its_loss(error: Exception, level: str) -> None:
    """An operator who logs warnings only sees both the loss and the return of the connection."""
    bus, wire, wires = await opened()
    with structlog.testing.capture_logs() as events:
        wire.on_lost(cast(NatsConnection, wire), error)
        async with asyncio.timeout(5):
            while len(wires.made) < 2 or not wires.made[-1].pongs:  # noqa: ASYNC110  # one turn at a time
                await asyncio.sleep(0)
            wires.made[-1].pongs[0].set_result(True)
            while not bus.connected:  # noqa: ASYNC110  # the same
                await asyncio.sleep(0)
            await asyncio.sleep(0)
    logged = [(event["event"], event["log_level"]) for event in events]
    assert logged == [("connection to NATS lost", level), ("connected to NATS again", level)]
    await closed(bus, wires.made[-1])
