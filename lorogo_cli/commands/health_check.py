"""What `lorogo health` asks, and how it reads the answers. Whoever cannot be asked is not well."""

import asyncio
import json
import ssl
import sys
from collections.abc import Collection, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say
from lorogo_cli.render.values import show_count
from lorogo_cli.services import worker_identity
from lorogo_protocol import subjects
from lorogo_protocol.errors import LorogoError
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.rpc.discovery import ServerStats, is_ready, server_stats

_NAME = "lorogo health"  # as NATS shows it
_ANSWER_BYTES_MAX = 64 * 1024


async def server(way: ConnectionOptions, data: Path, workers: int, seconds: float) -> bool:
    """Ask all servers on NATS, and look for those of the folder."""
    ids = await asyncio.to_thread(worker_identity.known, data)
    if not ids:
        return _unwell(f"no server has run on {data} yet: it has no worker-0/server-id")
    try:
        async with asyncio.timeout(seconds), await _connected(way, seconds) as transport:
            found = await server_stats(transport.bus)
    except TimeoutError:
        return _unwell(f"no answer in {seconds:g} s")
    except LorogoError as error:
        return _unwell(one_line(error))
    wrong = unwell(ids, found, workers)
    if wrong:
        return _unwell(wrong)
    documents = sum(one.stats.get("documents", 0) for one in found if one.server_id in ids)
    say(f"well: {show_count(documents, 'document')} open")
    return True


async def _connected(way: ConnectionOptions, seconds: float) -> JetStreamTransport:
    if way.seed is None:
        return await connect(way.url, name=_NAME, timeout=seconds)
    return await connect(
        way.url, name=_NAME, timeout=seconds, seed=way.seed, inbox_prefix=subjects.SERVER_INBOX
    )


def unwell(ids: Collection[str], found: Sequence[ServerStats], workers: int) -> str:
    """What is wrong with the servers of these ids, given who answered; empty: so many of them are well."""
    ours = {one.server_id: one.stats for one in found if one.server_id in ids}
    if sum(map(is_ready, ours.values())) >= workers:
        return ""
    told = [
        f"{name} is not ready (journal: {str(stats.get('journal', 'none'))[:200]})"
        for name, stats in sorted(ours.items())
        if not is_ready(stats)
    ]
    if len(ours) < workers:
        told.append(f"{len(ours)} of {workers} answer")
    return "; ".join(told)


def gateway(url: str, *, ready: bool, seconds: float) -> bool:
    """Ask `/readyz` or `/healthz`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"--url {url!r} is not the address of a gateway, as http://127.0.0.1:8080 is")
    path = "/readyz" if ready else "/healthz"
    connection = _connection(parts.scheme, parts.hostname, parts.port, seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        return _unwell(f"{url}{path}: {one_line(error)}")
    finally:
        connection.close()
    if answer.status != 200:
        return _unwell(f"{url}{path} says {answer.status}{_reasons(body)}")
    say("ready" if ready else "well")
    return True


def _connection(scheme: str, host: str, port: int | None, seconds: float) -> HTTPConnection:
    if scheme == "http":
        return HTTPConnection(host, port, timeout=seconds)
    # It is asked by its address, for which no certificate is, and is told nothing.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=seconds, context=trusting)


def _reasons(body: bytes) -> str:
    try:
        codes = [str(one["code"]) for one in json.loads(body)["reasons"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return f": {', '.join(codes)}" if codes else ""


def _unwell(why: str) -> bool:
    sys.stderr.write(f"lorogo: not well: {why}\n")
    return False
