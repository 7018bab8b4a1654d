"""Which pages may use this gateway: its own, and those of origins that it was told of.

Browsers let any page open a WebSocket to any address, and send simple requests anywhere: only we can say no.
Programs send no Origin, and are not asked for one.

A page of evil.example whose name points at 127.0.0.1 by now looks like our own: Origin and Host agree. So a
gateway on loopback also asks whether it goes by the name that the request is for.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+))(?::[0-9]*)?")
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def check(origin: str) -> str:
    """The origin as browsers write it, without a usual port. Raises ValueError."""
    wrong = f"{origin[:100]!r} is not an origin, as https://app.example.org is"
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


def welcome(headers: Mapping[str, str], origins: Collection[str]) -> bool:
    """Whether what sends these headers may use us: no browser, our own page, or one of these origins."""
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
    """The name of a host, in small letters. Raises ValueError."""
    made = name.strip().lower().removesuffix(".")
    if _NAME.fullmatch(made) is None:
        raise ValueError(f"{name[:100]!r} is not the name of a host, as docs.example.org is")
    return made


def ours(host: str, bound: str, names: Collection[str], origins: Collection[str]) -> bool:
    """Whether a request with this Host is for a gateway that listens on `bound` and has these names.

    No page can have an address, or a name below localhost, point elsewhere. Without a Host it is no browser.
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
    """Whether only this machine can reach what listens there."""
    return bound.lower() == "localhost" or (_is_address(bound) and ipaddress.ip_address(bound).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
