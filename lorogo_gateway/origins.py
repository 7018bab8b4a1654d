"""Checks of the headers Origin and Host: which pages may use this gateway, and which host names it has.

Browsers let any page open a WebSocket to any address and send simple requests anywhere, so the gateway must
check the Origin. Programs other than browsers send none.

DNS rebinding: a page of evil.example whose name resolves to 127.0.0.1 sends an Origin that matches its Host.
So a gateway on loopback also checks that the Host is one of its own names.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+))(?::[0-9]*)?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def check(origin: str) -> str:
    """Return the origin as browsers write it, without a default port. Raises ValueError."""
    wrong = f"{origin[:100]!r} is not an origin; write it as https://app.example.org"
    try:
        parts = urlsplit(origin.strip().rstrip("/").lower())
        port = parts.port
    except ValueError:
        raise ValueError(wrong) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise ValueError(wrong)
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" if port in (None, usual) else f"{parts.scheme}://{host}:{port}"


def origin_allowed(headers: Mapping[str, str], origins: Collection[str]) -> bool:
    """Return whether the request is of a program, the gateway's own page or an allowed origin."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") in (None, "same-origin", "none")
    if origin.lower() in origins:
        return True
    try:
        place = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    return origin != "null" and place == headers.get("host", "").lower()


def check_name(name: str) -> str:
    """Return the host name in lower case. Raises ValueError."""
    made = name.strip().lower().removesuffix(".")
    if _NAME.fullmatch(made) is None:
        raise ValueError(f"{name[:100]!r} is not a host name; write it as docs.example.org")
    return made


def host_allowed(host: str, bound: str, names: Collection[str], origins: Collection[str]) -> bool:
    """Return whether this Host may address a gateway that listens on `bound` and has these names.

    DNS rebinding cannot use an address or a name below localhost. Browsers always send a Host.
    """
    if not host or not (names or loopback(bound)):
        return True
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    name = (found[1] or found[2]).removesuffix(".")
    if _is_address(name) or name == "localhost" or name.endswith(".localhost"):
        return True
    return name in names or any(urlsplit(origin).hostname == name for origin in origins)


def loopback(bound: str) -> bool:
    """Return whether the address is reachable from this machine only."""
    return bound.lower() == "localhost" or (_is_address(bound) and ipaddress.ip_address(bound).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
