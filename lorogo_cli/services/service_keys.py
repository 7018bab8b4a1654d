"""Access to a service: the keys of a closed service, or `--open`.

`serve`, `gateway` and `auth` are closed by default (docs/decisions/0016).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import structlog

from lorogo_cli.config.choice import ResolvedSettings
from lorogo_cli.connect.client import unreachable
from lorogo_cli.connect.options import KEYS_ENVIRONMENT
from lorogo_cli.errors import CommandError, one_line
from lorogo_protocol.messages import subjects
from lorogo_transport.auth.anonymous_access import allows_anonymous
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.ports import Bus, PermissionViolation

log = structlog.get_logger(__name__)

_PROBE = f"{subjects.accepted('_')}.probe"  # one token more than a document's subject: no subscriber
_LOOK_SECONDS = 5.0


class AccessCheckUnanswered(CommandError):
    """NATS is unreachable: whether it accepts anonymous clients is unknown."""


class Identity(TypedDict, total=False):
    """NATS credentials and inboxes of a service: arguments of `connect`."""

    seed: str | None
    inbox_prefix: str
    taken_prefix: str
    answer_users_only: bool


@dataclass(frozen=True, slots=True)
class ServiceKeys:
    """Keys that verify tokens (None: every client may do everything), and the service's nkey seed."""

    keys: KeySource | None
    seed: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: ResolvedSettings) -> "ServiceKeys":
        """Load keys and seed from the settings. Raises CommandError, SecretUnusable, InvalidKey."""
        found = keys_in(settings)
        if found is None and not settings["open"]:
            raise CommandError(
                f"`lorogo {settings.section}` needs the keys that verify tokens: use --keys FILE"
                " (`lorogo auth setup DIR` makes them), or --open to let every client that can connect read"
                " and change all documents"
            )
        if found is not None and settings["open"]:
            raise CommandError(
                f"{settings.called('open')} contradicts {settings.called('keys_file')}:"
                " with keys, every client needs a token"
            )
        seed = settings.secret("nats_seed_file", "the nkey seed")
        if seed is not None:
            _check_seed(seed)
        if found is not None:
            warn_of_minting(found)
        return cls(found, seed)

    def server_identity(self) -> Identity:
        """Return a server's identity; with keys it replies to users' inboxes only and listens on `_TAKEN`."""
        if self.keys is None:
            return self._service_identity(subjects.SERVER_INBOX)
        return {
            **self._service_identity(subjects.SERVER_INBOX),
            "taken_prefix": subjects.TAKEN,
            "answer_users_only": True,
        }

    def gateway_identity(self) -> Identity:
        """Return a gateway's identity: it replies on the servers' `_TAKEN`, and they reply to its inbox."""
        return self._service_identity(subjects.GATEWAY_INBOX)

    def _service_identity(self, inbox_prefix: str) -> Identity:
        """Return the seed and a private inbox prefix; empty on an open NATS."""
        if self.keys is None and self.seed is None:
            return {}
        return {"seed": self.seed, "inbox_prefix": inbox_prefix}

    async def check_nats(self, url: str, *, alternative: str = "; or use --open instead of --keys") -> None:
        """With keys, require that NATS refuses anonymous clients. Raises CommandError, AccessCheckUnanswered.

        `alternative` ends the error message.
        """
        if self.keys is None:
            return
        if await _allows_anonymous(url, closed=True):
            raise CommandError(
                "this NATS accepts anonymous clients, so tokens protect nothing: `lorogo auth setup DIR`"
                f" writes the configuration of a closed NATS{alternative}"
            )

    def not_let_in(self, error: Unreachable) -> CommandError:
        """Return the reason why a server cannot connect, with a next step."""
        if not isinstance(error, NotAuthorized):
            return unreachable(error, closed=self.keys is not None)
        seed = "use --nats-seed DIR/server.seed, DIR being the folder of the nats.conf that NATS runs with"
        if self.seed is None:
            return CommandError(f"NATS requires credentials: {seed} ({one_line(error)})")
        return CommandError(f"NATS does not know this seed: {seed}")

    async def check_open(self, url: str) -> None:
        """Without keys, refuse a closed NATS, which our seed would open.

        Raises CommandError, AccessCheckUnanswered.
        """
        if self.keys is not None or self.seed is None:
            return
        if not await _allows_anonymous(url, closed=False):
            raise CommandError(
                "this NATS is closed, and --open would give every client the rights of our seed: use"
                " --keys DIR/keys.jwks instead of --open"
            )

    async def check_server(self, bus: Bus) -> None:
        """With keys, require the permission to publish accepted updates. Raises CommandError."""
        if self.keys is None:
            return
        refused: list[PermissionViolation] = []
        unwatch = bus.watch_refusals(refused.append)
        try:
            await bus.publish(_PROBE, b"")
            await bus.barrier(_LOOK_SECONDS)
        finally:
            unwatch()
        if any(one.publish and one.subject == _PROBE for one in refused):
            raise CommandError(
                "this seed is not a server's: NATS does not let it publish accepted updates;"
                " use --nats-seed DIR/server.seed of the folder that `lorogo auth setup DIR` made"
            )


async def _allows_anonymous(url: str, *, closed: bool) -> bool:
    try:
        return await allows_anonymous(url, _LOOK_SECONDS)
    except Unreachable as error:
        raise AccessCheckUnanswered(str(unreachable(error, closed=closed))) from None


def _check_seed(seed: str) -> None:
    """Raise InvalidSeed if it is not the seed of a NATS user."""
    from lorogo_transport.auth import seeds

    seeds.public_of(seed, seeds.USER, "the file of --nats-seed")


def warn_of_minting(keys: KeySource) -> None:
    """Log a warning if a service that only verifies tokens was given private keys."""
    minting = [key.key_id for key in keys.keys.all if key.mints and key.algorithm == "EdDSA"]
    if minting:
        log.warning(
            "--keys has a key that can mint tokens: use the public set, keys.jwks",
            keys=minting,
        )


def keys_in(settings: ResolvedSettings) -> KeySource | None:
    """Load the keys that the settings name. Raises SecretUnusable, InvalidKey."""
    choice = settings.choices["keys_file"]
    if choice.value is None:
        return None
    return KeySource.from_text(choice.value) if choice.held else KeySource.from_file(choice.value)


def keys_of(path: Path | None) -> KeySource | None:
    """Load the keys from the file, from the environment, or from the file that it names; else None."""
    if path is not None:
        return KeySource.from_file(path)
    if text := os.environ.get(KEYS_ENVIRONMENT, "").strip():
        return KeySource.from_text(text)
    if named := os.environ.get(f"{KEYS_ENVIRONMENT}_FILE", ""):
        return KeySource.from_file(named)
    return None
