"""The in-memory twin of NATS: a whole broker in one process, deterministic, with faults on demand.

    world = MemoryNats(now_ns=clock, rng=random.Random(7))
    transport = world.connect("server-1")

Every call goes through its connection's queue to the broker and back, one turn of the event loop
each way, in order: as on a socket, nothing re-enters and nothing overtakes. Faults belong to a
connection: `transport.cut()`, `transport.heal()`, `transport.drop_next_ack()`; the loss of stored
messages belongs to the world: `world.rewind(stream, last)`.
"""

import itertools
import json
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Self

from lorogo_transport import services, topology
from lorogo_transport.errors import StreamMismatch, StreamMissing
from lorogo_transport.headers import STATUS
from lorogo_transport.memory_bus import Listener, MemoryBus, Standing
from lorogo_transport.memory_store import StreamStore
from lorogo_transport.memory_stream import MemoryStream
from lorogo_transport.ports import Message, ServiceInfo, Stored, StreamSpec, Subscription
from lorogo_transport.subjects import matches, transform
from lorogo_transport.timestamps import format_time_ns

_MAX_PAYLOAD = 1024 * 1024


class MemoryNats:
    """The broker: who listens, and what the streams hold."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        rng: random.Random | None = None,
        max_payload: int = _MAX_PAYLOAD,
    ) -> None:
        self.now_ns = now_ns
        self.rng = rng if rng is not None else random.Random(0)
        self.max_payload = max_payload
        self.broker_id = "memory"
        self.stores: dict[str, StreamStore] = {}
        self.ids = itertools.count(1)
        self._literal: dict[str, dict[int, Listener]] = {}
        self._patterns: dict[int, Listener] = {}

    def connect(self, name: str = "memory", standing: Standing | None = None) -> "MemoryTransport":
        return MemoryTransport(self, MemoryBus(self, name, standing or Standing()))

    def rewind(self, stream: str, last: int) -> None:
        """Lose what `stream` stored after sequence `last`: sequences go backwards."""
        self.store(stream).rewind(last)

    def store(self, name: str) -> StreamStore:
        try:
            return self.stores[name]
        except KeyError:
            raise StreamMissing(name) from None

    def publish(self, message: Message) -> list[tuple[str, int]]:
        """Route to listeners and streams; returns (stream, sequence) where it was stored.

        Raises what the stream raises. With a reply subject, the stream's answer (or word that
        nobody listens) goes there, as NATS does it.
        """
        heard = self.route(message)
        acks: list[tuple[str, int]] = []
        for store in list(self.stores.values()):
            if store.covers(message.subject):
                stored, previous = store.store(message.subject, message.data, message.headers, self.now_ns())
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
        receivers: list[Listener] = []
        groups: dict[tuple[str, str], list[Listener]] = {}
        listeners = list(self._literal.get(message.subject, {}).values())
        listeners += [one for one in self._patterns.values() if matches(one.subject, message.subject)]
        for listener in listeners:
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

    def add(self, listener: Listener) -> None:
        self._home(listener)[listener.sid] = listener

    def discard(self, listener: Listener) -> None:
        self._home(listener).pop(listener.sid, None)
        if not self._literal.get(listener.subject, True):
            del self._literal[listener.subject]

    def _home(self, listener: Listener) -> dict[int, Listener]:
        if "*" in listener.subject or ">" in listener.subject:
            return self._patterns
        return self._literal.setdefault(listener.subject, {})

    def _republish(self, store: StreamStore, message: Message, stored: Stored, previous: int) -> None:
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

    def heal(self, standing: Standing | None = None) -> None:
        """Connect again, as somebody else if wished: subscriptions go on, what was missed is missed."""
        self._bus.heal(standing)

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
        world.stores[spec.name] = StreamStore(topology.config_of(spec), world.now_ns())
        return [f"created stream {spec.name}"]
    plan = topology.plan(spec, store.config)
    if plan.differences:
        raise StreamMismatch(spec.name, list(plan.differences))
    store.config = dict(plan.config)
    return list(plan.changes)
