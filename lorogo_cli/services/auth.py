"""`lorogo auth`: lets people with tokens into NATS, and prepares a NATS that lets in nobody else."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.config.flags import takes
from lorogo_cli.config.use import nats_of, start_logs
from lorogo_cli.connect.options import Verbose
from lorogo_cli.connect.runtime import run
from lorogo_cli.render.logs import configure

app = typer.Typer(invoke_without_command=True)


@app.callback()
@takes("auth")
def auth(settings: ResolvedSettings) -> None:
    """Let people with tokens into NATS, and nobody else, until Ctrl-C. Several of it may run.

    While none runs nobody new comes in; who is in stays. `lorogo auth setup DIR` makes all that it needs.
    """
    start_logs(settings)
    from lorogo_cli.services import auth_service
    from lorogo_cli.services.service_keys import keys_in

    run(auth_service.auth, nats_of(settings), keys_in(settings), settings["seeds"])


@app.command()
def setup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    verbose: Verbose = False,
) -> None:
    """Write all that a closed NATS needs: its configuration, seeds of services, keys of tokens."""
    configure(verbose=verbose)
    from lorogo_cli.services import auth_service

    run(auth_service.setup, folder)
