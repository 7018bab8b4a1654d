"""NATS timestamps (RFC 3339, up to nine decimals) as Unix nanoseconds, and back."""

from datetime import UTC, datetime
from functools import lru_cache

_SECOND_NS = 1_000_000_000


def parse_time_ns(text: str) -> int:
    """Parse into Unix nanoseconds. Raises ValueError for anything but an RFC 3339 time."""
    seconds, rest = text[:19], text[19:]
    fraction = 0
    if rest.startswith("."):
        digits = rest[1:].rstrip("Z")
        if "+" in digits or "-" in digits:
            cut = max(digits.rfind("+"), digits.rfind("-"))
            digits, rest = digits[:cut], digits[cut:]
        else:
            rest = "Z"
        if not digits.isascii() or not digits.isdigit():
            raise ValueError(f"{text!r} is not a time")
        fraction = int(digits[:9].ljust(9, "0"))
    return _seconds(seconds, rest) * _SECOND_NS + fraction


def format_time_ns(time_ns: int) -> str:
    """Format as NATS does: UTC, without trailing zeros of the fraction."""
    seconds, fraction = divmod(time_ns, _SECOND_NS)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    decimals = f"{fraction:09d}".rstrip("0")
    return f"{text}.{decimals}Z" if decimals else f"{text}Z"


@lru_cache(maxsize=64)  # messages of a batch share their second
def _seconds(text: str, zone: str) -> int:
    if len(text) != 19 or not zone:
        raise ValueError(f"{text + zone!r} is not a time")
    return int(datetime.fromisoformat(text + zone).timestamp())
