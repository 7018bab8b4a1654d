"""Tokens for tests, and a clock that they can end by."""

import itertools
import secrets

from lorogo_protocol.access import tokens
from lorogo_transport.clock import SystemClock

KEY = tokens.key_of({"kty": "oct", "kid": "test", "k": "c2VjcmV0LW9mLWEtdGVzdC1vZi0zMi1ieXRlcy1vci1tb3Jl"})
_counter = itertools.count(1)


class SetClock(SystemClock):
    """The real clock, moved by a test."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def wall_ns(self) -> int:
        return super().wall_ns() + int(self.ahead * 1e9)

    def now(self) -> float:
        return super().now() + self.ahead


def token_for(subject: str, documents: dict[str, str], *, seconds: float = 3600.0) -> str:
    """A token that ends in so many seconds, perhaps in the past."""
    now = SystemClock().wall_ns() / 1e9
    return tokens.mint(
        KEY,
        subject=subject,
        documents=documents,
        expires=now + seconds,
        now=min(now, now + seconds - 60),
        token_id=f"t{next(_counter)}-{secrets.token_hex(4)}",
    )
