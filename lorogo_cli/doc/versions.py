"""Parse and show times and versions of the command line; invalid ones raise CommandError."""

from datetime import tzinfo

from lorogo_cli.errors import CommandError
from lorogo_client import versions
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import show_age, show_time, show_time_down, show_version

__all__ = [
    "parse_at",
    "parse_past",
    "parse_time",
    "parse_version",
    "show_age",
    "show_time",
    "show_time_down",
    "show_version",
]


def parse_at(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int | bytes:
    """Parse a past time (Unix nanoseconds) or a version (frontiers). Raises CommandError."""
    return parse_version(text) if text.startswith("v") else parse_past(text, now_ns=now_ns, zone=zone)


def parse_past(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int:
    """Parse a time as `parse_time` does. Raises CommandError, also for one in the future."""
    moment = parse_time(text, now_ns=now_ns, zone=zone)
    try:
        versions.check_past(moment, text, now_ns=now_ns, zone=zone)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None
    return moment


def parse_version(text: str) -> bytes:
    """Parse a shown version into its frontiers. Raises CommandError."""
    try:
        return versions.parse_version(text)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None


def parse_time(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int:
    """Parse a time into Unix nanoseconds; `zone`: of times without one (None: local). Raises CommandError."""
    try:
        return versions.parse_time(text, now_ns=now_ns, zone=zone)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None
