"""Times and versions in text form: parsing of user input, and display.

A version is `v` and base64url (lorogo_protocol/loro/shown_version.py). A time is ISO 8601 (without a zone:
local time) or how long ago: `10m`, `-1h30m`.
"""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta, tzinfo

from lorogo_client.errors import InvalidMoment
from lorogo_protocol.loro.shown_version import show_version, unknown_version

__all__ = [
    "FutureMoment",
    "TooOldMoment",
    "check_past",
    "invalid_moment",
    "moment",
    "parse_at",
    "parse_time",
    "parse_version",
    "show_age",
    "show_time",
    "show_time_down",
    "show_version",
]

_SECOND_NS = 1_000_000_000
_CLOCKS_NS = 5 * _SECOND_NS  # the clock of a server that dated a version may be ahead by this much
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "ms": _SECOND_NS // 1000,
    "s": _SECOND_NS,
    "m": 60 * _SECOND_NS,
    "h": 3600 * _SECOND_NS,
    "d": 24 * 3600 * _SECOND_NS,
    "w": 7 * 24 * 3600 * _SECOND_NS,
}
_PART = re.compile(r"([0-9]{1,9})(ms|[smhdw])")
_AGO = re.compile(rf"-?((?:{_PART.pattern})+)(?: ago)?")


class TooOldMoment(InvalidMoment):
    """A time before 1970, which no document reaches."""


class FutureMoment(InvalidMoment):
    """A time in the future, of which there is no state yet."""


def moment(at: datetime | str | int | bytes, *, now_ns: int) -> int | bytes:
    """Convert any form of a moment to Unix nanoseconds or frontiers.

    Raises InvalidMoment, also for text or a datetime in the future.
    """
    given: object = at
    if isinstance(given, datetime):
        given = given.isoformat()
    if isinstance(given, str):
        found = parse_at(given, now_ns=now_ns)
        if isinstance(found, int):
            check_past(found, given, now_ns=now_ns)
        return found
    if isinstance(given, int | bytes) and not isinstance(given, bool):
        return given
    raise InvalidMoment(
        f"{repr(at)[:60]} is not a moment: give a datetime, an age as in '10m', a version as in 'v...',"
        " Unix nanoseconds (int) or frontiers (bytes)"
    )


def parse_at(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int | bytes:
    """Parse a time (Unix nanoseconds) or a version (frontiers). Raises InvalidMoment."""
    if text.startswith("v"):
        return parse_version(text)
    return parse_time(text, now_ns=now_ns, zone=zone)


def parse_version(text: str) -> bytes:
    """Parse a displayed version into frontiers. Raises InvalidMoment."""
    try:
        body = text.removeprefix("v").encode("ascii")
        frontiers = base64.b64decode(body + b"=" * (-len(body) % 4), altchars=b"-_", validate=True)
        if not frontiers or show_version(frontiers) != text:
            raise ValueError
        return frontiers
    except (binascii.Error, ValueError):
        raise InvalidMoment(unknown_version(text)) from None


def parse_time(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int:
    """Parse a time into Unix nanoseconds; `zone` is for times without one (None: local).

    Raises InvalidMoment.
    """
    words = text.strip()
    if words == "now":
        return now_ns
    if ago := _AGO.fullmatch(words):
        moment = now_ns - sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(ago[1]))
    else:
        moment = _calendar(words, zone)
    if moment < 0:
        raise TooOldMoment(f"{_brief(text)} is before 1970")
    return moment


def check_past(time_ns: int, text: str, *, now_ns: int, zone: tzinfo | None = None) -> None:
    """Raise FutureMoment if the time, given as `text`, is in the future; the message has now in `zone`."""
    if time_ns > now_ns + _CLOCKS_NS:
        raise FutureMoment(
            f"{_brief(text)} is in the future: it is {show_time(now_ns, zone)} now; choose a past time"
        )


def _calendar(text: str, zone: tzinfo | None) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError, OSError):
        raise InvalidMoment(invalid_moment(text)) from None


def invalid_moment(text: str, *, example: str = "2026-11-16T10:30") -> str:
    """Return the error message for invalid text; `example` is a time in the caller's format."""
    return (
        f"{_brief(text)} is neither a time ({example}, or 10m for ten minutes ago)"
        " nor a version (v and letters, as the document's history shows)"
    )


def show_time(time_ns: int, zone: tzinfo | None = None) -> str:
    """Format as ISO 8601 with milliseconds, rounded up, so that a query at that time includes the moment."""
    return _shown(-(-time_ns // 1_000_000), zone)


def show_time_down(time_ns: int, zone: tzinfo | None = None) -> str:
    """Format as `show_time`, rounded down: a read from the displayed time on includes that moment."""
    return _shown(time_ns // 1_000_000, zone)


def _shown(milliseconds: int, zone: tzinfo | None) -> str:
    moment = (_EPOCH + timedelta(milliseconds=milliseconds)).astimezone(zone)
    return moment.isoformat(timespec="milliseconds")


def show_age(seconds: float) -> str:
    """Format a duration in its largest suitable unit."""
    if seconds < 0:
        return "in the future"  # another machine's clock
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _brief(text: str, chars_max: int = 60) -> str:
    return repr(text if len(text) <= chars_max else text[:chars_max] + "...")
