"""Extraction of the token from a request: `Authorization: Bearer`, or the pages' cookie. Pure.

A token in the URL is ignored: URLs end up in logs, browser histories and `Referer`.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from starlette.datastructures import Headers

from lorogo_gateway.auth.principal import NotSignedIn
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.limits import TOKEN_BYTES_MAX

COOKIE: Final = "lorogo_token"

#: no characters that could end a header, and one spelling of each token: no `=` padding
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A token that is not verified yet."""

    text: str = field(repr=False)
    place: Literal["bearer", "cookie", "message"]


def presented(headers: Headers) -> PresentedToken | None:
    """Return the token of a request or a handshake; a bearer wins over the cookie. Raises NotSignedIn."""
    bearers = [found for one in headers.getlist("authorization") if (found := _bearer(one)) is not None]
    if bearers:
        return PresentedToken(_only(bearers, "Authorization headers"), "bearer")
    cookies = [value for one in headers.getlist("cookie") for value in _cookies(one)]
    return PresentedToken(_only(cookies, f"cookies {COOKIE}"), "cookie") if cookies else None


def in_message(data: bytes) -> PresentedToken:
    """Return the token in the `auth` field of a JoinRequest. Raises TokenRefused."""
    try:
        return PresentedToken(data.decode("ascii").strip(), "message")
    except UnicodeDecodeError:
        raise _no_token() from None


def shaped(text: str) -> str:
    """Return the text if it has the form of a JWT. Raises TokenRefused."""
    if len(text) > TOKEN_BYTES_MAX or _SHAPE.fullmatch(text) is None:
        raise _no_token()
    return text


def _no_token() -> TokenRefused:
    return TokenRefused("token-invalid", "the token cannot be used: it is not a JWT")


def _bearer(header: str) -> str | None:
    scheme, _, text = header.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


def _cookies(header: str) -> list[str]:
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [value.strip().strip('"') for name, _, value in pairs if name == COOKIE]


def _only(found: list[str], what: str) -> str:
    """Return the only token; several different ones may belong to different users. Raises NotSignedIn."""
    if len(set(found)) > 1:
        raise NotSignedIn("token-ambiguous", f"there are {len(found)} {what} with different tokens")
    return found[0]
