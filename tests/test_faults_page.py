"""docs/FAULTS.md names every fault, checker and mutation that there is, no other, and our numbers."""

import re
from pathlib import Path

import pytest

from lorogo_chaos.fault_run import FaultRunSettings
from lorogo_chaos.faults.catalogue import WORDS
from lorogo_chaos.processes import usage
from tests.pages import commands, table, unknown_options
from tests.simulation import finding, mutations, test_seeds, world
from tests.simulation.checks.on_disk import AnswersAreOnDisk
from tests.simulation.checks.served import ServedWhole
from tests.simulation.story import Story

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "FAULTS.md").read_text(encoding="utf-8")
CHECKERS = [*(checker.name for checker in Story().checkers), AnswersAreOnDisk.name, ServedWhole.name]


def test_every_fault_of_the_drill_is_there() -> None:
    """Each has a place in the table, once."""
    rows = table(PAGE, "| | what it does | what must hold |")
    named = [name for row in rows for name in re.findall(r"`(.+?)`", row[0])]
    assert sorted(named) == sorted(WORDS)


def test_every_checker_is_there() -> None:
    """Each has a row."""
    rows = table(PAGE, "| `tests/simulation/checks/` | |")
    assert sorted(row[0].strip("`") for row in rows) == sorted(CHECKERS)


def test_every_mutation_is_there() -> None:
    """Each has a row with its function and its promise, and who finds it is a checker."""
    rows = table(PAGE, "| mutation | where | breaks | seeds | found by |")
    made = [[one.name, f"`{one.where}`", one.breaks] for one in mutations.ALL]
    assert [row[:3] for row in rows] == made
    most = [one.begin + finding.SEEDS_MAX for one in mutations.ALL]  # the page counts from seed 0 on
    assert all(1 <= int(row[3]) <= seeds for row, seeds in zip(rows, most, strict=True))
    assert {row[4] for row in rows} <= set(CHECKERS)


def test_the_numbers_are_ours() -> None:
    """The figures of the page are those of the code."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    drill = FaultRunSettings()
    for words, number in {
        "2000 without a number": "\nSEEDS ?= 2000\n" in makefile,
        "`make test` runs 50, `make test-deep` 350 more": test_seeds.SEEDS_SHARED == (50, 350),
        "Within 150 virtual seconds": world.REST_SECONDS == 150,
        "within 60 seeds": finding.SEEDS_MAX == 60,
        "2 servers, 4 writers, 8 documents, 20 faults": (
            (drill.servers, drill.writers, drill.documents, drill.faults) == (2, 4, 8, 20)
        ),
        "after 30 seconds of warm-up": usage.WARM_UP_SECONDS == 30,
        "less than five minutes after its warm-up": usage.SHORT_SECONDS == 300,
    }.items():
        assert words in PAGE, words
        assert number, words


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_every_command_can_be_typed(words: list[str]) -> None:
    """Commands and options of the page exist, and so do the faults that they name."""
    assert not unknown_options(words)
    if "--only" in words:
        assert set(words[words.index("--only") + 1].split(",")) <= set(WORDS)
