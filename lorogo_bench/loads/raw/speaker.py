"""Publish to many subscribers without lorogo, by core NATS."""

import asyncio
import os
import time
from typing import Any, Self

from lorogo_bench.loads.raw.publisher import PAYLOAD_BYTES
from lorogo_transport.nats.connection import JetStreamTransport, connect

_BURST = 25  # messages between two turns of the loop


def subject_of(name: str) -> str:
    """Return the subject of a name."""
    return f"bench.published.{name}"


def number_of(data: bytes) -> int:
    """Return the number of a message, from 0."""
    return int.from_bytes(data[:8], "big")


class RawSpeakerLoad:
    """One connection that publishes messages of the size of one keystroke's update."""

    def __init__(self, url: str, name: str, seen_fd: int, seen_by: int) -> None:
        """`seen_by` processes write a byte to `seen_fd` for each message that all their subscribers have."""
        self._url = url
        self._subject = subject_of(name)
        self._seen_fd = seen_fd
        self._seen_by = seen_by
        self._seen = 0
        self._seen_more = asyncio.Event()
        self._published = 0
        self._transport: JetStreamTransport | None = None

    async def __aenter__(self) -> Self:
        self._transport = await connect(self._url, name="bench speaker")
        os.set_blocking(self._seen_fd, False)
        asyncio.get_running_loop().add_reader(self._seen_fd, self._on_seen)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._seen_fd)
        if self._transport is not None:
            await self._transport.close()

    async def do_publish_one_by_one(self, *, count: int) -> dict[str, Any]:
        """Publish each message after all subscribers have the previous one; return the publish times."""
        published = []
        for _ in range(count):
            published.append(time.monotonic_ns())
            await self._publish()
            while self._seen < self._published * self._seen_by:
                self._seen_more.clear()
                await self._seen_more.wait()
        return {"published_ns": published}

    async def do_publish(self, *, count: int) -> dict[str, Any]:
        """Publish messages without waiting."""
        began = time.monotonic_ns()
        for number in range(count):
            await self._publish()
            if number % _BURST == _BURST - 1:
                await asyncio.sleep(0)
        return {"began_ns": began}

    async def _publish(self) -> None:
        assert self._transport is not None
        data = self._published.to_bytes(8, "big").ljust(PAYLOAD_BYTES, b"\0")
        await self._transport.bus.publish(self._subject, data)
        self._published += 1

    def _on_seen(self) -> None:
        self._seen += len(os.read(self._seen_fd, 65536))
        self._seen_more.set()
