"""Which pages may use this gateway: its own, and those of origins that it was told of.

Browsers let any page open a WebSocket to any address, and send simple requests anywhere: only we can say no.
Programs send no Origin, and are not asked for one.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit


def check(origin: str) -> str:
    """The origin as browsers write it, without a usual port. Raises ValueError."""
    parts = urlsplit(origin.strip().rstrip("/").lower())
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or port == -1:
        raise ValueError(f"{origin[:100]!r} is not an origin, as https://app.example.org is")
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
    return origin != "null" and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
