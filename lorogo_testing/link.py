"""The link of one connection to the in-memory broker: messages in transit in both directions.

Without a fault model a message takes one turn of the loop, in order. With one, each has its own delay
and may overtake others. Deliveries to the broker run in the broker's context, deliveries to the
connection in the context of its creator, so that a simulation can pause one of them.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush

from lorogo_testing.fault_model import FaultModel, Kind

Step = Callable[[], None]


class LinkChannel:
    """One direction: steps that run on arrival."""

    __slots__ = ("_context", "_count", "_fence", "_latest", "_queue")

    def __init__(self, context: Context | None) -> None:
        self._context = context
        self._queue: list[tuple[float, int, Step]] = []  # a heap: arrival time, order
        self._count = 0
        self._fence = 0.0  # later messages arrive no earlier than this
        self._latest = 0.0  # arrival time of the slowest message in transit

    def __len__(self) -> int:
        return len(self._queue)

    def soon(self, step: Step) -> None:
        """Run the step in the next turn of the loop, in order."""
        self._count += 1
        heappush(self._queue, (0.0, self._count, step))
        asyncio.get_running_loop().call_soon(self._next)

    def after(self, seconds: float, step: Step) -> None:
        """Run the step after a delay, independent of other messages."""
        loop = asyncio.get_running_loop()
        self._put(loop, max(loop.time() + seconds, self._fence), step)

    def in_order(self, seconds: float, step: Step) -> None:
        """Run the step after a delay and after all messages in transit; later messages do not overtake it."""
        loop = asyncio.get_running_loop()
        when = max(loop.time() + seconds, self._latest)
        self._fence = when
        self._put(loop, when, step)

    def clear(self) -> None:
        """Drop all messages in transit."""
        self._queue.clear()

    def _put(self, loop: asyncio.AbstractEventLoop, when: float, step: Step) -> None:
        self._latest = max(self._latest, when)
        self._count += 1
        heappush(self._queue, (when, self._count, step))
        loop.call_at(when, self._next, context=self._context)

    def _next(self) -> None:
        # one call per step: each runs the earliest, so equal times keep the order of sending
        if self._queue:  # else `clear` emptied it
            heappop(self._queue)[2]()


class SimulatedLink:
    """Both directions of one connection, with its fault model."""

    __slots__ = ("_broker", "_connection_context", "_fault_model", "_in", "_out", "name", "silent")

    def __init__(self, name: str, fault_model: FaultModel | None, broker: Context) -> None:
        self.name = name
        self.silent = False  # partitioned: nothing is delivered, neither end has noticed
        self._fault_model = fault_model
        self._broker = None if fault_model is None else broker
        self._connection_context = None if fault_model is None else copy_context()
        self._out, self._in = LinkChannel(self._broker), LinkChannel(self._connection_context)

    @property
    def connection_context(self) -> Context | None:
        """The context for deliveries to the connection; None: the sender's context."""
        return self._connection_context

    @property
    def flooded(self) -> bool:
        """True if more deliveries are pending than the broker allows."""
        fault_model = self._fault_model
        return fault_model is not None and 0 < fault_model.waiting_max < len(self._in)

    def send(self, kind: Kind, subject: str, size: int, step: Step) -> None:
        """Send to the broker."""
        self._deliver(self._out, kind, subject, size, step)

    def receive(self, kind: Kind, subject: str, size: int, step: Step) -> None:
        """Send from the broker."""
        self._deliver(self._in, kind, subject, size, step)

    def send_in_order(self, step: Step) -> None:
        """Send to the broker, in order with all other messages."""
        self._deliver_in_order(self._out, "ask", step)

    def receive_in_order(self, step: Step) -> None:
        """Send from the broker, in order with all other messages."""
        self._deliver_in_order(self._in, "answer", step)

    def lose_incoming(self) -> None:
        """Drop messages in transit from the broker."""
        self._in.clear()
        self._in = LinkChannel(self._connection_context)

    def lose_outgoing(self) -> None:
        """Drop messages in transit to the broker."""
        self._out.clear()
        self._out = LinkChannel(self._broker)

    def _deliver(self, way: LinkChannel, kind: Kind, subject: str, size: int, step: Step) -> None:
        if self.silent:
            return
        if self._fault_model is None:
            way.soon(step)
            return
        for seconds in self._fault_model.travel(self.name, kind, subject, size):
            way.after(seconds, step)

    def _deliver_in_order(self, way: LinkChannel, kind: Kind, step: Step) -> None:
        if self.silent:
            return
        if self._fault_model is None:
            way.soon(step)
        else:
            way.in_order(max(self._fault_model.travel(self.name, kind, "", 0), default=0.0), step)
