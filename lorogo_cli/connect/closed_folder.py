"""The folder of a closed NATS: its configuration, the seeds of its services, and the keys of tokens.

Secret files are readable by their owner only; existing files are never overwritten.
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
ACCOUNTS = "accounts.conf"  # accounts and users, to include in another configuration
SIGNING_KEY = "tokens.jwk"  # mints tokens: only for the app's backend
KEY_SET = "keys.jwks"  # verifies tokens: for lorogo serve, gateway and auth
STORE = "jetstream"


@dataclass(frozen=True, slots=True)
class ClosedFolder:
    """The folder's content, read and checked."""

    path: Path
    seeds: dict[str, str] = field(repr=False)

    @property
    def accounts(self) -> str:
        """Return the part of nats-server's configuration that closes it."""
        return closed.accounts(closed.public_keys(self.seeds))

    @property
    def signing_key(self) -> Path:
        return self.path / SIGNING_KEY

    @property
    def key_set(self) -> Path:
        return self.path / KEY_SET


def make(path: Path, *, listen: str = "127.0.0.1:4222") -> ClosedFolder:
    """Write all files of a closed NATS into a new or empty folder."""
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
    # written last: a folder without it is incomplete
    write_file(
        path / KEY_SET,
        json.dumps({"keys": [key.public()]}, indent=2),
        "the key set",
        mode=0o600,
        replace=False,
    )
    return ClosedFolder(path, seeds)


def read(path: Path) -> ClosedFolder:
    """Read the files that `make` wrote. Raises SecretUnusable, InvalidSeed."""
    path = path.absolute()
    seeds = {name: read_secret_file(path / f"{name}.seed", f"the seed of {name}") for name in closed.KINDS}
    closed.public_keys(seeds)
    return ClosedFolder(path, seeds)


def make_once(path: Path) -> ClosedFolder:
    """Read the folder; make it first if it does not exist."""
    if (path / KEY_SET).exists():
        return read(path)
    return make(path)


def make_private(path: Path, *, empty: bool = False) -> None:
    """Make the folder, for its owner only. Raises CommandError, with `empty` also if it is not empty."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if empty and any(path.iterdir()):
            raise CommandError(f"{path} is not empty; nothing was changed: choose a new folder")
        path.chmod(0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise CommandError(f"cannot write to {path}: permission denied")
    except OSError as error:
        raise CommandError(f"cannot make the folder {path}: {error.strerror}") from None
