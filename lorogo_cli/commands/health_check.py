"""The checks of `lorogo health`. A service that does not answer counts as unhealthy."""

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
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.rpc.discovery import ServerStats, is_ready, server_stats

_NAME = "lorogo health"  # the connection's name in NATS
_ANSWER_BYTES_MAX = 64 * 1024


async def server(way: ConnectionOptions, data: Path, workers: int, seconds: float) -> bool:
    """Request the stats of all servers on NATS, and check those of the folder."""
    ids = await asyncio.to_thread(worker_identity.known, data)
    if not ids:
        return _unhealthy(f"no server has run on {data} yet: it has no worker-0/server-id; check --data")
    try:
        async with asyncio.timeout(seconds), await _connected(way, seconds) as transport:
            found = await server_stats(transport.bus)
    except TimeoutError:
        return _unhealthy(f"no answer in {seconds:g} s")
    except LorogoError as error:
        return _unhealthy(one_line(error))
    wrong = find_problems(ids, found, workers)
    if wrong:
        return _unhealthy(wrong)
    documents = sum(one.stats.get("documents", 0) for one in found if one.server_id in ids)
    say(f"healthy: {show_count(documents, 'document')} open")
    return True


async def _connected(way: ConnectionOptions, seconds: float) -> JetStreamTransport:
    if way.seed is None:
        return await connect(way.url, name=_NAME, timeout=seconds)
    return await connect(
        way.url, name=_NAME, timeout=seconds, seed=way.seed, inbox_prefix=subjects.SERVER_INBOX
    )


def find_problems(ids: Collection[str], found: Sequence[ServerStats], workers: int) -> str:
    """Return what is wrong with the servers of these ids; empty if at least `workers` of them are ready."""
    ours = {one.server_id: one.stats for one in found if one.server_id in ids}
    if sum(map(is_ready, ours.values())) >= workers:
        return ""
    reasons = [
        f"{name} is not ready (journal: {str(stats.get('journal', 'none'))[:200]})"
        for name, stats in sorted(ours.items())
        if not is_ready(stats)
    ]
    if len(ours) < workers:
        reasons.append(f"{len(ours)} of {workers} servers answer")
    return "; ".join(reasons)


def gateway(url: str, *, ready: bool, seconds: float) -> bool:
    """Request `/readyz` or `/healthz`; return whether the status is 200."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(
            f"--url {url!r} is not the address of a gateway: write it like http://127.0.0.1:8080"
        )
    path = "/readyz" if ready else "/healthz"
    connection = _connection(parts.scheme, parts.hostname, parts.port, seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
    except (OSError, HTTPException) as error:
        return _unhealthy(f"{url}{path}: {one_line(error)}")
    finally:
        connection.close()
    if answer.status != 200:
        return _unhealthy(f"{url}{path} answers {answer.status}{_reason_codes(body)}")
    say("ready" if ready else "healthy")
    return True


def _connection(scheme: str, host: str, port: int | None, seconds: float) -> HTTPConnection:
    if scheme == "http":
        return HTTPConnection(host, port, timeout=seconds)
    # The check connects by address, which no certificate names; the request carries no secret.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=seconds, context=trusting)


def _reason_codes(body: bytes) -> str:
    try:
        codes = [str(one["code"]) for one in json.loads(body)["reasons"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return f": {', '.join(codes)}" if codes else ""


def _unhealthy(why: str) -> bool:
    sys.stderr.write(f"lorogo: unhealthy: {why}\n")
    return False
