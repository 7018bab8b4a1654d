"""`lorogo health`: whether a server or a gateway is well, for whatever waits for it or watches it."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.connect.options import NATS_DEFAULT, Nats, NatsSeed, Verbose
from lorogo_cli.connect.runtime import run
from lorogo_cli.render.logs import configure

app = typer.Typer(
    help="Whether a server or a gateway is well: exit code 0, else 1 and why. For health checks.",
    no_args_is_help=True,
)

Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, max=60, help="How long the answer may take, all in all.")
]


@app.command()
def server(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder of `lorogo serve`.")] = Path(
        ".lorogo/server"
    ),
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="How many of its processes must be well.")
    ] = 1,
    nats: Nats = NATS_DEFAULT,
    nats_seed: NatsSeed = None,
    seconds: Seconds = 5.0,
    verbose: Verbose = False,
) -> None:
    """Whether the server of a data folder takes documents and can ACK, asked through NATS."""
    configure(verbose=verbose)
    from lorogo_cli.commands import health_check
    from lorogo_cli.connect.connection_options import ConnectionOptions

    way = ConnectionOptions.of(nats, None, nats_seed)
    if not run(health_check.server, way, data, workers, seconds):
        raise typer.Exit(1)


@app.command()
def gateway(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Where the gateway is.")
    ] = "http://127.0.0.1:8080",
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether edits can be ACKed, not only whether it answers.")
    ] = False,
    seconds: Seconds = 5.0,
    verbose: Verbose = False,
) -> None:
    """Whether the gateway answers, and with --ready whether edits through it can be ACKed."""
    configure(verbose=verbose)
    from lorogo_cli.commands import health_check

    if not health_check.gateway(url, ready=ready, seconds=seconds):
        raise typer.Exit(1)
