"""`lorogo auth`: admit clients with tokens to a closed NATS; `lorogo auth setup`: prepare such a NATS."""

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from lorogo_cli.config.flags import service, settings_of
from lorogo_cli.config.use import nats_of, start_logs
from lorogo_cli.connect.options import VerboseOptions
from lorogo_cli.connect.runtime import run
from lorogo_cli.connect.shared_options import taking

app = typer.Typer(invoke_without_command=True)


@app.callback(cls=service("auth", TyperGroup))
def auth(context: typer.Context) -> None:
    """Admit clients with tokens to a closed NATS, until Ctrl-C. You can run several instances.

    While no instance runs, new connections are refused; existing ones stay. `lorogo auth setup DIR` writes
    the files that it needs.
    """
    if context.invoked_subcommand is not None:
        return
    settings = settings_of(context)
    start_logs(settings)
    from lorogo_cli.services import auth_service
    from lorogo_cli.services.service_keys import keys_in

    run(auth_service.auth, nats_of(settings), keys_in(settings), settings["seeds"])


@app.command(cls=taking(VerboseOptions))
def setup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
) -> None:
    """Write the files of a closed NATS: its configuration, seeds of services, keys of tokens."""
    from lorogo_cli.services import auth_service

    run(auth_service.setup, folder)
