"""A part of a trace, and what it leads to."""

import pytest

from lorogo_bench.content import traces
from lorogo_bench.errors import BenchError
from lorogo_bench.workload import Bench
from lorogo_chaos.fleet.traces import made


def test_a_part_knows_its_own_end() -> None:
    """Its edits are the first ones, and its text is what they lead to."""
    whole = made(300)
    part = traces.first(whole, 100)
    assert part.patches == whole.patches[:100] == made(100).patches
    assert part.end_content == made(100).end_content
    assert part.name == "the first 100 edits of made"


@pytest.mark.parametrize("count", [None, 300, 1000])
def test_all_of_it_is_itself(count: int | None) -> None:
    """With the end that it came with."""
    whole = made(300)
    assert traces.first(whole, count) is whole


def test_without_a_trace_nothing_is_made_up() -> None:
    """The caller of the benchmark must give a trace."""
    with pytest.raises(BenchError, match="no trace to replay"):
        Bench().trace(None)
