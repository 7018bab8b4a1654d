"""Time is cut into periods without gaps, few enough for a chart."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_pipeline.report.periods import PeriodLength, after, marks, name, start_of, starts, step_for

moments = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2262, 1, 1))  # noqa: DTZ001 - local


@given(moments, st.timedeltas(timedelta(0), timedelta(days=4000)))
def test_periods_cover_the_time(first: datetime, length: timedelta) -> None:
    """The first period holds the first moment, the last the last, each begins where the one before ends."""
    last = min(first + length, datetime(2262, 1, 1))  # noqa: DTZ001 - local
    step = step_for(first, last)
    found = starts(first, last, step)
    assert found[0] <= first < after(found[0], step)
    assert found[-1] <= last < after(found[-1], step)
    assert [after(one, step) for one in found[:-1]] == found[1:]
    assert all(start_of(one, step) == one for one in found)
    assert len(found) <= 112
    assert 1 <= len(marks(found, step)) <= 9
    assert len({name(one, step) for one in found}) == len(found)


@pytest.mark.parametrize(
    ("days", "step"),
    [
        (0, PeriodLength.HOUR),
        (3, PeriodLength.HOUR),
        (4, PeriodLength.DAY),
        (92, PeriodLength.DAY),
        (400, PeriodLength.WEEK),
        (1000, PeriodLength.MONTH),
        (9000, PeriodLength.YEAR),
    ],
)
def test_longer_times_have_longer_periods(days: int, step: PeriodLength) -> None:
    """A day is shown by hours, a quarter by days, a year by weeks, then months, then years."""
    first = datetime(2026, 1, 1)  # noqa: DTZ001 - local
    assert step_for(first, first + timedelta(days=days)) is step
