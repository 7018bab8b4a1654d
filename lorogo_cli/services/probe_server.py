"""`lorogo serve --health-listen`: whether a server lives and is ready, for whoever starts it again.

    GET /healthz    200: leave it running; 503: a new start is the cure
    GET /readyz     200: it takes documents and can ACK; 503: why not

Plain HTTP/1.1 in a few lines, for a server is installed without what the gateway serves HTTP with. Bounded: a
connection is one short request and a few seconds, and there are so many of them and no more.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import structlog

from lorogo_cli.config.probe_address import ListenAddress
from lorogo_cli.errors import CommandError
from lorogo_server import Server
from lorogo_transport.tasks import Tasks

Question = Callable[[], tuple[str, ...]]  # why the answer is no; nothing: it is yes

log = structlog.get_logger(__name__)

_HEAD_BYTES_MAX: Final = 8 * 1024
_SECONDS: Final = 5.0
_CONNECTIONS_MAX: Final = 64
_REQUEST: Final = re.compile(rb"(GET|HEAD) ([!-~]{1,1000}) HTTP/1\.[01]\r?\n")
_STATUSES: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
_USAGE: Final = {"problem": "ask GET /healthz or GET /readyz"}


class ServerReadiness:
    """How a server stands; `server` is there once it serves."""

    def __init__(self) -> None:
        self.server: Server | None = None

    def dead(self) -> tuple[str, ...]:
        """Why only a new start helps; nothing: it needs none. NATS being away is no reason."""
        stopped = self.server is not None and self.server.broken
        return ("journal-stopped",) if stopped else ()

    def not_ready(self) -> tuple[str, ...]:
        """Why it takes no documents, or cannot ACK."""
        return ("starting",) if self.server is None else self.server.hindrances


@asynccontextmanager
async def probes(listen: ListenAddress | None, standing: ServerReadiness) -> AsyncIterator[list[str]]:
    """Answer until the end of the block, at the addresses it gives; None: at none. Raises Problem."""
    if listen is None:
        yield []
        return
    door = _Door({"/healthz": standing.dead, "/readyz": standing.not_ready})
    try:
        server = await asyncio.start_server(door.came, listen.host, listen.port, limit=_HEAD_BYTES_MAX)
    except OSError as error:
        words = error.strerror or str(error)
        raise CommandError(
            f"--health-listen: nobody can listen on {listen.host}:{listen.port} ({words}); choose another"
        ) from None
    addresses = [_shown(one.getsockname()) for one in server.sockets]
    log.info("health is told", listen=addresses)
    try:
        yield addresses
    finally:
        server.close()
        await door.close()


def _shown(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Door:
    """One answer for each connection."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = questions
        self._open = 0
        self._tasks = Tasks(lambda error: log.error("a probe was not answered", exc_info=error))

    def came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        self._tasks.spawn(self._answer(reader, writer))

    async def close(self) -> None:
        await self._tasks.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                writer.write(self._said(await _head(reader)))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass  # whoever asked has gone, or is too slow
        finally:
            self._open -= 1
            writer.transport.abort()

    def _said(self, head: bytes) -> bytes:
        found = _REQUEST.match(head)
        if found is None:
            return _response(400, _USAGE)
        method, path = found[1], found[2].decode().partition("?")[0]
        question = self._questions.get(path)
        if question is None:
            return _response(404, _USAGE, bare=method == b"HEAD")
        reasons = question()
        facts = {"ok": not reasons, "reasons": list(reasons)}
        return _response(503 if reasons else 200, facts, bare=method == b"HEAD")


async def _head(reader: asyncio.StreamReader) -> bytes:
    """A request up to its empty line; nothing, if it is none or too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _response(status: int, facts: Mapping[str, object], *, bare: bool = False) -> bytes:
    body = json.dumps(facts, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {status} {_STATUSES[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if bare else body)
