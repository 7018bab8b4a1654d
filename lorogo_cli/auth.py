"""`lorogo auth`: lets people with tokens into NATS, and prepares a NATS that lets in nobody else."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.logs import configure
from lorogo_cli.options import NATS_DEFAULT, Keys, Nats, Verbose
from lorogo_cli.runtime import run

app = typer.Typer(invoke_without_command=True)


@app.callback()
def auth(
    context: typer.Context,
    nats: Nats = NATS_DEFAULT,
    keys: Keys = None,
    seeds: Annotated[
        Path | None,
        typer.Option(
            "--seeds",
            metavar="DIR",
            help="The folder with issuer.seed, auth.seed, auth-list.seed and system.seed (or each in the"
            " environment: LOROGO_ISSUER_SEED_FILE and so on).",
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Let people with tokens into NATS, and nobody else, until Ctrl-C. Several of it may run.

    While none runs nobody new comes in; who is in stays. `lorogo auth setup DIR` makes all that it needs.
    """
    if context.invoked_subcommand is not None:
        return
    configure("info", verbose=verbose)
    from lorogo_cli import authorizing

    run(authorizing.auth, nats, keys, seeds)


@app.command()
def setup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    verbose: Verbose = False,
) -> None:
    """Write all that a closed NATS needs: its configuration, seeds of services, keys of tokens."""
    configure(verbose=verbose)
    from lorogo_cli import authorizing

    run(authorizing.setup, folder)
