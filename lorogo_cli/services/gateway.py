"""`lorogo gateway`: run the HTTP and WebSocket gateway on an existing NATS."""

import asyncio
from typing import Any

import structlog

from lorogo_cli.connect.runtime import stop_signals, until
from lorogo_cli.connect.telemetry import telemetry
from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.render.output import say
from lorogo_cli.services.service_keys import AccessCheckUnanswered, ServiceKeys

try:
    from lorogo_gateway.server.lifecycle import CannotListen, GatewaySettings, running
except ModuleNotFoundError as error:  # installed without the extra
    raise CommandError(f"the gateway needs {error.name}: pip install 'lorogo[gateway]'") from None

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0  # between two checks of a NATS that does not answer


async def gateway(url: str, guard: ServiceKeys, settings: GatewaySettings) -> None:
    """Serve until SIGTERM or Ctrl-C. Until NATS is reachable, /readyz reports it and clients are refused."""
    with stop_signals() as stop:
        answers = await _answers(guard, url)
        if guard.keys is not None and guard.seed is None and "@" not in url:  # and no password
            raise CommandError(
                "a closed NATS requires credentials: use --nats-seed DIR/gateway.seed"
                " (`lorogo auth setup DIR` makes it)"
            )
        identity = guard.gateway_identity()
        try:
            async with (
                telemetry("lorogo-gateway") as spans,
                running(url, settings, keys=guard.keys, identity=identity, tracer_provider=spans) as address,
            ):
                say(f"lorogo gateway on {address}    (Ctrl-C stops it)")
                if guard.keys is None:
                    say(
                        "No tokens needed: every client that can connect may read and write all documents;"
                        " --keys requires tokens"
                    )
                if guard.keys is None and settings.host not in ("127.0.0.1", "localhost", "::1"):
                    log.warning("gateway without tokens on a network interface", host=settings.host)
                if answers or await until(stop, _answer_awaited(guard, url)):
                    await stop.wait()
                say("stopping")
        except CannotListen as error:
            raise CommandError(f"{one_line(error)}; choose others with --host and --port") from None


async def _answers(guard: ServiceKeys, url: str) -> bool:
    """Check whether NATS accepts anonymous clients; return whether it answered."""
    try:
        await _check(guard, url)
    except AccessCheckUnanswered as error:
        log.warning("waiting for NATS", problem=one_line(error))
        return False
    return True


async def _check(guard: ServiceKeys, url: str) -> None:
    await guard.check_nats(url)
    await guard.check_open(url)


async def _answer_awaited(guard: ServiceKeys, url: str) -> bool:
    """Repeat the check until NATS answers."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        try:
            await _check(guard, url)
        except AccessCheckUnanswered:
            continue
        log.warning("NATS answers")  # the same level as "waiting for NATS"
        return True


def chosen(**settings: Any) -> GatewaySettings:
    """Return the settings. Raises CommandError."""
    try:
        return GatewaySettings(**settings)
    except ValueError as error:
        raise CommandError(str(error)) from None
