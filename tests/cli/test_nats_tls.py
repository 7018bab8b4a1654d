"""`--nats-ca`, `--nats-cert`, `--nats-key`: every command that reaches NATS takes them."""

import inspect
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lorogo_cli import app as commands
from lorogo_cli import doc, log, pipeline
from lorogo_cli.nats_tls import with_nats_tls
from lorogo_cli.options import NATS_DEFAULT, Nats


def test_every_command_with_nats_has_them() -> None:
    seen = 0
    for one in (commands.app, doc.app, log.app, pipeline.app):
        for command in one.registered_commands:
            assert command.callback is not None
            names = set(inspect.signature(command.callback).parameters)
            if "nats" in names:
                seen += 1
                assert {"nats_ca", "nats_cert", "nats_key"} <= names, command.callback.__name__
    assert seen >= 20


@pytest.mark.parametrize("by", ["option", "environment"])
def test_files_become_part_of_the_address(by: str, tmp_path: Path) -> None:
    heard: list[str] = []
    made = typer.Typer()

    @made.command()
    def ask(word: str, nats: Nats = NATS_DEFAULT) -> None:
        heard.append(f"{word} {nats}")

    with_nats_tls(made)
    ca = tmp_path / "ca.pem"
    options, environment = (
        (["--nats-ca", str(ca)], {}) if by == "option" else ([], {"LOROGO_NATS_CA": str(ca)})
    )
    result = CliRunner().invoke(made, ["hello", "--nats", "tls://one", *options], env=environment)
    assert result.exit_code == 0, result.output
    assert heard == [f"hello tls://one?ca={str(ca).replace('/', '%2F')}"]
    assert CliRunner().invoke(made, ["hello"]).exit_code == 0
    assert heard[1] == f"hello {NATS_DEFAULT}"
