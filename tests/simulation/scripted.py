"""The twin of NATS on virtual time, for tests of it: a scripted fault model and an observer."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from lorogo_testing.fault_model import Kind
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_testing.virtual_loop import BEGIN, SimLoop
from lorogo_transport.ports import Message, StoredMessage, StreamSpec

T = TypeVar("T")

SPEC = StreamSpec("s", ("s.*",), republish=("s.*", "done.{{wildcard(1)}}"), allow_rollup=True)


class ScriptedFaults:
    """A fault model with a list of delays for each kind; else 1 ms each."""

    waiting_max = 0

    def __init__(self) -> None:
        self.next: dict[Kind, list[tuple[float, ...]]] = {
            "publish": [],
            "deliver": [],
            "ask": [],
            "answer": [],
        }
        self.lags: list[int] = []

    def travel(self, line: str, kind: Kind, subject: str, size: int) -> tuple[float, ...]:
        return self.next[kind].pop(0) if subject and self.next[kind] else (0.001,)

    def lag(self, stream: str) -> int:
        return self.lags.pop(0) if self.lags else 0


class Notes:
    """A tap that keeps short words."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def published(self, line: str, message: Message) -> None:
        self.said.append(("published", line, message.subject))

    def stored(self, stream: str, stored: StoredMessage, previous: int, line: str) -> None:
        self.said.append(("stored", line, stored.sequence, previous))

    def removed(self, stream: str, gone: Sequence[StoredMessage], how: str, line: str) -> None:
        self.said.append((how, line, [stored.sequence for stored in gone]))

    def refused(self, stream: str, message: Message, error: Exception, line: str) -> None:
        self.said.append(("refused", line, type(error)))

    def delivered(self, line: str, message: Message) -> None:
        self.said.append(("delivered", line, message.subject))


def simulate(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it on virtual time; nothing may be left uncaught."""
    loop = SimLoop(random.Random(1))
    try:
        result = loop.run_until_complete(main())
        assert loop.uncaught == []
        return result
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time() - BEGIN


async def a_stream(world: MemoryNats, line: str = "one") -> MemoryTransport:
    transport = world.connect(line)
    await transport.ensure(SPEC)
    return transport
