"""Times and versions that users name to see a past state."""

from datetime import tzinfo

from lorogo_client.versions import check_past, parse_time, parse_version


def parse_at(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int | bytes:
    """Parse a past time (Unix nanoseconds) or a version (frontiers). Raises InvalidMoment."""
    return parse_version(text) if text.startswith("v") else parse_past(text, now_ns=now_ns, zone=zone)


def parse_past(text: str, *, now_ns: int, zone: tzinfo | None = None) -> int:
    """Parse a time as `parse_time` does. Raises InvalidMoment, also for one in the future."""
    moment = parse_time(text, now_ns=now_ns, zone=zone)
    check_past(moment, text, now_ns=now_ns, zone=zone)
    return moment
