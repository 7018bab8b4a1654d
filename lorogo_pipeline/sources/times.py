"""Parse times in options of sources."""

from datetime import UTC, datetime, timedelta

from lorogo_pipeline.errors import BadOption

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time_ns(text: str) -> int:
    """Parse ISO 8601 (without a zone: UTC) or Unix nanoseconds; return Unix nanoseconds."""
    words = text.strip()
    if words.isascii() and words.isdigit():
        return int(words)
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise BadOption(
            f"{text!r} is not a time: write 2026-11-16T10:30:00Z, or nanoseconds since 1970"
        ) from None
    return datetime_ns(moment)


def datetime_ns(moment: datetime) -> int:
    """Convert to Unix nanoseconds; without a zone it is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1000
