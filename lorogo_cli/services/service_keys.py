"""Who may come in: the keys of a closed service, or `--open`, in the operator's own words.

`serve`, `gateway` and `auth` are closed unless they are told otherwise (docs/decisions/0016).
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
from lorogo_protocol import subjects
from lorogo_transport.auth.anonymous_access import allows_anonymous
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.ports import Bus, PermissionViolation

log = structlog.get_logger(__name__)

_PROBE = f"{subjects.accepted('_')}.probe"  # one word more than any document's: nobody listens
_LOOK_SECONDS = 5.0


class AccessCheckUnanswered(CommandError):
    """NATS does not say whether it lets strangers in: it is away."""


class Identity(TypedDict, total=False):
    """How a service says to NATS who it is: arguments of `jetstream.connect`."""

    seed: str | None
    inbox_prefix: str
    taken_prefix: str
    answer_users_only: bool


@dataclass(frozen=True, slots=True)
class ServiceKeys:
    """Keys that verify tokens, or none: then everybody may do everything. And who we are to NATS."""

    keys: KeySource | None
    seed: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: ResolvedSettings) -> "ServiceKeys":
        """As was chosen. Raises Problem, SecretUnusable, InvalidKey."""
        found = keys_in(settings)
        if found is None and not settings["open"]:
            raise CommandError(
                f"`lorogo {settings.section}` needs the keys that verify tokens: --keys FILE"
                " (`lorogo auth setup DIR` makes them), or --open if everybody who reaches it may read and"
                " change every document"
            )
        if found is not None and settings["open"]:
            raise CommandError(
                f"{settings.called('open')} contradicts {settings.called('keys_file')}:"
                " with keys everybody needs a token"
            )
        seed = settings.secret("nats_seed_file", "the nkey seed")
        if seed is not None:
            _check_seed(seed)
        if found is not None:
            warn_of_minting(found)
        return cls(found, seed)

    def server_identity(self) -> Identity:
        """For a document server: with keys it answers to users' inboxes only, and is answered on `_TAKEN`."""
        if self.keys is None:
            return self._service_identity(subjects.SERVER_INBOX)
        return {
            **self._service_identity(subjects.SERVER_INBOX),
            "taken_prefix": subjects.TAKEN,
            "answer_users_only": True,
        }

    def gateway_identity(self) -> Identity:
        """For a gateway, a client of servers: it answers on their `_TAKEN`, they answer to its inbox."""
        return self._service_identity(subjects.GATEWAY_INBOX)

    def _service_identity(self, inbox_prefix: str) -> Identity:
        """The seed, and inboxes where no other service may listen; nothing on an open NATS."""
        if self.keys is None and self.seed is None:
            return {}
        return {"seed": self.seed, "inbox_prefix": inbox_prefix}

    async def check_nats(self, url: str, *, else_say: str = "; or say --open instead of --keys") -> None:
        """With keys, NATS must not let strangers in: they would need no token. Raises Problem, Unanswered.

        `else_say` ends the sentence: what else could be done.
        """
        if self.keys is None:
            return
        try:
            stranger = await allows_anonymous(url, _LOOK_SECONDS)
        except Unreachable as error:
            raise AccessCheckUnanswered(str(unreachable(error, closed=True))) from None
        if stranger:
            raise CommandError(
                "this NATS lets everybody in, so tokens would keep nobody out: `lorogo auth setup DIR` makes"
                f" the configuration of one that does not{else_say}"
            )

    def not_let_in(self, error: Unreachable) -> CommandError:
        """Why a server is not connected, and what to do about it."""
        if not isinstance(error, NotAuthorized):
            return unreachable(error, closed=self.keys is not None)
        folder = "of the folder whose nats.conf NATS runs with"
        if self.seed is None:
            return CommandError(
                f"NATS asks who we are: --nats-seed DIR/server.seed, {folder} ({one_line(error)})"
            )
        return CommandError(f"NATS does not know this seed: --nats-seed DIR/server.seed, {folder}")

    async def check_open(self, url: str) -> None:
        """Without keys, everybody would come in by our seed if NATS is closed. Raises Problem, Unanswered."""
        if self.keys is not None or self.seed is None:
            return
        try:
            stranger = await allows_anonymous(url, _LOOK_SECONDS)
        except Unreachable as error:
            raise AccessCheckUnanswered(str(unreachable(error))) from None
        if not stranger:
            raise CommandError(
                "this NATS is closed, and --open would let everybody in by our seed: say --keys DIR/keys.jwks"
                " instead of --open"
            )

    async def check_server(self, bus: Bus) -> None:
        """With keys, NATS must let us speak as a server: no client would hear of edits. Raises Problem."""
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
                "this seed is not a server's, NATS does not let it say which edits were accepted:"
                " --nats-seed DIR/server.seed, of the folder that `lorogo auth setup DIR` made"
            )


def _check_seed(seed: str) -> None:
    """Raise InvalidSeed if no user of NATS can have it."""
    from lorogo_transport.auth import seeds

    seeds.public_of(seed, seeds.USER, "what --nats-seed names")


def warn_of_minting(keys: KeySource) -> None:
    """Say so if who only verifies was given more than that takes."""
    minting = [key.key_id for key in keys.keys.all if key.mints and key.algorithm == "EdDSA"]
    if minting:
        log.warning(
            "--keys has a key that can mint tokens: give the public set, keys.jwks, which is enough here",
            keys=minting,
        )


def keys_in(settings: ResolvedSettings) -> KeySource | None:
    """The keys that were chosen. Raises SecretUnusable, InvalidKey."""
    choice = settings.choices["keys_file"]
    if choice.value is None:
        return None
    return KeySource.from_text(choice.value) if choice.held else KeySource.from_file(choice.value)


def keys_of(path: Path | None) -> KeySource | None:
    """The keys in the file, else in the environment, else in the file that it names, else None."""
    if path is not None:
        return KeySource.from_file(path)
    if text := os.environ.get(KEYS_ENVIRONMENT, "").strip():
        return KeySource.from_text(text)
    if named := os.environ.get(f"{KEYS_ENVIRONMENT}_FILE", ""):
        return KeySource.from_file(named)
    return None
