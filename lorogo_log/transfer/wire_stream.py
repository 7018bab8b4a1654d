"""Messages over asyncio streams, each wait with a deadline."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from lorogo_log.transfer import wire
from lorogo_log.transfer.wire import Challenge, Header, Hello, PeerError, RefusedMessage, Welcome, WireKind
from lorogo_log.transfer.wire_socket import prove_secret

WRITE_BUFFER_BYTES = 1 << 20
_GREETINGS = frozenset({WireKind.WELCOME, WireKind.CHALLENGE, WireKind.REFUSED})


class MessageStream:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    @classmethod
    async def connect(cls, host: str, port: int, timeout: float) -> MessageStream:
        async with asyncio.timeout(timeout):
            return cls(*await asyncio.open_connection(host, port, limit=WRITE_BUFFER_BYTES))

    @classmethod
    async def adopt(cls, sock: socket.socket) -> MessageStream:
        """Wrap a connection that a thread accepted."""
        sock.setblocking(False)
        return cls(*await asyncio.open_connection(sock=sock, limit=WRITE_BUFFER_BYTES))

    @property
    def peer(self) -> str:
        """The peer's address."""
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if name else ""

    async def receive(self, timeout: float, kinds: frozenset[WireKind]) -> tuple[Header, memoryview]:
        """Return the next message, of one of these kinds. Raises PeerError, OSError, TimeoutError."""
        try:
            async with asyncio.timeout(timeout):
                header = wire.unpack_header(await self._reader.readexactly(wire.HEADER_BYTES))
                if header.kind not in kinds:
                    raise PeerError(f"unexpected {header.kind.name} message")
                return header, wire.check_body(header, await self._reader.readexactly(header.stored_bytes))
        except asyncio.IncompleteReadError as cut:
            inside = "within a message" if cut.partial else "between messages"
            raise PeerError(f"the peer closed the connection {inside}") from None

    async def greet(self, hello: Hello, secret: bytes | None, timeout: float) -> Welcome:
        """Send HELLO and prove the secret, as the client; return before WELCOME. Raises RefusedError."""
        await self.send(wire.message(hello), timeout)
        answer = wire.unpack(*await self.receive(timeout, _GREETINGS))
        if isinstance(answer, Challenge):
            await self.send(wire.message(prove_secret(hello, answer, secret)), timeout)
            answer = wire.unpack(*await self.receive(timeout, _GREETINGS))
        elif secret is not None and isinstance(answer, Welcome):
            raise PeerError("the peer did not prove that it has the secret")
        match answer:
            case Welcome():
                return answer
            case RefusedMessage():
                raise answer.error
            case _:
                raise PeerError("a second challenge")

    async def send(self, data: bytes, timeout: float) -> None:
        """Send, and wait until most of it is sent: detects a peer that does not read."""
        async with asyncio.timeout(timeout), self._turn:
            self._writer.write(data)
            await self._writer.drain()

    def abort(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    async def finish(self, timeout: float = 2.0) -> None:
        """Close once the peer has closed: closing with unread input would discard what was sent."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(timeout):
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                while await self._reader.read(WRITE_BUFFER_BYTES):
                    pass
        await self.close()

    async def close(self, timeout: float = 2.0) -> None:
        """Close the connection when all data is sent, or after the timeout."""
        try:
            self._writer.close()
            async with asyncio.timeout(timeout):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self.abort()
