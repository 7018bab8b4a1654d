"""Writers of WebSocket frames: writing never waits, and unread bytes of a slow consumer are counted.

`AsgiFrameWriter` works on any ASGI server, with a queue and a task that sends. `uvicorn_transport` has a
faster one.
"""

import asyncio
from collections import deque
from typing import Protocol

from starlette.types import Message, Send


class FrameWriter(Protocol):
    """Writes the frames of one connection."""

    @property
    def unread_bytes(self) -> int:
        """The bytes written but not yet accepted by the operating system."""

    def write(self, data: bytes) -> None:
        """Send a binary message without waiting; no effect after the end."""

    def write_text(self, text: str) -> None:
        """Send a text message without waiting; no effect after the end."""

    async def writable(self) -> None:
        """Wait until few bytes are unread. The caller sets the deadline."""

    async def close(self, code: int, reason: str, *, seconds: float) -> None:
        """Send a close frame after everything written before, then end the connection within `seconds`."""


PONGS_MAX = 10_000  # unread: each takes ten times its size in memory
_WINDOW_BYTES = 64 * 1024


class AsgiFrameWriter:
    """A queue before ASGI's `send`, which `run()` empties."""

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
        """Send queued messages until the end; the endpoint owns the task."""
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
            pass  # ASGI: the client has disconnected; receive() reports it
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
