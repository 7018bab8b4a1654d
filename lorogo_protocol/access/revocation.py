"""Revocations of tokens: the entries of the bucket `loro-revoked`.

Pure. The key `tok_{id}` revokes one token; `sub_{first 32 hex digits of its SHA-256}` revokes all existing
tokens of a subject. The prefixes keep the two apart.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Final

from lorogo_protocol.access.tokens import CLOCK_SECONDS, Token
from lorogo_protocol.ids import is_token

TOKEN: Final = "token"
SUBJECT: Final = "subject"
_SUBJECT_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class Revocation:
    """One revocation. That of a subject includes all its tokens issued until `at`."""

    kind: str  # TOKEN or SUBJECT
    at: float  # Unix seconds
    until: float | None  # when the entry may be removed; None: never

    def over(self, now: float) -> bool:
        """Return True if all revoked tokens have expired."""
        return self.until is not None and now >= self.until

    def refuses(self, token: Token) -> bool:
        """Return True if it revokes this token, given that its id or subject matches."""
        return self.kind == TOKEN or token.issued is None or token.issued <= self.at

    def joined(self, other: "Revocation") -> "Revocation":
        """Return the union of two revocations of the same key."""
        longer = None if self.until is None or other.until is None else max(self.until, other.until)
        return Revocation(self.kind, max(self.at, other.at), longer)


def of_token(now: float, expires: float | None) -> Revocation:
    """Make the entry for one token; it ends after the token's expiry, with the tolerance for clocks."""
    return Revocation(TOKEN, now, None if expires is None else expires + 2 * CLOCK_SECONDS)


def of_subject(now: float, until: float | None) -> Revocation:
    """Make the entry for all tokens of a subject, including those issued by a clock that is ahead."""
    return Revocation(SUBJECT, now + CLOCK_SECONDS, until)


def token_key(token_id: str) -> str:
    """Return the key of a token's entry. Raises ValueError for an invalid id."""
    if not is_token(token_id):
        raise ValueError("a token's id is 1 to 64 characters of A-Z a-z 0-9 _ -")
    return f"tok_{token_id}"


def subject_key(subject: str) -> str:
    """Return the key of a subject's entry."""
    digest = hashlib.sha256(subject.encode(errors="surrogatepass")).hexdigest()
    return f"sub_{digest[:_SUBJECT_CHARS]}"


def encode(entry: Revocation) -> bytes:
    """Return the stored value."""
    return json.dumps({"kind": entry.kind, "at": entry.at, "until": entry.until}).encode()


def decode(key: str, data: bytes) -> Revocation:
    """Parse the entry of a key. A malformed entry revokes all tokens of its key for ever."""
    kind = SUBJECT if key.startswith("sub_") else TOKEN
    try:
        value = json.loads(data)
        at, until = value["at"], value["until"]
        if not _number(at) or not (until is None or _number(until)):
            raise ValueError("not Unix seconds")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Revocation(kind, math.inf, None)
    return Revocation(kind, float(at), None if until is None else float(until))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
