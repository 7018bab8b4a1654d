"""`lorogo health`: health checks of a server or a gateway, for orchestrators and monitoring."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import ConnectOptions, VerboseOptions
from lorogo_cli.connect.runtime import run
from lorogo_cli.connect.shared_options import connection, taking

app = typer.Typer(
    help="Check the health of a server or a gateway: exit code 0 if healthy, else 1 and the reason.",
    no_args_is_help=True,
)

Seconds = Annotated[float, typer.Option("--seconds", min=0.1, max=60, help="Time limit for the whole check.")]


@app.command(cls=taking(ConnectOptions))
def server(
    context: typer.Context,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The data folder of `lorogo serve`.")
    ] = Path(".lorogo/server"),
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="How many of its processes must be healthy.")
    ] = 1,
    seconds: Seconds = 5.0,
) -> bool:
    """Check through NATS that the server of a data folder takes documents and can ACK."""
    from lorogo_cli.commands import health_check

    return run(health_check.server, connection(context), data, workers, seconds)


@app.command(cls=taking(VerboseOptions))
def gateway(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The gateway's address.")
    ] = "http://127.0.0.1:8080",
    ready: Annotated[
        bool, typer.Option("--ready", help="Also check that edits can be ACKed (/readyz, not /healthz).")
    ] = False,
    seconds: Seconds = 5.0,
) -> bool:
    """Check that the gateway answers and, with --ready, that edits through it can be ACKed."""
    from lorogo_cli.commands import health_check

    return health_check.gateway(url, ready=ready, seconds=seconds)
