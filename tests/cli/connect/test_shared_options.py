"""Options that many commands share: where they are, and what becomes of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lorogo_cli.app import app
from lorogo_cli.connect.options import NATS_DEFAULT, ClientOptions
from lorogo_cli.connect.shared_options import connection, taking


def _commands(one: Any) -> Iterator[Any]:
    yield one
    for below in getattr(one, "commands", {}).values():
        yield from _commands(below)


def test_every_command_with_nats_has_its_tls_files() -> None:
    seen = 0
    for command in _commands(typer.main.get_command(app)):
        names = {one.name for one in command.params}
        if "nats" in names and command.name != "chaos":  # whose --nats is a number of servers
            seen += 1
            assert {"nats_ca", "nats_cert", "nats_key"} <= names, command.name
    assert seen >= 20


@pytest.fixture
def asking() -> tuple[typer.Typer, list[str]]:
    """A program with an option of its own and the shared ones, and the lines that it writes."""
    lines: list[str] = []
    made = typer.Typer()

    @made.command(cls=taking(ClientOptions))
    def ask(context: typer.Context, word: str) -> None:
        way = connection(context)
        lines.append(f"{word} {way.url} {way.token} {way.seed}")

    return made, lines


@pytest.mark.parametrize("by", ["option", "environment"])
def test_files_become_part_of_the_address(
    by: str, tmp_path: Path, asking: tuple[typer.Typer, list[str]]
) -> None:
    made, lines = asking
    ca = tmp_path / "ca.pem"
    options, environment = (
        (["--nats-ca", str(ca)], {}) if by == "option" else ([], {"LOROGO_NATS_CA": str(ca)})
    )
    result = CliRunner().invoke(made, ["hello", "--nats", "tls://one", *options], env=environment)
    assert result.exit_code == 0, result.output
    assert lines == [f"hello tls://one?ca={str(ca).replace('/', '%2F')} None None"]
    assert CliRunner().invoke(made, ["hello"]).exit_code == 0
    assert lines[1] == f"hello {NATS_DEFAULT} None None"


def test_a_token_and_a_seed_come_from_files_or_the_environment(
    tmp_path: Path, asking: tuple[typer.Typer, list[str]]
) -> None:
    """A file on the command line wins over the environment."""
    made, lines = asking
    secret = tmp_path / "secret"
    secret.write_text("from-file\n")
    secret.chmod(0o600)
    environment = {"LOROGO_TOKEN": "token", "LOROGO_NATS_SEED": "seed"}
    assert CliRunner().invoke(made, ["hello"], env=environment).exit_code == 0
    assert CliRunner().invoke(made, ["hello", "--token-file", str(secret)], env=environment).exit_code == 0
    assert CliRunner().invoke(made, ["hello", "--nats-seed", str(secret)], env=environment).exit_code == 0
    assert [line.split()[2:] for line in lines] == [
        ["token", "seed"],
        ["from-file", "seed"],
        ["token", "from-file"],
    ]
