"""Address and credentials with which a command connects to NATS, from files and the environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lorogo_cli.connect.options import SEED_ENVIRONMENT, TOKEN_ENVIRONMENT


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """An address with a token, the seed of a service, both, or neither."""

    url: str
    token: str | None = field(default=None, repr=False)
    seed: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, nats: str, token_file: Path | None, nats_seed: Path | None) -> Self:
        """Read token and seed from the options or the environment. Raises SecretUnusable."""
        from lorogo_transport.secret_files import read_secret

        return cls(
            nats,
            read_secret(path=token_file, environment=TOKEN_ENVIRONMENT, what="the token"),
            read_secret(path=nats_seed, environment=SEED_ENVIRONMENT, what="the nkey seed"),
        )

    @property
    def guarded(self) -> bool:
        """Return whether there is only a token, which grants documents and no other NATS subjects."""
        return self.token is not None and self.seed is None

    @property
    def known(self) -> bool:
        """Return whether there are credentials: a token, a seed, or a user in the address."""
        return self.token is not None or self.seed is not None or "@" in self.url
