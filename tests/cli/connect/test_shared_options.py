"""`--nats-ca`, `--nats-cert`, `--nats-key`: every command that reaches NATS takes them."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lorogo_cli import app as commands
from lorogo_cli.commands import pipeline
from lorogo_cli.connect.nats_tls import with_nats_tls
from lorogo_cli.connect.options import NATS_DEFAULT, Nats
from lorogo_cli.doc import doc
from lorogo_cli.log import log
from lorogo_cli.services import auth
from lorogo_cli.tokens import token


def _works(one: typer.Typer) -> list[Callable[..., Any]]:
    """Its commands, and what stands before them if it does something itself."""
    found = [command.callback for command in one.registered_commands]
    if one.registered_callback is not None:
        found.append(one.registered_callback.callback)
    return [work for work in found if work is not None]


def test_every_command_with_nats_has_them() -> None:
    seen = 0
    for one in (commands.app, auth.app, doc.app, log.app, pipeline.app, token.app):
        for work in _works(one):
            names = set(inspect.signature(work).parameters)
            if "nats" in names:
                seen += 1
                assert {"nats_ca", "nats_cert", "nats_key"} <= names, work.__name__
    assert seen >= 20


@pytest.mark.parametrize("by", ["option", "environment"])
def test_files_become_part_of_the_address(by: str, tmp_path: Path) -> None:
    urls: list[str] = []
    made = typer.Typer()

    @made.command()
    def ask(word: str, nats: Nats = NATS_DEFAULT) -> None:
        urls.append(f"{word} {nats}")

    with_nats_tls(made)
    ca = tmp_path / "ca.pem"
    options, environment = (
        (["--nats-ca", str(ca)], {}) if by == "option" else ([], {"LOROGO_NATS_CA": str(ca)})
    )
    result = CliRunner().invoke(made, ["hello", "--nats", "tls://one", *options], env=environment)
    assert result.exit_code == 0, result.output
    assert urls == [f"hello tls://one?ca={str(ca).replace('/', '%2F')}"]
    assert CliRunner().invoke(made, ["hello"]).exit_code == 0
    assert urls[1] == f"hello {NATS_DEFAULT}"
