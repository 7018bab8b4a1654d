"""Start and stop of a whole gateway, for the command and for tests."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import lorogo_client
from lorogo_gateway.auth import TokenVerifier
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.server.listener import CannotListen, listening
from lorogo_gateway.settings import GatewaySettings
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import connect
from lorogo_transport.ports import Transport

__all__ = ["CannotListen", "GatewaySettings", "running"]

_FIRST_SECONDS = 1.0  # to wait for NATS before starting without it


@asynccontextmanager
async def running(
    where: str | Transport,
    settings: GatewaySettings,
    authority: TokenVerifier | None = None,
    *,
    keys: KeySource | None = None,
    identity: Mapping[str, Any] | None = None,
    tracer_provider: object | None = None,
) -> AsyncIterator[str]:
    """Run a gateway while the context is entered; yields its address. NATS may become reachable later.

    Tokens are required if there is an `authority`, or `keys` to create one from. `identity`: credentials for
    NATS, as `connect` takes them.
    At the end WebSockets close first, after outstanding ACKs, then the client. Raises CannotListen.
    """
    if isinstance(where, str):
        async with AsyncExitStack() as stack:
            dialled = await connect(
                where, name="lorogo gateway", wait_seconds=_FIRST_SECONDS, **(identity or {})
            )
            transport = await stack.enter_async_context(dialled)
            if keys is not None:
                authority = await stack.enter_async_context(Authority(keys, transport, SystemClock()))
            yield await stack.enter_async_context(
                running(transport, settings, authority, tracer_provider=tracer_provider)
            )
        return
    async with (
        lorogo_client.connect(where, tracer_provider=tracer_provider) as client,
        Gateway(client, settings, authority) as gateway,
        listening(gateway.app, settings, gateway.limiter) as address,
    ):
        try:
            yield address
        finally:
            await gateway.disconnect_all()
