"""The in-memory twin of NATS: a whole broker in one process, deterministic, with faults on demand.

    world = MemoryNats(now_ns=clock, rng=random.Random(7))
    transport = world.connect("server-1")

Every call goes through its connection's queue to the broker and back, one turn of the event loop
each way, in order: as on a socket, nothing re-enters and nothing overtakes. Faults belong to a
connection: `transport.cut()`, `transport.heal()`, `transport.drop_next_ack()`; the loss of stored
messages is a fault of the broker: `world.rewind(stream, last)`.

With a fault model messages may be lost, duplicated, delayed and reordered, and direct gets stale;
an observer receives every event at the broker.
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

from lorogo_testing.broker import BrokerSubscription, ConnectionIdentity
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
    """The broker: its subscriptions and streams."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        rng: random.Random | None = None,
        max_payload: int = _MAX_PAYLOAD,
        fault_model: FaultModel | None = None,
        observer: BrokerObserver | None = None,
    ) -> None:
        self.now_ns = now_ns
        self.rng = rng if rng is not None else random.Random(0)
        self.max_payload = max_payload
        self.broker_id = "memory"
        self.stores: dict[str, StreamStore] = {}
        self.ids = itertools.count(1)
        self.fault_model = fault_model
        self.observer = observer
        self.acting = ""  # the link whose request is being served; empty: none
        self.context = copy_context()  # deliveries to the broker run here, with a fault model
        self._down_until = 0.0
        self._connections: dict[int, MemoryBus] = {}
        self._literal: dict[str, dict[int, BrokerSubscription]] = {}
        self._patterns: dict[int, BrokerSubscription] = {}
        # by subject; cleared when a pattern is added or removed
        self._matching: dict[str, list[BrokerSubscription]] = {}

    @property
    def down(self) -> bool:
        """True while the broker is down."""
        return self._down_until > 0 and asyncio.get_running_loop().time() < self._down_until

    def connect(self, name: str = "memory", identity: ConnectionIdentity | None = None) -> "MemoryTransport":
        """Open a connection; with a fault model its deliveries run in the caller's context.

        While the broker is down, the connection opens when it is up again.
        """
        bus = MemoryBus(self, name, identity or ConnectionIdentity())
        self._connections[id(bus)] = bus
        if self.down:
            bus.drop()
        return MemoryTransport(self, bus)

    def left(self, connection: MemoryBus) -> None:
        """Remove a connection permanently."""
        self._connections.pop(id(connection), None)

    def restart(self, down_seconds: float = 0.0, damage: Callable[[], None] | None = None) -> None:
        """Restart the broker: every connection is lost, and reconnects after its own delay.

        `damage` is called while the broker is down: `rewind`, `lose_messages`, `lose_stream`.
        """
        self._down_until = asyncio.get_running_loop().time() + down_seconds
        for connection in list(self._connections.values()):
            if connection.connected:
                connection.drop()
        self.broker_id = f"memory-{next(self.ids)}"
        if damage is not None:
            damage()

    def heal(self) -> None:
        """End a restart now: connection attempts succeed."""
        self._down_until = 0.0

    def rewind(self, stream: str, last: int) -> None:
        """Lose the messages of `stream` after sequence `last`, if it exists: sequences go backwards."""
        self.acting = ""
        if stream in self.stores:
            self.stores[stream].rewind(last)

    def rewind_to(self, stream: str, time_ns: int) -> None:
        """Lose the messages that `stream` stored after a time, if it exists."""
        if stream in self.stores:
            self.rewind(stream, self.stores[stream].last_until(time_ns))

    def lose_messages(self, stream: str, sequences: Iterable[int]) -> int:
        """Lose these messages of `stream`, if it exists; return their number."""
        self.acting = ""
        return self.stores[stream].lose(sequences) if stream in self.stores else 0

    def lose_stream(self, stream: str) -> None:
        """Lose `stream` completely, if it exists: clients must recreate it."""
        self.rewind(stream, 0)
        self.stores.pop(stream, None)

    def make(self, config: Mapping[str, object]) -> None:
        """Create a stream with these settings."""
        unobserved = self.fault_model is None and self.observer is None
        change_log = None if unobserved else StreamChangeLog(str(config["name"]), self)
        self.stores[str(config["name"])] = StreamStore(config, self.now_ns(), change_log)

    def store(self, name: str) -> StreamStore:
        try:
            return self.stores[name]
        except KeyError:
            raise StreamMissing(name) from None

    def publish(self, message: Message, line: str = "") -> list[tuple[str, int]]:
        """Route to listeners and streams; return (stream, sequence) where the message was stored.

        Raises the stream's errors. With a reply subject, the stream's answer or a "no responders" status is
        published there, as NATS does.
        """
        self.acting = line
        if self.observer is not None:
            self.observer.published(line, message)
        receivers_count = self.route(message)
        acks: list[tuple[str, int]] = []
        for store in list(self.stores.values()):
            if store.covers(message.subject):
                stored, previous = self._store(store, message, line)
                acks.append((store.name, stored.sequence))
                self._republish(store, message, stored, previous)
        if message.reply and acks:
            answer = {"stream": acks[0][0], "seq": acks[0][1]}
            self.route(Message(message.reply, json.dumps(answer).encode()))
        elif message.reply and not receivers_count:
            self.route(Message(message.reply, b"", {STATUS: "503"}))
        return acks

    def route(self, message: Message) -> int:
        """Deliver to all subscribers, one per queue group; return their number."""
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
        """Return the subscriptions with a pattern that matches the subject."""
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
            if self.observer is not None:
                self.observer.refused(store.name, message, error, line)
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
    """A `ports.Transport` in one process, with fault injection."""

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
        """Drop the connection with all messages in transit, in both directions."""
        self._bus.cut()

    def heal(self, identity: ConnectionIdentity | None = None) -> None:
        """Reconnect, optionally with another identity; subscriptions continue, missed messages are lost."""
        self._bus.heal(identity)

    def partition(self, notice_seconds: float = 10.0) -> None:
        """Partition the connection in both directions; the ends notice it after so many seconds."""
        self._bus.partition(notice_seconds)

    def end_partition(self) -> None:
        """End `partition()`: the connection reconnects after a delay."""
        self._bus.end_partition()

    def kill(self, *, sent_arrives: bool = False) -> None:
        """Kill the process of the connection: no callback of it runs again.

        With `sent_arrives` the broker still gets its messages in transit, as from a socket's buffer.
        """
        self._bus.kill(sent_arrives=sent_arrives)

    def drop_next_ack(self, count: int = 1) -> None:
        """Store the next `count` appends, but lose their confirmations."""
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
