"""`lorogo gateway`: the door for browsers and curl, on a NATS that runs elsewhere."""

import structlog

from lorogo_cli.errors import Problem, one_line
from lorogo_cli.output import say
from lorogo_cli.runtime import stop_signals

try:
    from lorogo_gateway.running import CannotListen, GatewaySettings, running
except ModuleNotFoundError as error:  # installed without the extra
    raise Problem(f"this needs {error.name}: pip install 'lorogo[gateway]'") from None

log = structlog.get_logger(__name__)


async def gateway(url: str, host: str, port: int, *, read_only: bool) -> None:
    """Serve until SIGTERM or Ctrl-C. NATS may come later: /readyz says so meanwhile."""
    settings = GatewaySettings(host=host, port=port, read_only=read_only)
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
