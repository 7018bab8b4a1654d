"""Times and versions as people type them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_cli.doc.versions import parse_at, parse_past
from lorogo_client.errors import InvalidMoment
from lorogo_client.versions import (
    parse_time,
    parse_version,
    show_age,
    show_time,
    show_time_down,
    show_version,
)

SECOND = 1_000_000_000
NOW = 1_794_785_851 * SECOND + 123_456_789
BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("10m", NOW - 600 * SECOND),
        ("-10m", NOW - 600 * SECOND),
        ("10m ago", NOW - 600 * SECOND),
        ("-1h30m", NOW - 5400 * SECOND),
        ("2w1d", NOW - 15 * 86400 * SECOND),
        ("250ms", NOW - SECOND // 4),
        ("0s", NOW),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-16T10:30:00Z", 1_794_825_000 * SECOND),
        ("2026-11-16T10:30:00.000001Z", 1_794_825_000 * SECOND + 1000),
        ("2026-11-16T11:30:00+01:00", 1_794_825_000 * SECOND),
        ("2026-11-16T11:30", 1_794_825_000 * SECOND),  # without a zone: ours, here Berlin's
        ("2026-11-16", 1_794_783_600 * SECOND),
    ],
)
def test_a_time_is_iso_8601_or_how_long_ago(text: str, expected: int) -> None:
    """`--at` takes a calendar time, local if it names no zone, or an age with or without a minus."""
    assert parse_time(text, now_ns=NOW, zone=BERLIN) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "10",
        "10x",
        "m",
        "-",
        "--10m",
        "10m-",
        "1.5h",
        "2026-13-01",
        "25:00",
        "9" * 40,
        "1e9s",
    ],
)
def test_what_is_no_time_says_what_would_be_one(text: str) -> None:
    """A time that cannot be read is refused with examples."""
    with pytest.raises(InvalidMoment, match="2026-11-16T10:30"):
        parse_time(text, now_ns=NOW)


@pytest.mark.parametrize("text", ["1969-12-31T00:00:00Z", "99999w"])
def test_a_time_before_1970_is_refused(text: str) -> None:
    """The wire counts nanoseconds from 1970."""
    with pytest.raises(InvalidMoment, match="1970"):
        parse_time(text, now_ns=NOW)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-11-15T23:37:31.123Z", True),
        ("2026-11-15T23:37:36Z", True),  # by the clock of the server that dated a version
        ("2026-11-15T23:37:37Z", False),
        ("2026-11-16T00:37:37", False),  # Berlin's
        ("9999-12-31T23:59:59.999999Z", False),
    ],
)
def test_a_time_in_the_future_is_refused(text: str, good: bool) -> None:
    """`--at` of the future is a mistake, not the present; clocks may differ by 5 seconds."""
    for parse in (parse_at, parse_past):
        if good:
            parse(text, now_ns=NOW, zone=BERLIN)
            continue
        with pytest.raises(InvalidMoment) as caught:
            parse(text, now_ns=NOW, zone=BERLIN)
        assert str(caught.value) == (
            f"{text!r} is in the future: it is 2026-11-16T00:37:31.124+01:00 now; choose a past time"
        )


@given(st.binary(min_size=1, max_size=64))
def test_a_shown_version_is_accepted_back(frontiers: bytes) -> None:
    """A version from `doc history` can be given to `--at` and `revert`, and is never taken for a time."""
    text = show_version(frontiers)
    assert parse_version(text) == frontiers
    assert parse_at(text, now_ns=NOW) == frontiers
    assert text.startswith("v")
    assert all(character.isalnum() or character in "-_" for character in text)


@pytest.mark.parametrize("text", ["v", "v!", "vA", "version", "v AQ", "väh", "AQID"])
def test_what_is_no_version_says_where_they_are(text: str) -> None:
    """A version that cannot be read is refused with where to find one."""
    with pytest.raises(InvalidMoment) as caught:
        parse_version(text)
    assert str(caught.value) == f"{text!r} is not a version of this document; its history lists them"


@given(st.integers(min_value=0, max_value=4_000_000_000 * SECOND))
def test_a_shown_time_still_includes_its_moment(time_ns: int) -> None:
    """A time from `doc history`, given back, is not before the version that it stands beside."""
    back = parse_time(show_time(time_ns, UTC), now_ns=NOW)
    assert time_ns <= back < time_ns + SECOND // 1000
    assert datetime.fromisoformat(show_time(time_ns, UTC)).tzinfo is not None
    down = parse_time(show_time_down(time_ns, UTC), now_ns=NOW)
    assert time_ns - SECOND // 1000 < down <= time_ns


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (59.9, "59s"),
        (119, "119s"),
        (120, "2m"),
        (7200, "2h"),
        (200_000, "2d"),
        (-5, "in the future"),
    ],
)
def test_an_age_is_short(seconds: float, expected: str) -> None:
    """`status` shows ages in one unit; another machine's clock may be ahead."""
    assert show_age(seconds) == expected
