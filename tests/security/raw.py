"""A NATS client of a few lines on a plain socket, which keeps the messages and errors that NATS sends."""

import asyncio
import json
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

_SECONDS = 20.0


class Raw:
    """One connection. Nothing is checked, quoted or corrected on the way out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received: list[tuple[str, bytes]] = []  # subject and body of each message
        self.errors: list[str] = []
        self.ended = False

    @classmethod
    async def open(cls, url: str, **options: Any) -> Self:
        """Connected, if NATS let it in: see `welcome`."""
        parsed = urlsplit(url)
        reader, writer = await asyncio.open_connection(parsed.hostname, parsed.port, limit=2**22)
        await reader.readuntil(b"\r\n")
        made = cls(reader, writer)
        words = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, "no_responders": True}
        writer.write(b"CONNECT " + json.dumps({**words, **options}).encode() + b"\r\n")
        await made.ping()
        return made

    @property
    def welcome(self) -> bool:
        """True while NATS accepts the connection and has not closed it."""
        return not self.ended

    def say(self, words: bytes) -> None:
        self._writer.write(words)

    def publish(self, subject: str, body: bytes = b"", reply: str = "") -> None:
        self.say(f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n")

    def subscribe(self, subject: str, sid: int = 1) -> None:
        self.say(f"SUB {subject} {sid}\r\n".encode())

    async def ping(self) -> None:
        """Return when NATS has processed all sent lines, or has closed the connection."""
        self.say(b"PING\r\n")
        async with asyncio.timeout(_SECONDS):
            while not self.ended and await self._line() != "PONG":
                pass

    async def until_ended(self) -> None:
        """Return when NATS has closed the connection."""
        async with asyncio.timeout(_SECONDS):
            while not self.ended:
                await self._line()

    async def next_message(self) -> tuple[str, bytes]:
        """The next message."""
        async with asyncio.timeout(_SECONDS):
            while not self.received and not self.ended:
                await self._line()
        return self.received.pop(0)

    async def close(self) -> None:
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _line(self) -> str:
        try:
            line = (await self._reader.readuntil(b"\r\n")).decode().strip()
        except (asyncio.IncompleteReadError, OSError):
            self.ended = True
            return ""
        match line.split(" ")[0]:
            case "PING":
                self.say(b"PONG\r\n")
            case "-ERR":
                self.errors.append(line)
            case "MSG" | "HMSG":
                size = int(line.rpartition(" ")[2])
                body = (await self._reader.readexactly(size + 2))[:-2]
                self.received.append((line.split(" ")[1], body))
        return line
