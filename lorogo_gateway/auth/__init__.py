"""Authentication and authorization of requests by their tokens (docs/decisions/0016)."""

from lorogo_gateway.auth.guard import Guard, Verifier, missing
from lorogo_gateway.auth.presented_token import COOKIE, Presented, presented
from lorogo_gateway.auth.principal import NOBODY, OPEN, UNCHECKED, NotAllowed, NotSignedIn, Principal

__all__ = [
    "COOKIE",
    "NOBODY",
    "OPEN",
    "UNCHECKED",
    "Guard",
    "NotAllowed",
    "NotSignedIn",
    "Presented",
    "Principal",
    "Verifier",
    "missing",
    "presented",
]
