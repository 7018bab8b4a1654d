"""Periods of a chart: hours, days, weeks, months or years, a few hundred at most.

A period is identified by its start in local time without a zone; the report states the zone once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LABELS_MAX = 9  # that fit below a chart


class PeriodLength(StrEnum):
    """The length of a period; the value is its name."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"  # from Monday
    MONTH = "month"
    YEAR = "year"


def step_for(first: datetime, last: datetime) -> PeriodLength:
    """Return the shortest step with at most about a hundred periods (years: any number)."""
    days = (last - first).days
    for step, days_max in (
        (PeriodLength.HOUR, 3),
        (PeriodLength.DAY, 92),
        (PeriodLength.WEEK, 728),
        (PeriodLength.MONTH, 3285),
    ):
        if days <= days_max:
            return step
    return PeriodLength.YEAR


def start_of(at: datetime, step: PeriodLength) -> datetime:
    """Return the start of the period of a moment."""
    if step is PeriodLength.HOUR:
        return at.replace(minute=0, second=0, microsecond=0)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    match step:
        case PeriodLength.WEEK:
            return day - timedelta(days=day.weekday())
        case PeriodLength.MONTH:
            return day.replace(day=1)
        case PeriodLength.YEAR:
            return day.replace(month=1, day=1)
    return day


def after(start: datetime, step: PeriodLength) -> datetime:
    """Return the start of the next period."""
    match step:
        case PeriodLength.HOUR:
            return start + timedelta(hours=1)
        case PeriodLength.DAY:
            return start + timedelta(days=1)
        case PeriodLength.WEEK:
            return start + timedelta(days=7)
        case PeriodLength.MONTH:
            return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        case PeriodLength.YEAR:
            return start.replace(year=start.year + 1)


def starts(first: datetime, last: datetime, step: PeriodLength) -> list[datetime]:
    """Return every period from that of `first` to that of `last`."""
    found = [start_of(first, step)]
    while (following := after(found[-1], step)) <= last:
        found.append(following)
    return found


def day(at: datetime) -> str:
    """Format a date: 3 Nov 2026."""
    return f"{at.day} {at:%b} {at.year}"


def name(start: datetime, step: PeriodLength) -> str:
    """Return the period's name for a tooltip."""
    match step:
        case PeriodLength.HOUR:
            return f"{start:%a} {day(start)}, {start:%H}:00"
        case PeriodLength.DAY:
            return f"{start:%a} {day(start)}"
        case PeriodLength.WEEK:
            return f"week from {day(start)}"
        case PeriodLength.MONTH:
            return f"{start:%B} {start.year}"
        case PeriodLength.YEAR:
            return str(start.year)


def marks(periods: Sequence[datetime], step: PeriodLength) -> list[tuple[int, str]]:
    """Choose the periods with a label below the chart, at most nine; return their index and text."""
    for wanted, words in _CHOICES[step]:
        chosen = [(index, words(at)) for index, at in enumerate(periods) if wanted(at)]
        if 2 <= len(chosen) <= _LABELS_MAX:
            return chosen
    words = _CHOICES[step][0][1]
    every = -(-len(periods) // _LABELS_MAX)
    return [(index, words(at)) for index, at in enumerate(periods) if index % every == 0]


def _clock(at: datetime) -> str:
    return f"{at:%H}:00" if at.hour else f"{at:%a} {at.day}"


def _date(at: datetime) -> str:
    return f"{at.day} {at:%b}"


def _month(at: datetime) -> str:
    return f"{at:%b}" if at.month > 1 else str(at.year)


def _year(at: datetime) -> str:
    return str(at.year)


_CHOICES: dict[PeriodLength, list[tuple[Callable[[datetime], bool], Callable[[datetime], str]]]] = {
    PeriodLength.HOUR: [
        (lambda at: at.hour % 3 == 0, _clock),
        (lambda at: at.hour % 6 == 0, _clock),
        (lambda at: at.hour % 12 == 0, _clock),
    ],
    PeriodLength.DAY: [
        (lambda _: True, _date),
        (lambda at: at.weekday() == 0, _date),
        (lambda at: at.day in {1, 15}, _date),
    ],
    PeriodLength.WEEK: [
        (lambda at: at.day <= 7, _month),
        (lambda at: at.day <= 7 and at.month % 2 == 1, _month),
        (lambda at: at.day <= 7 and at.month % 3 == 1, _month),
    ],
    PeriodLength.MONTH: [
        (lambda at: at.month % 3 == 1, _month),
        (lambda at: at.month % 6 == 1, _month),
        (lambda at: at.month == 1, _year),
    ],
    PeriodLength.YEAR: [
        (lambda _: True, _year),
        (lambda at: at.year % 5 == 0, _year),
        (lambda at: at.year % 10 == 0, _year),
    ],
}
