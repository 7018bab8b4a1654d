"""The raw limits on the same NATS in the same run, by which lorogo's figures are divided.

    raw = await RawLimits.of(stack)
    await raw.publish_ack(1000)             # milliseconds of each: stored and confirmed by JetStream
    await raw.request_reply(1000)           # milliseconds of each: answered by another process
    await raw.pipelined(10_000, 64, 1024)   # stored, republished, received and answered by another process
    opener = await RawOpener.of(stack)
    await opener.open(names)                # opens a second, with the NATS operations of each

Publisher and answerer are separate processes with lorogo's transport.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lorogo_bench.errors import BenchError
from lorogo_bench.stack.load import LoadProcess
from lorogo_bench.stack.stack import Stack
from lorogo_bench.stack.usage import usage


@dataclass(frozen=True, slots=True)
class Pipelined:
    """Throughput and CPU of a pipelined run."""

    per_second: float
    publisher_us: float  # CPU for each message
    answerer_us: float | None


class RawLimits:
    """The two processes that measure raw limits."""

    def __init__(self, publisher: LoadProcess, answerer: LoadProcess) -> None:
        self._publisher = publisher
        self._answerer = answerer

    @classmethod
    async def of(cls, stack: Stack) -> "RawLimits":
        """Start both processes; they end with the stack."""
        publisher, answerer = await asyncio.gather(stack.load("raw.publisher"), stack.load("raw.answerer"))
        return cls(publisher, answerer)

    async def publish_ack(self, count: int) -> list[float]:
        """Measure JetStream publish and its ack, closed loop, in milliseconds."""
        reply = await self._publisher.call("publish_ack", count=count)
        _same(reply["stored"], count)
        return [float(one) for one in reply["milliseconds"]]

    async def request_reply(self, count: int) -> list[float]:
        """Measure core request and reply, closed loop, in milliseconds."""
        reply = await self._publisher.call("request_reply", count=count)
        _same(reply["answered"], count)
        return [float(one) for one in reply["milliseconds"]]

    async def pipelined(self, count: int, documents: int, window: int) -> Pipelined:
        """Publish to the stream while another process answers each republished message; measure the rate."""
        before = usage(self._answerer.pid).cpu_seconds
        reply = await self._publisher.call("pipeline", count=count, documents=documents, window=window)
        after = usage(self._answerer.pid).cpu_seconds
        _same(reply["answered"], count)
        answerer = None if before is None or after is None else (after - before) / count * 1e6
        return Pipelined(count / reply["seconds"], reply.cpu_seconds / count * 1e6, answerer)


class RawOpener:
    """The process that measures opens without lorogo, on a NATS without servers: it uses the same names."""

    def __init__(self, process: LoadProcess) -> None:
        self._process = process

    @classmethod
    async def of(cls, stack: Stack) -> "RawOpener":
        """Start the process; it ends with the stack."""
        return cls(await stack.load("raw.opener"))

    async def open(self, documents: Sequence[str]) -> float:
        """Run the writes and gets of an open for each document; return opens a second."""
        reply = await self._process.call("open", documents=list(documents))
        _same(reply["up"], len(documents))
        return float(len(documents) / reply["seconds"])


def _same(found: int, count: int) -> None:
    """Check that the limit lost no message."""
    if found != count:
        raise BenchError(f"a raw limit got {found} answers to {count} messages")
