"""The in-memory twin of NATS: a whole broker in one process, deterministic, with faults on demand.

    world = MemoryNats(now_ns=clock, rng=random.Random(7))
    transport = world.connect("server-1")

Every call goes through its connection's queue to the broker and back, one turn of the event loop
each way, in order: as on a socket, nothing re-enters and nothing overtakes. Faults belong to a
connection: `transport.cut()`, `transport.heal()`, `transport.drop_next_ack()`; the loss of stored
messages belongs to the world: `world.rewind(stream, last)`.

With a weather (`memory_weather`) messages may be lost, doubled, late and overtaken, and direct gets stale;
a tap is told everything that happens at the broker.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Self

from lorogo_testing.broker import BrokerConnection, BrokerSubscription, ConnectionIdentity
from lorogo_testing.bus import MemoryBus
from lorogo_testing.change_log import StreamChangeLog
from lorogo_testing.fault_model import BrokerObserver, FaultModel
from lorogo_testing.stream import MemoryStream
from lorogo_testing.stream_store import StreamStore
from lorogo_transport.errors import StreamMismatch, StreamMissing, TransportError
from lorogo_transport.headers import STATUS
from lorogo_transport.ports import Message, ServiceInfo, StoredMessage, StreamSpec, Subscription
from lorogo_transport.rpc import services
from lorogo_transport.rpc.subject_patterns import matches, transform
from lorogo_transport.stores import topology
from lorogo_transport.timestamps import format_time_ns

_MAX_PAYLOAD = 1024 * 1024
_MATCHING_MAX = 1000


class MemoryNats:
    """The broker: who listens, and what the streams hold."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        rng: random.Random | None = None,
        max_payload: int = _MAX_PAYLOAD,
        weather: FaultModel | None = None,
        tap: BrokerObserver | None = None,
    ) -> None:
        self.now_ns = now_ns
        self.rng = rng if rng is not None else random.Random(0)
        self.max_payload = max_payload
        self.broker_id = "memory"
        self.stores: dict[str, StreamStore] = {}
        self.ids = itertools.count(1)
        self.weather = weather
        self.tap = tap
        self.acting = ""  # the line whose wish is served right now; empty: nobody's
        self.context = copy_context()  # what arrives at the broker runs here, if there is a weather
        self._down_until = 0.0
        self._connections: dict[int, BrokerConnection] = {}
        self._literal: dict[str, dict[int, BrokerSubscription]] = {}
        self._patterns: dict[int, BrokerSubscription] = {}
        self._matching: dict[
            str, list[BrokerSubscription]
        ] = {}  # of a subject, as long as no pattern comes or goes

    @property
    def down(self) -> bool:
        """Whether the broker is not there right now."""
        return self._down_until > 0 and asyncio.get_running_loop().time() < self._down_until

    def connect(self, name: str = "memory", standing: ConnectionIdentity | None = None) -> "MemoryTransport":
        """A connection; what arrives on it runs in the caller's context, if there is a weather.

        While the broker is down it is made when the broker is there again.
        """
        bus = MemoryBus(self, name, standing or ConnectionIdentity())
        self._connections[id(bus)] = bus
        if self.down:
            bus.drop()
        return MemoryTransport(self, bus)

    def left(self, connection: BrokerConnection) -> None:
        """It never comes back."""
        self._connections.pop(id(connection), None)

    def restart(self, down_seconds: float = 0.0, damage: Callable[[], None] | None = None) -> None:
        """Begin another life of the broker: every connection is lost, and made again at a time of its own.

        `damage` is done to the streams meanwhile: `rewind`, `lose_messages`, `lose_stream`.
        """
        self._down_until = asyncio.get_running_loop().time() + down_seconds
        for connection in list(self._connections.values()):
            if connection.connected:
                connection.drop()
        self.broker_id = f"memory-{next(self.ids)}"
        if damage is not None:
            damage()

    def heal(self) -> None:
        """End a restart now: whoever tries to connect succeeds."""
        self._down_until = 0.0

    def rewind(self, stream: str, last: int) -> None:
        """Lose what `stream`, if it is there, stored after sequence `last`: sequences go backwards."""
        self.acting = ""
        if stream in self.stores:
            self.stores[stream].rewind(last)

    def rewind_to(self, stream: str, time_ns: int) -> None:
        """Lose what `stream`, if it is there, stored after that time."""
        if stream in self.stores:
            self.rewind(stream, self.stores[stream].last_until(time_ns))

    def lose_messages(self, stream: str, sequences: Iterable[int]) -> int:
        """Lose these messages of `stream`, if it is there; returns how many there were."""
        self.acting = ""
        return self.stores[stream].lose(sequences) if stream in self.stores else 0

    def lose_stream(self, stream: str) -> None:
        """Lose all of `stream`, itself included, if it is there: who needs it makes it anew."""
        self.rewind(stream, 0)
        self.stores.pop(stream, None)

    def make(self, config: Mapping[str, object]) -> None:
        """Add a stream with these settings."""
        ledger = (
            None if self.weather is None and self.tap is None else StreamChangeLog(str(config["name"]), self)
        )
        self.stores[str(config["name"])] = StreamStore(config, self.now_ns(), ledger)

    def store(self, name: str) -> StreamStore:
        try:
            return self.stores[name]
        except KeyError:
            raise StreamMissing(name) from None

    def publish(self, message: Message, line: str = "") -> list[tuple[str, int]]:
        """Route to listeners and streams; returns (stream, sequence) where it was stored.

        Raises what the stream raises. With a reply subject, the stream's answer (or word that
        nobody listens) goes there, as NATS does it.
        """
        self.acting = line
        if self.tap is not None:
            self.tap.published(line, message)
        heard = self.route(message)
        acks: list[tuple[str, int]] = []
        for store in list(self.stores.values()):
            if store.covers(message.subject):
                stored, previous = self._store(store, message, line)
                acks.append((store.name, stored.sequence))
                self._republish(store, message, stored, previous)
        if message.reply and acks:
            answer = {"stream": acks[0][0], "seq": acks[0][1]}
            self.route(Message(message.reply, json.dumps(answer).encode()))
        elif message.reply and not heard:
            self.route(Message(message.reply, b"", {STATUS: "503"}))
        return acks

    def route(self, message: Message) -> int:
        """Hand to everyone who listens, one of each queue group; returns to how many."""
        receivers: list[BrokerSubscription] = []
        groups: dict[tuple[str, str], list[BrokerSubscription]] = {}
        for listener in (*self._literal.get(message.subject, {}).values(), *self._match(message.subject)):
            if not listener.bus.connected:
                continue
            if listener.queue:
                groups.setdefault((listener.subject, listener.queue), []).append(listener)
            else:
                receivers.append(listener)
        receivers += [self.rng.choice(members) for members in groups.values()]
        for listener in receivers:
            listener.bus.deliver(listener, message)
        return len(receivers)

    def _match(self, subject: str) -> list[BrokerSubscription]:
        """Those who listen to a pattern that covers the subject."""
        found = self._matching.get(subject)
        if found is None:
            if len(self._matching) >= _MATCHING_MAX:
                self._matching.clear()
            found = [one for one in self._patterns.values() if matches(one.subject, subject)]
            self._matching[subject] = found
        return found

    def add(self, listener: BrokerSubscription) -> None:
        self._home(listener)[listener.sid] = listener

    def discard(self, listener: BrokerSubscription) -> None:
        self._home(listener).pop(listener.sid, None)
        if not self._literal.get(listener.subject, True):
            del self._literal[listener.subject]

    def _home(self, listener: BrokerSubscription) -> dict[int, BrokerSubscription]:
        if "*" in listener.subject or ">" in listener.subject:
            self._matching.clear()
            return self._patterns
        return self._literal.setdefault(listener.subject, {})

    def _store(self, store: StreamStore, message: Message, line: str) -> tuple[StoredMessage, int]:
        try:
            return store.store(message.subject, message.data, message.headers, self.now_ns())
        except TransportError as error:
            if self.tap is not None:
                self.tap.refused(store.name, message, error, line)
            raise

    def _republish(self, store: StreamStore, message: Message, stored: StoredMessage, previous: int) -> None:
        rule = store.config.get("republish")
        if rule is None or not matches(rule["src"], stored.subject):
            return
        headers = {
            **message.headers,
            "Nats-Stream": store.name,
            "Nats-Subject": stored.subject,
            "Nats-Sequence": str(stored.sequence),
            "Nats-Time-Stamp": format_time_ns(stored.time_ns),
            "Nats-Last-Sequence": str(previous),
        }
        self.route(Message(transform(rule["src"], rule["dest"], stored.subject), stored.data, headers))


class MemoryTransport:
    """A `ports.Transport` in one process, and its faults."""

    def __init__(self, world: MemoryNats, bus: MemoryBus) -> None:
        self._world = world
        self._bus = bus

    @property
    def bus(self) -> MemoryBus:
        return self._bus

    def stream(self, name: str) -> MemoryStream:
        return MemoryStream(self._world, self._bus, name)

    async def ensure(self, spec: StreamSpec) -> list[str]:
        return await self._bus.call(
            lambda: _ensure(self._world, spec), timeout=10.0, subject=f"$JS.API.STREAM.CREATE.{spec.name}"
        )

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        world = self._world
        started = datetime.fromtimestamp(world.now_ns() / 1e9, UTC)
        return await services.announce(
            self._bus, info, stats, service_id=f"{next(world.ids):022d}", started=started
        )

    def cut(self) -> None:
        """Lose the connection: what is under way is lost, in both directions."""
        self._bus.cut()

    def heal(self, standing: ConnectionIdentity | None = None) -> None:
        """Connect again, as somebody else if wished: subscriptions go on, what was missed is missed."""
        self._bus.heal(standing)

    def part(self, notice_seconds: float = 10.0) -> None:
        """Nothing comes through in either direction; the ends notice it after so many seconds."""
        self._bus.part(notice_seconds)

    def mend(self) -> None:
        """End `part()`: the connection is made anew, at a time of its own."""
        self._bus.mend()

    def kill(self, *, sent_arrives: bool = False) -> None:
        """Whoever had it is gone: nobody is told, nothing of it runs again.

        With `sent_arrives` the broker still gets what was under way to it, as from a socket's buffer.
        """
        self._bus.kill(sent_arrives=sent_arrives)

    def drop_next_ack(self, count: int = 1) -> None:
        """The next `count` appends are stored, and their confirmation never comes."""
        self._bus.acks_to_drop += count

    async def close(self) -> None:
        await self._bus.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _ensure(world: MemoryNats, spec: StreamSpec) -> list[str]:
    store = world.stores.get(spec.name)
    if store is None:
        world.make(topology.config_of(spec))
        return [f"created stream {spec.name}"]
    plan = topology.plan(spec, store.config)
    if plan.differences:
        raise StreamMismatch(spec.name, list(plan.differences))
    store.config = dict(plan.config)
    return list(plan.changes)
