"""The line to one client: frames go out without waiting, and what a slow reader leaves unread is counted.

`AsgiFrameWriter` works on any ASGI server: a queue and one task that sends. `uvicorn_transport` has the quicker one.
"""

import asyncio
from collections import deque
from typing import Protocol

from starlette.types import Message, Send


class FrameWriter(Protocol):
    """How a connection writes."""

    @property
    def unread_bytes(self) -> int:
        """What was written and not yet taken by the operating system."""

    def write(self, data: bytes) -> None:
        """Send a binary message, now or as soon as can be; after the end nothing happens."""

    def write_text(self, text: str) -> None:
        """The same, as a text."""

    async def writable(self) -> None:
        """Wait until not much is unread. The caller has the deadline."""

    async def close(self, code: int, reason: str, *, seconds: float) -> None:
        """Say why, behind what was written before, within so many seconds; then end it."""


PONGS_MAX = 10_000  # unread: each takes ten times its few bytes of memory
_WINDOW_BYTES = 64 * 1024


class AsgiFrameWriter:
    """A queue in front of ASGI's `send`; `run()` empties it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: deque[Message] = deque()
        self._unread = 0
        self._wake = asyncio.Event()
        self._calm = asyncio.Event()
        self._calm.set()
        self._over = False
        self._ended = asyncio.Event()

    @property
    def unread_bytes(self) -> int:
        return self._unread

    def write(self, data: bytes) -> None:
        self._put({"type": "websocket.send", "bytes": data}, len(data))

    def write_text(self, text: str) -> None:
        self._put({"type": "websocket.send", "text": text}, len(text))

    async def writable(self) -> None:
        await self._calm.wait()

    async def close(self, code: int, reason: str, *, seconds: float) -> None:
        self._put({"type": "websocket.close", "code": code, "reason": reason}, 0)
        self._over = True
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            self._queue.clear()

    async def run(self) -> None:
        """Send what is written, until the end; the connection owns it."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    message = self._queue.popleft()
                    await self._send(message)
                    self._unread -= len(message.get("bytes") or message.get("text") or b"")
                    if self._unread <= _WINDOW_BYTES:
                        self._calm.set()
                    if message["type"] == "websocket.close":
                        return
        except OSError:
            pass  # ASGI: the client is gone; the reader hears of it
        finally:
            self._over = True
            self._queue.clear()
            self._calm.set()
            self._ended.set()

    def _put(self, message: Message, size: int) -> None:
        if self._over:
            return
        self._queue.append(message)
        self._unread += size
        if self._unread > _WINDOW_BYTES:
            self._calm.clear()
        self._wake.set()
