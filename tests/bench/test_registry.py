"""Names of workloads."""

import pytest

from lorogo_bench.errors import BenchError
from lorogo_bench.registry import WORKLOADS, find


def test_names_are_unique_and_can_be_typed() -> None:
    """Small letters and hyphens; words on one line."""
    names = [one.name for one in WORKLOADS]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isalpha() and name == name.lower() and name != "all" for name in names)
    assert all(one.words and "\n" not in one.words for one in WORKLOADS)


def test_each_is_found_once_in_the_order_asked_for() -> None:
    """`all` is every one."""
    assert [one.name for one in find(["throughput", "round-trip", "throughput"])] == [
        "throughput",
        "round-trip",
    ]
    assert find(["all"]) == list(WORKLOADS)
    assert find(["throughput", "all"])[0].name == "throughput"


def test_the_error_of_an_unknown_name_lists_the_known_ones() -> None:
    """Before anything is started."""
    with pytest.raises(BenchError, match=r"unknown workload 'nope': choose round-trip, throughput.* or all"):
        find(["round-trip", "nope"])
