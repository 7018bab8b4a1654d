"""Publish to JetStream and to an answering process without lorogo, through the same library.

The stream has the WAL's configuration with its republish rule, under other names. A message has the size of
the update of one keystroke; a pipelined one has the reply subject in its only header.
"""

import asyncio
import time
from typing import Any, Self

from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.ports import Message, StreamSpec

STREAM = "bench-raw"
ASK = "bench.ask"
INBOX = "BENCH_INBOX"
PAYLOAD_BYTES = 85  # size of one keystroke in Loro's encoding
_BURST = 25  # messages between two turns of the loop
_REPLY_SECONDS = 10.0


def stored(document: str) -> str:
    """Return the subject under which messages of a document are stored."""
    return f"bench.wal.{document}"


def republished(document: str) -> str:
    """Return the subject under which JetStream republishes them."""
    return f"bench.committed.{document}"


def spec() -> StreamSpec:
    """Return the configuration of the stream, like that of the WAL."""
    return StreamSpec(STREAM, (stored("*"),), republish=(stored("*"), republished("{{wildcard(1)}}")))


class RawPublisherLoad:
    """One connection that publishes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport: JetStreamTransport | None = None
        self._answers = 0
        self._wanted = 0
        self._enough = asyncio.Event()
        self._inbox = ""

    async def __aenter__(self) -> Self:
        self._transport = await connect(self._url, name="bench publisher")
        await self._transport.ensure(spec())
        bus = self._transport.bus
        self._inbox = bus.new_inbox()
        await bus.subscribe(self._inbox, self._on_answer)
        await bus.barrier()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            await self._transport.close()

    async def do_publish_ack(self, *, count: int) -> dict[str, Any]:
        """Store messages one by one, each after JetStream has confirmed the previous one."""
        assert self._transport is not None
        stream, subject, payload = self._transport.stream(STREAM), stored("one"), bytes(PAYLOAD_BYTES)
        sequences, times = [], []
        for _ in range(count):
            before = time.perf_counter()
            sequences.append(await stream.append(subject, payload))
            times.append((time.perf_counter() - before) * 1000)
        return {"milliseconds": times, "stored": len(set(sequences))}

    async def do_request_reply(self, *, count: int) -> dict[str, Any]:
        """Send requests one by one, each after the reply to the previous one."""
        assert self._transport is not None
        bus, payload, times, answered = self._transport.bus, bytes(PAYLOAD_BYTES), [], 0
        for _ in range(count):
            before = time.perf_counter()
            answer = await bus.request(ASK, payload, timeout=_REPLY_SECONDS)
            times.append((time.perf_counter() - before) * 1000)
            answered += answer.data == b"ACK"
        return {"milliseconds": times, "answered": answered}

    async def do_pipeline(self, *, count: int, documents: int, window: int) -> dict[str, Any]:
        """Store messages under several names in turn, with at most `window` unanswered."""
        assert self._transport is not None
        stream, payload = self._transport.stream(STREAM), bytes(PAYLOAD_BYTES)
        subjects = [stored(f"doc-{number}") for number in range(documents)]
        headers = {INBOX: self._inbox}
        self._answers = 0
        began = time.perf_counter()
        for number in range(count):
            await self._answered(number - window + 1)
            await stream.append_unconfirmed(subjects[number % documents], payload, headers=headers)
            if number % _BURST == _BURST - 1:
                await asyncio.sleep(0)
        await self._answered(count)
        return {"seconds": time.perf_counter() - began, "answered": self._answers}

    def _on_answer(self, message: Message) -> None:
        self._answers += message.data == b"ACK"
        if self._answers >= self._wanted:
            self._enough.set()

    async def _answered(self, count: int) -> None:
        """Wait for this many answers."""
        if self._answers < count:
            self._wanted = count
            self._enough.clear()
            await self._enough.wait()
