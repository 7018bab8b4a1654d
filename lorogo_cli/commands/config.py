"""`lorogo config`: check settings, show their values and sources, print an example file."""

from pathlib import Path
from typing import Annotated

import typer

from lorogo_cli.config.entries import CONFIG_ENVIRONMENT, SECTIONS
from lorogo_cli.config.flags import Config, service, settings_of
from lorogo_cli.connect.options import Json

app = typer.Typer(
    no_args_is_help=True,
    help="Settings of `lorogo serve`, `gateway` and `auth`: check a file, show values, print an example.",
)
show_app = typer.Typer(invoke_without_command=True)
app.add_typer(show_app, name="show")


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            envvar=CONFIG_ENVIRONMENT,
            help="The settings file; without it, only the environment is checked.",
        ),
    ] = None,
    without_files: Annotated[
        bool,
        typer.Option(
            "--without-files", help="Do not open the files that settings refer to: keys, seeds, certificates."
        ),
    ] = False,
    json: Json = False,
) -> bool:
    """Check a settings file and the environment: print each mistake with its place and the allowed values.

    Exit code 1: there are mistakes. Nothing is started and no secret is shown.
    """
    from lorogo_cli.commands import config_check

    return config_check.say(file, open_files=not without_files, as_json=json)


@show_app.callback()
def show(context: typer.Context, config: Config = None, json: Json = False) -> None:
    """Show every setting with its value and its source, for all services or, with its flags, for one.

    Secrets are not shown.
    """
    if context.invoked_subcommand is not None:
        return
    from lorogo_cli.commands import config_show

    config_show.say_all(config, as_json=json)


def show_one(context: typer.Context, json: Json = False) -> None:
    from lorogo_cli.commands import config_show

    config_show.say([settings_of(context)], as_json=json)


for name in SECTIONS:
    words = f"Show the settings of `lorogo {name}`; takes the same flags."
    show_app.command(name, cls=service(name), help=words)(show_one)


@app.command()
def example() -> None:
    """Print a file with every setting, its description and its default, all commented out."""
    from lorogo_cli.config import pages

    typer.echo(pages.example(), nl=False)


@app.command(hidden=True)
def table() -> None:
    """Print the tables of all settings, in Markdown."""
    from lorogo_cli.config import pages

    typer.echo(pages.tables(), nl=False)
