"""`lorogo config`: what is wrong with settings, what they are, and where they come from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.config.entries import CONFIG_ENVIRONMENT, SECTIONS
from lorogo_cli.config.flags import Config, takes
from lorogo_cli.connect.options import Json

FOUND = 1

app = typer.Typer(
    no_args_is_help=True,
    help="Settings of `lorogo serve`, `gateway` and `auth`: check a file, show what holds, write an example.",
)
show_app = typer.Typer(invoke_without_command=True)
app.add_typer(show_app, name="show")


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", envvar=CONFIG_ENVIRONMENT, help="The file; without: the environment alone."
        ),
    ] = None,
    without_files: Annotated[
        bool,
        typer.Option(
            "--without-files", help="Do not open the files that settings name: keys, seeds, certificates."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Say what is wrong with a file of settings and the environment: where, what, and what would be right.

    Exit code 1: something is. Nothing is started and no secret is shown.
    """
    from lorogo_cli.commands import config_check

    if not config_check.say(file, open_files=not without_files, as_json=json):
        raise typer.Exit(FOUND)


@show_app.callback()
def show(context: typer.Context, config: Config = None, json: Json = False) -> None:
    """Show every setting that holds here, and where it comes from: of all services, or of one with its flags.

    Secrets are not shown.
    """
    if context.invoked_subcommand is not None:
        return
    from lorogo_cli.commands import config_show

    config_show.say_all(config, as_json=json)


def _show(section: str) -> Any:
    @takes(section)
    def command(settings: ResolvedSettings, json: Json = False) -> None:
        from lorogo_cli.commands import config_show

        config_show.say([settings], as_json=json)

    return command


for name in SECTIONS:
    show_app.command(name, help=f"The settings of `lorogo {name}`, with the flags that it would be given.")(
        _show(name)
    )


@app.command()
def example() -> None:
    """Print a file with every setting, its words and its default, all of them commented out."""
    from lorogo_cli.config import pages

    typer.echo(pages.example(), nl=False)


@app.command(hidden=True)
def table() -> None:
    """Print the tables of docs/SETTINGS.md."""
    from lorogo_cli.config import pages

    typer.echo(pages.tables(), nl=False)
