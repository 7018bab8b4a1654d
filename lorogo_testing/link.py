"""The line of one connection to the in-memory broker: what is under way on it, in both directions.

Without a weather a message takes one turn of the loop, in order. With one, each takes its own time, as the
weather says, and may overtake others. What arrives at the broker runs as the broker, what arrives at the
connection as whoever made it: that is told apart by the context, so a simulation can hold back one of them.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush

from lorogo_testing.fault_model import FaultModel, Kind

Step = Callable[[], None]


class LinkChannel:
    """One direction: steps that are taken when they arrive."""

    __slots__ = ("_context", "_count", "_fence", "_latest", "_queue")

    def __init__(self, context: Context | None) -> None:
        self._context = context
        self._queue: list[tuple[float, int, Step]] = []  # a heap: when it arrives, which one it is
        self._count = 0
        self._fence = 0.0  # nothing that is sent from now on arrives before this
        self._latest = 0.0  # when the slowest arrives of all that was sent

    def __len__(self) -> int:
        return len(self._queue)

    def soon(self, step: Step) -> None:
        """In the next turn of the loop, in order."""
        self._count += 1
        heappush(self._queue, (0.0, self._count, step))
        asyncio.get_running_loop().call_soon(self._next)

    def after(self, seconds: float, step: Step) -> None:
        """After so many seconds, whatever else is under way."""
        loop = asyncio.get_running_loop()
        self._put(loop, max(loop.time() + seconds, self._fence), step)

    def behind(self, seconds: float, step: Step) -> None:
        """After so many seconds, and after all that is under way; nothing sent later overtakes it."""
        loop = asyncio.get_running_loop()
        when = max(loop.time() + seconds, self._latest)
        self._fence = when
        self._put(loop, when, step)

    def clear(self) -> None:
        """Lose what is under way."""
        self._queue.clear()

    def _put(self, loop: asyncio.AbstractEventLoop, when: float, step: Step) -> None:
        self._latest = max(self._latest, when)
        self._count += 1
        heappush(self._queue, (when, self._count, step))
        loop.call_at(when, self._next, context=self._context)

    def _next(self) -> None:
        # as many turns as steps: each takes the earliest, so equal times keep the order of sending
        if self._queue:  # else a cut emptied it
            heappop(self._queue)[2]()


class SimulatedLink:
    """Both directions of one connection, and the weather on them."""

    __slots__ = ("_broker", "_home", "_in", "_out", "_weather", "name", "silent")

    def __init__(self, name: str, weather: FaultModel | None, broker: Context) -> None:
        self.name = name
        self.silent = False  # nothing comes through, and neither end knows it yet
        self._weather = weather
        self._broker = None if weather is None else broker
        self._home = None if weather is None else copy_context()
        self._out, self._in = LinkChannel(self._broker), LinkChannel(self._home)

    @property
    def home(self) -> Context | None:
        """Where what arrives at the connection runs; None: where it was sent from."""
        return self._home

    @property
    def flooded(self) -> bool:
        """Whether more waits than the broker keeps for a connection."""
        weather = self._weather
        return weather is not None and 0 < weather.waiting_max < len(self._in)

    def send(self, kind: Kind, subject: str, size: int, step: Step) -> None:
        """To the broker."""
        self._travel(self._out, kind, subject, size, step)

    def bring(self, kind: Kind, subject: str, size: int, step: Step) -> None:
        """From the broker."""
        self._travel(self._in, kind, subject, size, step)

    def send_behind(self, step: Step) -> None:
        """To the broker, behind all that was sent before and before all that is sent after."""
        self._follow(self._out, "ask", step)

    def bring_behind(self, step: Step) -> None:
        """From the broker, behind all that it sent before and before all that it sends after."""
        self._follow(self._in, "answer", step)

    def lose_incoming(self) -> None:
        """What comes from the broker is lost."""
        self._in.clear()
        self._in = LinkChannel(self._home)

    def lose_outgoing(self) -> None:
        """What was sent and has not arrived is lost."""
        self._out.clear()
        self._out = LinkChannel(self._broker)

    def _travel(self, way: LinkChannel, kind: Kind, subject: str, size: int, step: Step) -> None:
        if self.silent:
            return
        if self._weather is None:
            way.soon(step)
            return
        for seconds in self._weather.travel(self.name, kind, subject, size):
            way.after(seconds, step)

    def _follow(self, way: LinkChannel, kind: Kind, step: Step) -> None:
        if self.silent:
            return
        if self._weather is None:
            way.soon(step)
        else:
            way.behind(max(self._weather.travel(self.name, kind, "", 0), default=0.0), step)
