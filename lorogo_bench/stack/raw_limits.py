"""The raw limits on the same NATS in the same run: what lorogo's figures are divided by.

    raw = await RawLimits.of(stack)
    await raw.publish_ack(1000)             # milliseconds of each: stored and confirmed by JetStream
    await raw.request_reply(1000)           # milliseconds of each: asked and answered by another process
    await raw.pipelined(10_000, 64, 1024)   # stored, republished, heard by another process, answered by it
    opener = await RawOpener.of(stack)
    await opener.open(names)                # what NATS has to do for each open, a second

Whoever publishes and whoever answers are processes of their own, with the transport that lorogo uses.
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
    """What went through, and what it cost."""

    per_second: float
    publisher_us: float  # CPU for each message
    answerer_us: float | None


class RawLimits:
    """The two processes that measure them."""

    def __init__(self, publisher: LoadProcess, answerer: LoadProcess) -> None:
        self._publisher = publisher
        self._answerer = answerer

    @classmethod
    async def of(cls, stack: Stack) -> "RawLimits":
        """Start both; they end with the stack."""
        publisher, answerer = await asyncio.gather(stack.load("raw.publisher"), stack.load("raw.answerer"))
        return cls(publisher, answerer)

    async def publish_ack(self, count: int) -> list[float]:
        """JetStream publish and its ack, closed loop: milliseconds of each."""
        told = await self._publisher.ask("publish_ack", count=count)
        _same(told["stored"], count)
        return [float(one) for one in told["milliseconds"]]

    async def request_reply(self, count: int) -> list[float]:
        """Core request and reply, closed loop: milliseconds of each."""
        told = await self._publisher.ask("request_reply", count=count)
        _same(told["answered"], count)
        return [float(one) for one in told["milliseconds"]]

    async def pipelined(self, count: int, documents: int, window: int) -> Pipelined:
        """Publish to the stream, another process answers each republished message: how many a second."""
        before = usage(self._answerer.pid).cpu_seconds
        told = await self._publisher.ask("pipeline", count=count, documents=documents, window=window)
        after = usage(self._answerer.pid).cpu_seconds
        _same(told["answered"], count)
        answerer = None if before is None or after is None else (after - before) / count * 1e6
        return Pipelined(count / told["seconds"], told.cpu_seconds / count * 1e6, answerer)


class RawOpener:
    """The process that measures opens without lorogo, on a NATS without servers: names are the same."""

    def __init__(self, process: LoadProcess) -> None:
        self._process = process

    @classmethod
    async def of(cls, stack: Stack) -> "RawOpener":
        """Start it; it ends with the stack."""
        return cls(await stack.load("raw.opener"))

    async def open(self, documents: Sequence[str]) -> float:
        """The writes and gets of an open, for each: opens a second."""
        told = await self._process.ask("open", documents=list(documents))
        _same(told["up"], len(documents))
        return float(len(documents) / told["seconds"])


def _same(found: int, count: int) -> None:
    """A limit that lost something is none."""
    if found != count:
        raise BenchError(f"a raw limit has {found} answers to {count} messages")
