"""The table of limits in docs/LIMITS.md equals the code's limits, and each row has a test."""

import importlib
import json
import re
from pathlib import Path

import pytest

from lorogo_client import ClientSettings
from lorogo_gateway.limits.reasons import LimitReason
from lorogo_gateway.settings import GatewaySettings
from lorogo_server.settings import ServerSettings

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "LIMITS.md").read_text(encoding="utf-8")
SETTINGS = {"G": GatewaySettings(), "S": ServerSettings(), "C": ClientSettings()}
UNITS = {"": 1, "s": 1, "bytes": 1, "KiB": 1024, "MiB": 1024 * 1024}
METRICS = {
    name
    for cell in re.findall(
        r"^\| (`lorogo_[^|]+) \|", (ROOT / "docs" / "METRICS.md").read_text("utf-8"), re.MULTILINE
    )
    for name in re.findall(r"`(\w+)`", cell)
}


TEST_OF = json.loads(
    (ROOT / "tests" / "limits.json").read_text("utf-8")
)  # the test of each setting or constant


def rows() -> list[list[str]]:
    part = PAGE.partition("\n## Servers\n")[0]
    found = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in found[1:]]


def names(row: list[str]) -> list[str]:
    """Return the settings and constants of a row."""
    return re.findall(r"`([\w.]+)`", row[2])


def labels(row: list[str]) -> list[str]:
    """Return what counts the refusals of a row: the names in its parentheses."""
    return [label for part in re.findall(r"\((.*?)\)", row[3]) for label in re.findall(r"`([\w-]+)`", part)]


ROWS = rows()
TESTS = {
    f"{path.stem}::{name}"
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
}


def test_there_is_a_table() -> None:
    assert len(TEST_OF) > 70
    assert {name for row in ROWS for name in names(row)} == set(TEST_OF)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_is_true(row: list[str]) -> None:
    """Its settings exist and have these defaults, what is counted exists, and so do its tests."""
    _, default, _, answer = row
    defaults = default.split("; ")
    assert len(defaults) == len(names(row)) > 0
    for shown, name in zip(defaults, names(row), strict=True):
        owner, _, field = name.rpartition(".")
        value = getattr(SETTINGS[owner] if owner in SETTINGS else importlib.import_module(owner), field)
        number, _, unit = shown.partition(" ")
        assert float(number.replace(",", "")) * UNITS[unit] == value
        assert TEST_OF[name] in TESTS
    assert answer
    for label in labels(row):
        assert label in METRICS or label in set(LimitReason), label


def test_every_reason_of_a_refusal_stands_in_it() -> None:
    named = {label for row in ROWS for label in labels(row)}
    assert set(LimitReason) <= named


def test_every_limit_of_the_gateway_stands_in_it() -> None:
    """The table has every limit that an outside client can exceed, by address and by token."""
    named = {name.removeprefix("G.") for row in ROWS for name in names(row) if name.startswith("G.")}
    limits = {name for name in GatewaySettings.__slots__ if name.startswith(("address_", "token_", "auth_"))}
    assert limits
    assert limits <= named
