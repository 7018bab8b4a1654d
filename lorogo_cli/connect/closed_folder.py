"""The folder of a closed NATS: its configuration, the seeds of its services, and the keys of tokens.

Everything secret in it is for its owner's eyes only; what is there already is never written over.
"""

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from lorogo_cli.errors import CommandError
from lorogo_client.tokens import new_key
from lorogo_transport.auth import accounts as closed
from lorogo_transport.secret_files import read_secret_file, write_file, write_secret

CONF = "nats.conf"
ACCOUNTS = "accounts.conf"  # the part of it that says who may come in, for configurations of your own
SIGNING_KEY = "tokens.jwk"  # mints tokens: for the app's backend, and nobody else
KEY_SET = "keys.jwks"  # verifies them: for lorogo serve, gateway and auth
STORE = "jetstream"


@dataclass(frozen=True, slots=True)
class ClosedFolder:
    """What is in it, read and checked."""

    path: Path
    seeds: dict[str, str] = field(repr=False)

    @property
    def accounts(self) -> str:
        """The part of nats-server's configuration that closes it."""
        return closed.accounts(closed.public_keys(self.seeds))

    @property
    def signing_key(self) -> Path:
        return self.path / SIGNING_KEY

    @property
    def key_set(self) -> Path:
        return self.path / KEY_SET


def make(path: Path, *, listen: str = "127.0.0.1:4222") -> ClosedFolder:
    """Write everything that a closed NATS needs, into a folder that is new or empty."""
    path = path.absolute()
    make_private(path, empty=True)
    seeds = closed.new_seeds(secrets.token_bytes)
    key = new_key("EdDSA", None)
    accounts = closed.accounts(closed.public_keys(seeds))
    conf = closed.server_conf(ACCOUNTS, store=str(path / STORE), listen=listen)
    for name, seed in seeds.items():
        write_secret(path / f"{name}.seed", seed, f"the seed of {name}")
    write_secret(path / SIGNING_KEY, json.dumps(key.private(), indent=2), "the key that mints tokens")
    for name, text in ((ACCOUNTS, accounts), (CONF, conf)):
        write_file(path / name, text.rstrip(), "the configuration", mode=0o600, replace=False)
    # the last: a folder without it is half made
    write_file(
        path / KEY_SET,
        json.dumps({"keys": [key.public()]}, indent=2),
        "the key set",
        mode=0o600,
        replace=False,
    )
    return ClosedFolder(path, seeds)


def read(path: Path) -> ClosedFolder:
    """What `make` wrote. Raises SecretUnusable, InvalidSeed."""
    path = path.absolute()
    seeds = {name: read_secret_file(path / f"{name}.seed", f"the seed of {name}") for name in closed.KINDS}
    closed.public_keys(seeds)
    return ClosedFolder(path, seeds)


def make_once(path: Path) -> ClosedFolder:
    """The folder as it is, made now if it is not there."""
    if (path / KEY_SET).exists():
        return read(path)
    return make(path)


def make_private(path: Path, *, empty: bool = False) -> None:
    """The folder, for us alone. Raises Problem, with `empty` also if there is something in it already."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if empty and any(path.iterdir()):
            raise CommandError(f"{path} is not empty: nothing in it was changed; choose a new folder")
        path.chmod(0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise CommandError(f"nothing can be written to {path}")
    except OSError as error:
        raise CommandError(f"{path} cannot be made: {error.strerror}") from None
