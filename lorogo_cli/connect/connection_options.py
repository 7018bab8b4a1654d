"""Address and credentials with which a command connects to NATS."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """An address with a token, the seed of a service, both, or neither."""

    url: str
    token: str | None = field(default=None, repr=False)
    seed: str | None = field(default=None, repr=False)

    @property
    def guarded(self) -> bool:
        """Return whether there is only a token, which grants documents and no other NATS subjects."""
        return self.token is not None and self.seed is None

    @property
    def known(self) -> bool:
        """Return whether there are credentials: a token, a seed, or a user in the address."""
        return self.token is not None or self.seed is not None or "@" in self.url
