"""`lorogo gateway`: the door for browsers and curl, on a NATS that runs elsewhere."""

from collections.abc import Sequence
from typing import Any

import structlog

from lorogo_cli.errors import Problem, one_line
from lorogo_cli.output import say
from lorogo_cli.runtime import stop_signals

try:
    from lorogo_gateway.running import CannotListen, GatewaySettings, running
except ModuleNotFoundError as error:  # installed without the extra
    raise Problem(f"this needs {error.name}: pip install 'lorogo[gateway]'") from None

log = structlog.get_logger(__name__)


async def gateway(
    url: str,
    host: str,
    port: int,
    *,
    read_only: bool,
    origins: Sequence[str],
    host_names: Sequence[str],
    **more: Any,
) -> None:
    """Serve until SIGTERM or Ctrl-C. NATS may come later: /readyz says so meanwhile."""
    settings = chosen(
        host=host,
        port=port,
        read_only=read_only,
        origins=tuple(origins),
        host_names=tuple(host_names),
        **more,
    )
    with stop_signals() as stop:
        try:
            async with running(url, settings) as address:
                say(f"lorogo gateway on {address}    (Ctrl-C stops it)")
                if host not in ("127.0.0.1", "localhost", "::1"):
                    log.warning("whoever reaches this port can read and write every document", host=host)
                await stop.wait()
                say("stopping")
        except CannotListen as error:
            raise Problem(f"{one_line(error)}; --host and --port choose others") from None


def chosen(**settings: Any) -> GatewaySettings:
    """The settings, or what is wrong with them in one sentence."""
    try:
        return GatewaySettings(**settings)
    except ValueError as error:
        raise Problem(str(error)) from None
