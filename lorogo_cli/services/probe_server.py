"""`lorogo serve --health-listen`: liveness and readiness probes for orchestrators.

    GET /healthz    200: healthy; 503: restart it
    GET /readyz     200: it takes documents and can ACK; 503: the reasons why not

A small HTTP/1.1 server of its own: the gateway's HTTP libraries are not installed with a document server.
Request size, connection time and the number of connections are limited.
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

Question = Callable[[], tuple[str, ...]]  # returns the reasons for status 503; none: 200

log = structlog.get_logger(__name__)

_HEAD_BYTES_MAX: Final = 8 * 1024
_SECONDS: Final = 5.0
_CONNECTIONS_MAX: Final = 64
_REQUEST: Final = re.compile(rb"(GET|HEAD) ([!-~]{1,1000}) HTTP/1\.[01]\r?\n")
_STATUSES: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
_USAGE: Final = {"problem": "use GET /healthz or GET /readyz"}


class ServerReadiness:
    """Liveness and readiness of a server; `server` is set once it serves."""

    def __init__(self) -> None:
        self.server: Server | None = None

    def dead(self) -> tuple[str, ...]:
        """Return reasons to restart the process; none: healthy. An unreachable NATS is not a reason."""
        stopped = self.server is not None and self.server.readiness.broken
        return ("journal-stopped",) if stopped else ()

    def not_ready(self) -> tuple[str, ...]:
        """Return reasons why the server takes no documents or cannot ACK."""
        return ("starting",) if self.server is None else self.server.readiness.hindrances


@asynccontextmanager
async def probes(listen: ListenAddress | None, readiness: ServerReadiness) -> AsyncIterator[list[str]]:
    """Answer probes in the block; yield the addresses. `listen` None: none. Raises CommandError."""
    if listen is None:
        yield []
        return
    handler = _ProbeHandler({"/healthz": readiness.dead, "/readyz": readiness.not_ready})
    try:
        server = await asyncio.start_server(handler.accept, listen.host, listen.port, limit=_HEAD_BYTES_MAX)
    except OSError as error:
        words = error.strerror or str(error)
        raise CommandError(
            f"--health-listen: cannot listen on {listen.host}:{listen.port} ({words}); choose another address"
        ) from None
    addresses = [_shown(one.getsockname()) for one in server.sockets]
    log.info("health probes enabled", listen=addresses)
    try:
        yield addresses
    finally:
        server.close()
        await handler.close()


def _shown(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _ProbeHandler:
    """Answers one request per connection."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self._questions = questions
        self._open = 0
        self._tasks = Tasks(lambda error: log.error("health probe failed", exc_info=error))

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
                writer.write(self._response_to(await _head(reader)))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass  # the client closed the connection or is too slow
        finally:
            self._open -= 1
            writer.transport.abort()

    def _response_to(self, head: bytes) -> bytes:
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
    """Read a request up to its empty line; b"" if it is not a request or too long."""
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
