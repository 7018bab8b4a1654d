"""Format counts, bytes, durations and latencies; compute the marks of an axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_THIN = "\N{NARROW NO-BREAK SPACE}"
_MICROSECONDS = ((1, "µs"), (1_000, "ms"), (1_000_000, "s"), (60_000_000, "min"))


def exact(value: int) -> str:
    """All digits: 1,234,567."""
    return f"{value:,}"


def count(value: float) -> str:
    """At most four digits: 950, 1,234, 12.3 k, 4.57 M."""
    if abs(value) < 10_000:
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P"))


def short(value: float) -> str:
    """Format a mark of an axis: 750, 1 k, 2.5 k."""
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P"))


def size(value: float) -> str:
    """Bytes: 512 B, 1.5 KiB, 20.3 GiB."""
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def duration(microseconds: float) -> str:
    """Format a duration: 180 µs, 2.4 ms, 1.2 s."""
    factor, unit = next(
        (pair for pair in reversed(_MICROSECONDS) if round(microseconds) >= pair[0]), _MICROSECONDS[0]
    )
    return f"{_three(microseconds / factor)}{_THIN}{unit}"


def share(part: float, whole: float) -> str:
    """Format a percentage; never 0 % of a part, nor 100 % of less than all."""
    if whole <= 0:
        return f"0{_THIN}%"
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return f"<{_THIN}0.01{_THIN}%"
    digits = 2 if percent < 1 else 1 if percent < 10 else 0
    text = f"{percent:.{digits}f}"
    if float(text) >= 100 and part < whole:
        return f">{_THIN}99{_THIN}%"
    return f"{text}{_THIN}%"


def plural(value: int, one: str, many: str = "") -> str:
    """1 document, 2 documents."""
    return f"{exact(value)} {one if value == 1 else many or one + 's'}"


def ticks(top: float, *, binary: bool = False, wanted: int = 4) -> list[float]:
    """Return round integer marks from 0 to the first that is at least `top`."""
    if not math.isfinite(top) or top <= 1:
        return [0.0, 1.0]
    base = 1024.0 ** max(0, int(math.log(top, 1024))) if binary else 1.0
    raw = top / base / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    multiples = (1, 2, 2.5, 5, 10) if power >= 10 or base > 1 else (1, 2, 5, 10)  # 2.5 would not be whole
    step = max(1.0, base * next(m * power for m in multiples if m * power >= raw * (1 - 1e-9)))
    return [step * index for index in range(math.ceil(top / step * (1 - 1e-12)) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten around a range, for a logarithmic axis; at least two."""
    first = math.floor(math.log10(max(low, 1)))
    last = max(math.ceil(math.log10(max(high, 1))), first + 1)
    return [10.0**power for power in range(first, last + 1)]


def quantile(counts: Sequence[int], fraction: float) -> float | None:
    """Estimate a quantile of ACK latency in microseconds, from counts by powers of two; None without ACKs.

    `counts[i]` ACKs took at least 2^(i-1) and less than 2^i. Within a power the estimate interpolates
    logarithmically, so it is exact within a factor of two.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank = fraction * total
    below = 0
    for power, number in enumerate(counts):
        if number and below + number >= rank:
            return float(2 ** (power - 1 + (rank - below) / number))
        below += number
    return float(2 ** (len(counts) - 1))


def _scaled(value: float, factor: int, units: tuple[str, ...]) -> str:
    power = 0
    scaled = float(value)
    while abs(scaled) >= factor * (1 - 5e-4) and power < len(units) - 1:
        scaled /= factor
        power += 1
    text = _three(scaled) if power else f"{scaled:.0f}"
    return f"{text}{_THIN}{units[power]}" if units[power] else text


def _three(value: float) -> str:
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
