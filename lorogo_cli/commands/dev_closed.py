"""`lorogo dev --closed`: the same with an auth service; every client needs a token."""

import asyncio
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from lorogo_cli.connect.closed_folder import ClosedFolder
from lorogo_cli.connect.options import NATS_DEFAULT
from lorogo_cli.connect.telemetry import telemetry
from lorogo_cli.render.program_name import typed
from lorogo_cli.services.service_keys import ServiceKeys
from lorogo_client import tokens
from lorogo_gateway.server import lifecycle as gateway
from lorogo_gateway.server.pages import Pages
from lorogo_server import Server, ServerSettings
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.auth import accounts, auth_service
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.secret_files import write_secret

OPERATOR_TOKEN = "operator.token"
_OPERATOR_LASTS = timedelta(days=30)


@asynccontextmanager
async def running(
    nats: EmbeddedNats, keys: ClosedFolder, server_id: str, data: Path, web: gateway.GatewaySettings
) -> AsyncIterator[str]:
    """Run a server, an auth service and a gateway, each with its own nkey; yield the text of the screen."""
    source = await asyncio.to_thread(KeySource.from_file, keys.key_set)
    server_seed = keys.seeds[accounts.SERVER]
    server_guard, web_guard = (
        ServiceKeys(source, server_seed),
        ServiceKeys(source, keys.seeds[accounts.GATEWAY]),
    )
    clock = SystemClock()
    token = await asyncio.to_thread(_operator_token, keys)
    async with AsyncExitStack() as stack:
        spans = await stack.enter_async_context(telemetry("lorogo-dev"))
        transport = await stack.enter_async_context(
            await connect(nats.url, name="lorogo dev", **server_guard.server_identity())
        )
        authority = Authority(source, transport, clock)
        keepalive = KeepaliveProcess(nats.url, seed=server_seed)
        settings = ServerSettings(server_id=server_id, revocations_wait_seconds=0.0)  # the only server
        await stack.enter_async_context(
            Server(
                transport,
                settings,
                keepalive=keepalive,
                sandbox=DecodeSandbox(spare=False),
                data=data,
                authority=authority,
                tracer_provider=spans,
            )
        )
        await stack.enter_async_context(authority)  # after the server, which creates the revocation bucket
        await stack.enter_async_context(auth_service.running(nats.url, source, keys.seeds))
        gateway_transport = await stack.enter_async_context(
            await connect(nats.url, name="lorogo dev", **web_guard.gateway_identity())
        )
        watch = await stack.enter_async_context(Authority(source, gateway_transport, clock))
        address = await stack.enter_async_context(
            gateway.running(gateway_transport, web, watch, tracer_provider=spans)
        )
        yield screen(nats.url, address, keys, token)


def _operator_token(keys: ClosedFolder) -> Path:
    """Write a new token that grants admin on all documents; return its file."""
    path = keys.path / OPERATOR_TOKEN
    key = tokens.load_key(keys.signing_key)
    text = tokens.mint(key, subject="operator", documents={"*": "admin"}, expires=_OPERATOR_LASTS)
    write_secret(path, text, "the operator's token", replace=True)
    return path


def screen(url: str, web: str, keys: ClosedFolder, token: Path) -> str:
    """Return the text of the screen; its commands work from the current folder."""
    cwd = Path.cwd()
    lorogo = typed(sys.argv[0], sys.executable, cwd, shutil.which)
    there = "" if url == NATS_DEFAULT else f" --nats {shlex.quote(url)}"
    at = f" --token-file {_shown(token, cwd)}{there}"
    pages = f"""\
  editor      {web}/d/welcome    (needs a token)
  dashboard   {web}/dashboard    (for operators)
"""
    if not Pages().built:
        pages = "  pages       are not built: `make pages` builds the editor and the dashboard\n"
    return f"""\
lorogo is running, closed    (Ctrl-C stops it; documents and keys stay)
{pages}\
  HTTP        {web}/v1/documents
  NATS        {url}
  operator    {_shown(token, cwd)}    (a token for all documents, valid for {_OPERATOR_LASTS.days} days)
  keys        {_shown(keys.path, cwd)}
Its documents are separate from those of `{lorogo} dev` without --closed.

Try, in a second terminal, as the operator:
  {lorogo} doc set hello title '"Hello"'{at}
  {lorogo} doc get hello{at}
Make a token for ann that grants write on hello and minutes-* for an hour, and use it:
  {lorogo} token mint --key {_shown(keys.signing_key, cwd)} --subject ann \\
    --grant hello=write --grant 'minutes-*=write' --expires 1h --out ann.token
  {lorogo} doc get hello --token-file ann.token{there}
  curl -H "Authorization: Bearer $(cat ann.token)" {web}/v1/documents/hello
"""


def _shown(path: Path, cwd: Path) -> str:
    return shlex.quote(str(path.relative_to(cwd) if path.is_relative_to(cwd) else path))
