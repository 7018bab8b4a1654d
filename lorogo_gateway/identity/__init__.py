"""Who asks, and what they may do: tokens at the gateway's doors (docs/decisions/0016)."""

from lorogo_gateway.identity.guard import Guard, Verifier, missing
from lorogo_gateway.identity.presented import COOKIE, Presented, presented
from lorogo_gateway.identity.principal import NOBODY, OPEN, UNCHECKED, NotAllowed, NotSignedIn, Principal

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
