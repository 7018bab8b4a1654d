"""Whether NATS lets strangers in: who has keys must not serve on a NATS where anybody reads and writes.

    if await lets_strangers_in("nats://127.0.0.1:4222", timeout=5.0):
        raise ...

A stranger is a plain connection without any credentials, spoken by hand: nothing of ours is in it.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from lorogo_transport.errors import Unreachable
from lorogo_transport.nats import tls as nats_tls
from lorogo_transport.nats.addresses import parse_servers, why

_CONNECT = {"verbose": False, "name": "lorogo: a stranger?", "lang": "lorogo"}
_LINE_BYTES_MAX = 64 * 1024
_LINES_MAX = 16  # before the answer: a few INFO lines at most
_NOT_NATS = "expecting info"


async def lets_strangers_in(url: str, timeout: float = 5.0, *, tls: ssl.SSLContext | None = None) -> bool:
    """Whether any of these servers takes a connection without credentials.

    `timeout` is for each server. Raises Unreachable if none of them gives an answer. A server that
    cannot be reached while another refuses strangers is not counted.
    """
    url, files = nats_tls.split(url)
    if tls is None and files.ca is not None:  # of our own certificate a stranger has nothing
        tls = await asyncio.to_thread(nats_tls.context_of, nats_tls.TlsFiles(ca=files.ca))
    return await _any_lets_in(url, timeout, tls, _CONNECT)


async def lets_in(url: str, token: str, timeout: float = 5.0) -> bool:
    """Whether any of these servers takes a connection with this token. Raises Unreachable."""
    url, files = nats_tls.split(url)
    tls = None if files.ca is None else await asyncio.to_thread(nats_tls.context_of, files)
    return await _any_lets_in(url, timeout, tls, {**_CONNECT, "name": "lorogo: ours?", "auth_token": token})


async def _any_lets_in(
    url: str, timeout: float, tls: ssl.SSLContext | None, said: Mapping[str, object]
) -> bool:
    failure: Unreachable | None = None
    refused = False
    for server in parse_servers(url):
        try:
            async with asyncio.timeout(timeout):
                if await _lets_in(server, tls, said):
                    return True
            refused = True
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            failure = Unreachable(why(server, _plain(error), timeout))
    if failure is not None and not refused:
        raise failure
    return False


async def _lets_in(server: str, tls: ssl.SSLContext | None, said: Mapping[str, object]) -> bool:
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
        writer.write(f"CONNECT {json.dumps(said)}\r\nPING\r\n".encode())
        return await _is_welcome(reader)
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def _is_welcome(reader: asyncio.StreamReader) -> bool:
    for _ in range(_LINES_MAX):
        try:
            line = await reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, OSError):
            return (
                False  # it greeted us, and hung up when it saw what we have: no credentials, no certificate
            )
        if line.startswith(b"PONG"):
            return True
        if line.startswith(b"-ERR"):
            return False
    raise ValueError(_NOT_NATS)


def _plain(error: Exception) -> Exception:
    """The error in a form that `why` knows."""
    unread = (asyncio.IncompleteReadError, asyncio.LimitOverrunError)
    return ValueError(_NOT_NATS) if isinstance(error, unread) else error
