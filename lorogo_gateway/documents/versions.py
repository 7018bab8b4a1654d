"""Parsing and formatting of times and versions over HTTP."""

import re
from collections.abc import Callable
from datetime import UTC

from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import (
    FutureMoment,
    TooOldMoment,
    check_past,
    invalid_moment,
    parse_time,
    parse_version,
    show_time,
)
from lorogo_gateway.problems import HttpProblem

#: a version, an age, or a time with its zone
PATTERN = (
    r"^(now|v[A-Za-z0-9_-]{1,4000}|([0-9]{1,9}(ms|[smhdw])){1,6}"
    r"|(19[7-9]|20[0-9])[0-9]-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9]))$"
)
SCHEMA = {
    "type": "string",
    "pattern": PATTERN,
    "description": "a version (v...), a time with its zone (2026-11-16T10:30:00Z), or an age (10m)",
}

_WHAT = re.compile(PATTERN)
_LOCAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]+)?")
_SPACE = re.compile(r"(T[0-9:.]+) ([0-9]{2}:[0-9]{2})")  # a `+` that was not percent-encoded


def parser(wall_ns: Callable[[], int]) -> Callable[[str], int | bytes]:
    """Return a parser of version texts to Unix nanoseconds or frontiers; it raises HttpProblem."""

    def parse(text: str) -> int | bytes:
        words = _SPACE.sub(r"\1+\2", text)
        if _LOCAL.fullmatch(words):
            detail = f"{text[:60]!r} has no zone: write a time with its zone, as in 2026-11-16T10:30:00Z"
            raise HttpProblem(400, "invalid-moment", detail)
        if _WHAT.fullmatch(words) is None:
            raise HttpProblem(400, "invalid-moment", invalid_moment(text, example="2026-11-16T10:30:00Z"))
        try:
            if words.startswith("v"):
                return parse_version(words)
            now_ns = wall_ns()
            moment = parse_time(words, now_ns=now_ns)
            check_past(moment, words, now_ns=now_ns, zone=UTC)
            return moment
        except InvalidMoment as error:
            if words.startswith("v"):
                raise HttpProblem(404, "unknown-version", str(error)) from None
            if isinstance(error, TooOldMoment):
                raise HttpProblem(404, "unknown-version", "the time is before every document") from None
            if isinstance(error, FutureMoment):
                raise HttpProblem(422, "invalid-moment", str(error)) from None
            raise HttpProblem(
                422, "invalid-moment", f"this day or time does not exist: {text[:60]!r}"
            ) from None

    return parse


def show(time_ns: int | None) -> str | None:
    """Return the time in ISO 8601, in UTC."""
    return None if time_ns is None else show_time(time_ns, UTC)
