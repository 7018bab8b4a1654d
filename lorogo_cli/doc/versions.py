"""Times and versions as people type them, and as we show them; what is wrong with them is a Problem."""

from datetime import tzinfo

from lorogo_cli.errors import CommandError
from lorogo_client import versions
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import show_age, show_time, show_time_down, show_version

__all__ = [
    "parse_at",
    "parse_time",
    "parse_version",
    "show_age",
    "show_time",
    "show_time_down",
    "show_version",
]


def parse_at(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int | bytes:
    """A moment (Unix nanoseconds) or a version (frontiers). Raises Problem."""
    try:
        return versions.parse_at(text, now_ns=now_ns, zone=zone)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None


def parse_version(text: str) -> bytes:
    """The frontiers that a shown version stands for. Raises Problem."""
    try:
        return versions.parse_version(text)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None


def parse_time(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int:
    """Unix nanoseconds; `zone` is for times without one (None: this machine's). Raises Problem."""
    try:
        return versions.parse_time(text, now_ns=now_ns, zone=zone)
    except InvalidMoment as error:
        raise CommandError(str(error)) from None
