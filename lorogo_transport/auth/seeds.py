"""Nkeys: Ed25519 keys that authenticate services to NATS and sign answers for it.

A seed is a secret in NATS's own encoding (`SU...`, `SA...`). No repr and no message here contains one.
"""

import secrets
from typing import Final

import nkeys

from lorogo_protocol.errors import LorogoError

USER: Final = "user"
ACCOUNT: Final = "account"
_PREFIXES: Final = {USER: nkeys.PREFIX_BYTE_USER, ACCOUNT: nkeys.PREFIX_BYTE_ACCOUNT}
_STARTS: Final = {USER: "SU", ACCOUNT: "SA"}
_SEED_CHARS: Final = 58


class InvalidSeed(LorogoError):
    """The text is not an nkey seed; the message never contains the seed."""

    code = "invalid-seed"


class SeedSigner:
    """Signs with a seed (a `callout.Signer`)."""

    __slots__ = ("_pair", "_public_key")

    def __init__(self, seed: str, kind: str, what: str) -> None:
        """`what` is used in the message of InvalidSeed, as in "the issuer's seed"."""
        start = _STARTS[kind]
        if len(seed) != _SEED_CHARS or not seed.startswith(start):
            raise InvalidSeed(f"{what} is not an nkey seed of {_a(kind)}: it starts with {start}")
        try:
            self._pair = nkeys.from_seed(bytearray(seed.encode()))
            self._public_key: str = self._pair.public_key.decode()
            whole = nkeys.encode_seed(nkeys.decode_seed(seed.encode())[1], _PREFIXES[kind]).decode()
        except (nkeys.NkeysError, ValueError, TypeError):
            raise InvalidSeed(f"{what} cannot be read: is it complete?") from None
        if not secrets.compare_digest(whole, seed):  # nkeys does not verify the check digits
            raise InvalidSeed(f"{what} cannot be read: is it complete?")

    def __repr__(self) -> str:
        return f"SeedSigner({self._public_key})"

    @property
    def public_key(self) -> str:
        return self._public_key

    def sign(self, data: bytes) -> bytes:
        signature: bytes = self._pair.sign(data)
        return signature


def new_seed(kind: str, random_bytes: bytes) -> str:
    """Create a seed from 32 random bytes."""
    seed: bytes = nkeys.encode_seed(random_bytes, _PREFIXES[kind])
    return seed.decode()


def public_of(seed: str, kind: str, what: str) -> str:
    """Return the public key of a seed. Raises InvalidSeed."""
    return SeedSigner(seed, kind, what).public_key


def _a(kind: str) -> str:
    return f"an {kind}" if kind == ACCOUNT else f"a {kind}"
