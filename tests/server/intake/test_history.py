"""Dated versions: by the stream's clock, sparser with age, never telling of the future."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import MalformedMessage
from lorogo_server.intake import history
from lorogo_server.intake.history import FINEST_NS, DatedVersion, History

_SECOND = 1_000_000_000
_DAY = 24 * 3600 * _SECOND


def grown(times: list[int]) -> tuple[History, bytes]:
    """A history of updates at these times; the heads after update n are its number."""
    made, heads = History(), b""
    for number, time_ns in enumerate(times, start=1):
        ended = made.before_apply(time_ns, lambda heads=heads: heads)  # type: ignore[misc]  # bound at once
        heads = str(number).encode()
        made.after_apply(ended, time_ns, number)
    return made, heads


def test_a_version_holds_nothing_younger_than_its_time() -> None:
    """For a time inside a growing second, the answer is the version before it."""
    start = 1000 * _DAY
    tenth = _SECOND // 10
    made, heads = grown([start, start + tenth, start + 9 * _SECOND, start + 9 * _SECOND + tenth])
    assert made.versions(heads) == [
        DatedVersion(start + tenth, b"2", 2),
        DatedVersion(start + 9 * _SECOND + tenth, b"4", 4),
    ]
    assert made.at(start + 9 * _SECOND, heads) == DatedVersion(start + tenth, b"2", 2)
    assert made.at(start + 10 * _SECOND, heads) == DatedVersion(start + 9 * _SECOND + tenth, b"4", 4)
    assert made.at(start, heads) is None


def test_nothing_yet() -> None:
    """An empty document has no version."""
    assert History().versions(b"") == []
    assert History().at(1, b"") is None


@given(st.lists(st.integers(min_value=0, max_value=60 * _DAY), max_size=60), st.integers(0, 60 * _DAY))
def test_any_version_has_the_updates_up_to_its_time(gaps: list[int], asked: int) -> None:
    """Whatever the times: a version's heads are those after the last update that is not younger."""
    times = sorted(gaps)
    made, heads = grown(times)
    found = made.at(asked, heads)
    if found is not None:
        assert found.time_ns <= asked
        number = int(found.frontiers)
        assert times[number - 1] == found.time_ns
        assert all(time_ns >= found.time_ns for time_ns in times[number:])


def test_thinning_keeps_the_list_short_and_the_newest_there() -> None:
    """A month of edits every minute becomes a few hundred versions; each day keeps one."""
    now = 2000 * _DAY
    made, heads = grown([now - 30 * _DAY + number * 61 * _SECOND for number in range(42_000)])
    made.thin(now)
    versions = made.versions(heads)
    assert len(versions) < 900
    assert len(history.encode(versions)) < 64_000
    days = {version.time_ns // _DAY for version in versions}
    assert len(days) >= 29
    before = list(versions)
    made.thin(now)
    assert made.versions(heads) == before
    made.drop_before(now - 7 * _DAY)
    assert all(version.time_ns >= now - 7 * _DAY for version in made.versions(heads))


def test_it_travels_in_a_snapshots_metadata() -> None:
    """Encoded, decoded, equal; nonsense is an error."""
    versions = [DatedVersion(5, b"\x00\xff", 7), DatedVersion(6, b"", 8)]
    assert history.decode(history.encode(versions)) == versions
    for nonsense in ("", "{", "[1]", '[["a","b","c"]]', '[[1,"!!",2]]', '[[1e999,"",2]]', "[" * 100_000):
        with pytest.raises(MalformedMessage):
            history.decode(nonsense)


def test_the_finest_grain_is_a_second() -> None:
    """Two commands of a person are two versions."""
    assert FINEST_NS == _SECOND
