"""What was revoked before its time: the entries of the bucket `loro-revoked`, and whom they refuse.

Pure. A token is revoked by its id under `tok_{id}`, everything that a subject had so far under
`sub_{first 32 hex digits of its SHA-256}`, so neither can be mistaken for the other.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Final

from lorogo_protocol.ids import is_token
from lorogo_protocol.tokens import CLOCK_SECONDS, Token

TOKEN: Final = "token"
SUBJECT: Final = "subject"
_SUBJECT_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class Revocation:
    """One entry. Of a subject: all of its tokens that were issued until `at`."""

    kind: str  # TOKEN or SUBJECT
    at: float  # Unix seconds
    until: float | None  # when it may be forgotten; None: never

    def over(self, now: float) -> bool:
        """Whether there is nothing left that it could refuse."""
        return self.until is not None and now >= self.until

    def refuses(self, token: Token) -> bool:
        """Whether it is about this token, if it is of its id or its subject."""
        return self.kind == TOKEN or token.issued is None or token.issued <= self.at

    def joined(self, other: "Revocation") -> "Revocation":
        """Both at once: what either refuses, for as long as either does."""
        longer = None if self.until is None or other.until is None else max(self.until, other.until)
        return Revocation(self.kind, max(self.at, other.at), longer)


def of_token(now: float, expires: float | None) -> Revocation:
    """The entry for one token; it goes when the token has ended, by every clock."""
    return Revocation(TOKEN, now, None if expires is None else expires + 2 * CLOCK_SECONDS)


def of_subject(now: float, until: float | None) -> Revocation:
    """The entry for all that a subject has: also what a clock that is ahead of ours issued before now."""
    return Revocation(SUBJECT, now + CLOCK_SECONDS, until)


def token_key(token_id: str) -> str:
    """The key of a token's entry. Raises ValueError if no token can have this id."""
    if not is_token(token_id):
        raise ValueError("a token's id is 1 to 64 characters of A-Z a-z 0-9 _ -")
    return f"tok_{token_id}"


def subject_key(subject: str) -> str:
    """The key of a subject's entry."""
    digest = hashlib.sha256(subject.encode(errors="surrogatepass")).hexdigest()
    return f"sub_{digest[:_SUBJECT_CHARS]}"


def encode(entry: Revocation) -> bytes:
    """As the bucket keeps it."""
    return json.dumps({"kind": entry.kind, "at": entry.at, "until": entry.until}).encode()


def decode(key: str, data: bytes) -> Revocation:
    """The entry under this key. One that cannot be read refuses everything of its key, for ever."""
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
