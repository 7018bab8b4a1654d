"""Helpers of the deploy tests: command lines checked against the real CLI, nats-servers with its settings."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import typer
import yaml

from lorogo_cli.app import app
from lorogo_cli.config.choice import choose
from lorogo_cli.config.entries import SECTIONS, entries
from lorogo_transport.nats.embedded import find_nats_server
from tests.cli.support import until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NATS = DEPLOY / "nats"
_DEFAULTED = re.compile(r"\$\{(\w+):-([^}]*)\}")


def compose() -> dict[str, Any]:
    """docker-compose.yml, with nothing set in the environment: `${NAME:-default}` is the default."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(_DEFAULTED.sub(r"\2", text))
    return found


def understood(words: Sequence[str]) -> dict[str, Any]:
    """The parsed arguments of the command `lorogo WORDS`, without running it. Raises the errors
    of the CLI.
    """
    command: Any = typer.main.get_command(app)
    context: Any = None
    rest = list(words)
    while True:
        name = command.name if context is None else rest.pop(0)
        context = command.make_context(name, rest, parent=context, **_lenient(command))
        if not getattr(command, "commands", None) or not (rest := _left(context)):
            return {**context.params, **_settings(command.name, context)}
        command = command.commands[rest[0]]


def _settings(section: str, context: Any) -> dict[str, Any]:
    """The settings that a service takes from its flags. Raises Mistaken."""
    if section not in SECTIONS:
        return {}
    typed = {
        key: value
        for key, value in context.params.items()
        if context.get_parameter_source(key).name == "COMMANDLINE" and key in entries(section)
    }
    chosen = choose(section, typed=typed, environment={}, file=None)
    return {key: chosen[key] for key in chosen.choices}


def _lenient(command: Any) -> dict[str, Any]:
    """A command with commands leaves their words to them."""
    return {"allow_interspersed_args": False} if getattr(command, "commands", None) else {}


def _left(context: Any) -> list[str]:
    return [*getattr(context, "_protected_args", []), *context.args]


def free_ports(count: int) -> list[int]:
    """Free ports on loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def installed(folder: Path, accounts: Path) -> Path:
    """deploy/nats as an operator puts it on a machine, with this file for accounts."""
    shutil.copytree(NATS, folder)
    shutil.copy(accounts, folder / "accounts.conf")
    return folder


def said_of(conf: str) -> str:
    """A file of deploy/nats without its comments."""
    lines = (NATS / conf).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def wanted(conf: str) -> set[str]:
    """The variables that a configuration and what it includes take from the environment."""
    text = said_of(conf)
    found = set(re.findall(r"\$(\w+)", text))
    return found.union(*(wanted(name) for name in re.findall(r"include \./(?!accounts)(\S+)", text)))


def checked(conf: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The result of `nats-server -t` for a configuration."""
    return subprocess.run(
        [find_nats_server(), "-t", "-c", conf],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class NatsServer:
    """A nats-server with a configuration of deploy/nats."""

    def __init__(self, conf: Path, environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [find_nats_server(), "-c", conf],
                env={"PATH": os.environ["PATH"], **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def answers(self, url: str) -> bool | None:
        """True if the monitoring endpoint answers with 200, else None."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urlopen(url, timeout=5) as answer:
                return answer.status == 200 or None
        except (URLError, OSError):
            return None

    def listens(self, port: int) -> bool | None:
        assert self.process.poll() is None, self.log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            return None
        return True

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


@contextmanager
def nats_running(conf: Path, settings: Mapping[str, str], log: Path, port: int) -> Iterator[NatsServer]:
    """A nats-server that listens there, and is gone afterwards."""
    server = NatsServer(conf, settings, log)
    try:
        until("nats-server", lambda: server.listens(port))
        yield server
    finally:
        server.kill()
