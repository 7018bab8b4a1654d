"""Confirmation of commands that destroy data."""

import sys

import typer

from lorogo_cli.errors import CommandError


def confirm(question: str, deed: str, otherwise: str) -> None:
    """Return if the user agrees. Raises CommandError, without a terminal with `--yes` as the next step."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError(f"stdin is not a terminal; pass --yes to {deed}")
    if not typer.confirm(question, err=True):
        raise CommandError(otherwise)
