"""A document server with its helper processes, and with keys if clients need tokens."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lorogo_cli.services.service_keys import ServiceKeys
from lorogo_server import Server, ServerSettings
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox
from lorogo_server.sandbox.keepalive import KeepaliveProcess
from lorogo_transport.auth.authority import Authority
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import JetStreamTransport


@asynccontextmanager
async def document_server(
    transport: JetStreamTransport,
    url: str,
    settings: ServerSettings,
    data: Path,
    guard: ServiceKeys,
    spans: object | None,
) -> AsyncIterator[Server]:
    """Run a server in the block. With keys it verifies tokens."""
    authority = None if guard.keys is None else Authority(guard.keys, transport, SystemClock())
    async with AsyncExitStack() as stack:
        server = Server(
            transport,
            settings,
            keepalive=KeepaliveProcess(url, seed=guard.seed),
            sandbox=DecodeSandbox(),
            data=data,
            authority=authority,
            tracer_provider=spans,
        )
        await stack.enter_async_context(server)
        if authority is not None:  # after the server, which creates the revocation bucket
            await stack.enter_async_context(authority)
        yield server
