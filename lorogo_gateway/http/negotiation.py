"""Content negotiation: media types of bodies and responses (RFC 9110). Pure."""

import re
from collections.abc import Collection, Sequence

from lorogo_gateway.problems import HttpProblem

_CHARS_MAX = 4_000  # of Accept
_QUALITY = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?", re.ASCII)
_UTF8 = ("utf-8", "utf8")


def body_type(content_type: str, offered: Collection[str]) -> str:
    """Return the media type of a body, one of those offered. Raises HttpProblem 415."""
    kind, _, rest = content_type.partition(";")
    kind = kind.strip().lower()
    if kind not in offered:
        wrong = f"{kind[:60]!r} is not supported" if kind else "the body has no Content-Type"
        raise HttpProblem(415, "unsupported-media-type", f"{wrong}; send {' or '.join(offered)}")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in _UTF8:
            detail = f"charset {charset[:30]!r} is not supported; send UTF-8"
            raise HttpProblem(415, "unsupported-media-type", detail)
    return kind


def best(accept: str | None, offered: Sequence[str]) -> str:
    """Return the media type of the response: the best of those offered. Raises HttpProblem 406."""
    if not offered or accept is None or not accept.strip():
        return offered[0] if offered else ""
    ranges = [_range(text) for text in accept[:_CHARS_MAX].split(",") if text.strip()]
    ranked = [(_quality(kind, ranges), -at) for at, kind in enumerate(offered)]
    quality, at = max(ranked)
    if quality <= 0:
        raise HttpProblem(406, "not-acceptable", f"the response is available as {' or '.join(offered)}")
    return offered[-at]


def _range(text: str) -> tuple[str, float]:
    """Return a media range and its quality; an invalid quality counts as 1, as in most servers."""
    kind, *parameters = text.split(";")
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            number = _QUALITY.fullmatch(value.strip())
            quality = float(number[0]) if number else 1.0
    return kind.strip().lower(), quality


def _quality(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches."""
    whole = kind.partition("/")[0] + "/*"
    for wanted in (kind, whole, "*/*"):
        found = [quality for name, quality in ranges if name == wanted]
        if found:
            return max(found)
    return 0.0
