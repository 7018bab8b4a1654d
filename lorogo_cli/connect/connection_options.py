"""How a command reaches NATS: the address, and who it is there, from files and the environment."""

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
        """As the options and the environment say. Raises SecretUnusable."""
        from lorogo_transport.secret_files import read_secret

        return cls(
            nats,
            read_secret(path=token_file, environment=TOKEN_ENVIRONMENT, what="the token"),
            read_secret(path=nats_seed, environment=SEED_ENVIRONMENT, what="the nkey seed"),
        )

    @property
    def guarded(self) -> bool:
        """Whether there is a token only, which gives documents and nothing else of NATS."""
        return self.token is not None and self.seed is None

    @property
    def known(self) -> bool:
        """Whether we say who we are, apart from what the address says."""
        return self.token is not None or self.seed is not None or "@" in self.url
