"""docs/PERFORMANCE.md describes the existing workloads and figures."""

from pathlib import Path

import pytest

from lorogo_bench.registry import WORKLOADS, find
from tests.pages import commands, table, unknown_options

PAGE = (Path(__file__).parents[2] / "docs" / "PERFORMANCE.md").read_text(encoding="utf-8")
OPTIONS = {"--json", "--durability", "--plot", "--traces"}  # that have a value
NAMES = [workload.name for workload in WORKLOADS]


@pytest.mark.parametrize(
    "head", ["| workload | what it measures | limit, in the same run |", "| workload | goal | measured |"]
)
def test_every_workload_has_its_rows(head: str) -> None:
    """In the order of the list."""
    assert [row[0].strip("`") for row in table(PAGE, head)] == NAMES


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_every_command_can_be_typed(words: list[str]) -> None:
    """Its options exist, and so do the workloads that it names."""
    assert not unknown_options(words)
    values = {words[place + 1] for place, word in enumerate(words) if word in OPTIONS}
    find(word for word in words[2:] if not word.startswith("-") and word not in values)
