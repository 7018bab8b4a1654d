"""Minting of tokens for the users of an app, in its backend, which holds the key.

    key = tokens.load_key("tokens.jwk")
    text = tokens.mint(key, subject="ana", documents={"minutes-*": "write"}, expires=timedelta(hours=8))

Any JWT library can mint such tokens; docs/SECURITY.md describes the claims.
"""

import secrets
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import InvalidGrants
from lorogo_protocol.access.tokens import InvalidKey, Key
from lorogo_transport.secret_files import SecretUnusable, read_secret_file

__all__ = ["InvalidGrants", "InvalidKey", "Key", "SecretUnusable", "load_key", "mint", "new_key"]

_SECONDS_MAX: Final = 10 * 366 * 86_400  # a larger number is probably a Unix time


def mint(
    key: Key | Mapping[str, str] | str | Path,
    *,
    subject: str,
    documents: Mapping[str, str],
    expires: timedelta | float | datetime,
    token_id: str | None = None,
) -> str:
    """Mint a token for `subject`; give it to this user only.

    `key` is a Key, a JWK (a map, or its JSON text), or the Path of a key file. `documents` maps document ids,
    or patterns with `*`, to "read", "write" or "admin". It `expires` after a timedelta or so many seconds, or
    at a datetime with a time zone. `token_id`, which revokes it, is random unless given.

    Raises InvalidKey, InvalidGrants, SecretUnusable (a key file that other users may read), ValueError.
    """
    now = time.time()
    return tokens.mint(
        _key(key),
        subject=subject,
        documents=documents,
        expires=_moment(expires, now),
        now=now,
        token_id=f"t{secrets.token_hex(12)}" if token_id is None else token_id,
    )


def load_key(path: Path | str) -> Key:
    """Read a key file, which only its owner may read. Raises SecretUnusable, InvalidKey."""
    try:
        return tokens.key_of(read_secret_file(path, "the key"))
    except InvalidKey as error:
        raise InvalidKey(f"the key in {str(path)!r} cannot be used: {error}") from None


def new_key(kind: Literal["EdDSA", "HS256"] = "EdDSA", key_id: str | None = None) -> Key:
    """Create a key: `private()` is the part that mints, `public()` the part that verifies.

    An EdDSA key's public part can mint nothing; an HS256 key is one secret for both. Raises InvalidKey.
    """
    return tokens.make_key(
        kind, f"k{secrets.token_hex(6)}" if key_id is None else key_id, secrets.token_bytes(32)
    )


def _key(key: Key | Mapping[str, str] | str | Path) -> Key:
    match key:
        case Key():
            return key
        case Path():
            return load_key(key)
        case str() if "{" not in key:
            raise InvalidKey("the key is neither a JWK nor a Path: for a file give pathlib.Path(...)")
        case _:
            return tokens.key_of(key)


def _moment(expires: timedelta | float | datetime, now: float) -> float:
    match expires:
        case datetime():
            if expires.tzinfo is None:
                raise ValueError("`expires` needs a time zone: datetime.now(UTC) + timedelta(hours=8)")
            return expires.timestamp()
        case timedelta():
            return now + expires.total_seconds()
        case bool():
            raise ValueError("`expires` is a timedelta, seconds from now, or a datetime")
        case int() | float():
            if expires > _SECONDS_MAX:
                raise ValueError("`expires` is in seconds from now, not since 1970; or give a datetime")
            return now + expires
        case _:
            raise ValueError("`expires` is a timedelta, seconds from now, or a datetime")
