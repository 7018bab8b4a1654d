"""Check for anonymous access: services with keys must not run on a NATS that is open to every client.

    if await allows_anonymous("nats://127.0.0.1:4222", timeout=5.0):
        raise ...

The check opens a plain connection without any credentials, with its own protocol code.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from lorogo_transport.errors import Unreachable
from lorogo_transport.nats import tls as nats_tls
from lorogo_transport.nats.addresses import connect_problem, parse_servers

_CONNECT = {"verbose": False, "name": "lorogo: anonymous access check", "lang": "lorogo"}
_LINE_BYTES_MAX = 64 * 1024
_LINES_MAX = 16  # before the answer: a few INFO lines at most
_NOT_NATS = "expecting info"


async def allows_anonymous(url: str, timeout: float = 5.0) -> bool:
    """Return whether any of these servers accepts a connection without credentials.

    `timeout` is for each server. Raises Unreachable if no server gives an answer. An unreachable server
    is ignored if another one refuses the connection.
    """
    url, files = nats_tls.split(url)
    # without the client certificate
    return await _any_accepts(url, timeout, nats_tls.TlsFiles(ca=files.ca), _CONNECT)


async def accepts_token(url: str, token: str, timeout: float = 5.0) -> bool:
    """Return whether any of these servers accepts a connection with this token. Raises Unreachable."""
    url, files = nats_tls.split(url)
    credentials = {**_CONNECT, "name": "lorogo: token check", "auth_token": token}
    return await _any_accepts(url, timeout, files, credentials)


async def _any_accepts(
    url: str, timeout: float, files: nats_tls.TlsFiles, credentials: Mapping[str, object]
) -> bool:
    tls = await asyncio.to_thread(nats_tls.context_of, files) if files else None
    failure: Unreachable | None = None
    refused = False
    for server in parse_servers(url):
        try:
            async with asyncio.timeout(timeout):
                if await _accepts(server, tls, credentials):
                    return True
            refused = True
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            failure = Unreachable(connect_problem(server, _plain(error), timeout))
    if failure is not None and not refused:
        raise failure
    return False


async def _accepts(server: str, tls: ssl.SSLContext | None, credentials: Mapping[str, object]) -> bool:
    parsed = urlsplit(server)
    reader, writer = await asyncio.open_connection(
        parsed.hostname, parsed.port or 4222, limit=_LINE_BYTES_MAX
    )
    try:
        info = await reader.readuntil(b"\r\n")
        if not info.startswith(b"INFO "):
            raise ValueError(_NOT_NATS)
        if json.loads(info[5:]).get("tls_required"):
            context = tls if tls is not None else await asyncio.to_thread(ssl.create_default_context)
            await writer.start_tls(context, server_hostname=parsed.hostname)
        writer.write(f"CONNECT {json.dumps(credentials)}\r\nPING\r\n".encode())
        return await _is_authenticated(reader)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _is_authenticated(reader: asyncio.StreamReader) -> bool:
    for _ in range(_LINES_MAX):
        try:
            line = await reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, OSError):
            return False  # the server closed the connection: it requires credentials or a certificate
        if line.startswith(b"PONG"):
            return True
        if line.startswith(b"-ERR"):
            return False
    raise ValueError(_NOT_NATS)


def _plain(error: Exception) -> Exception:
    """Convert the error into a form that `connect_problem` describes."""
    unread = (asyncio.IncompleteReadError, asyncio.LimitOverrunError)
    return ValueError(_NOT_NATS) if isinstance(error, unread) else error
