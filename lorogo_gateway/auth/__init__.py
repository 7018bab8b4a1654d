"""Authentication and authorization of requests by their tokens (docs/decisions/0016)."""

from lorogo_gateway.auth.guard import TokenGuard, TokenVerifier, missing
from lorogo_gateway.auth.presented_token import COOKIE, PresentedToken, presented
from lorogo_gateway.auth.principal import ANONYMOUS, OPEN, UNCHECKED, AccessDenied, NotSignedIn, Principal

__all__ = [
    "ANONYMOUS",
    "COOKIE",
    "OPEN",
    "UNCHECKED",
    "AccessDenied",
    "NotSignedIn",
    "PresentedToken",
    "Principal",
    "TokenGuard",
    "TokenVerifier",
    "missing",
    "presented",
]
