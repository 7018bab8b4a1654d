"""The table of limits in docs/LIMITS.md says what the code does, and names a test for each row."""

import importlib
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
METRICS = set(
    re.findall(r"^\| `(lorogo_[a-z0-9_]+)`", (ROOT / "docs" / "METRICS.md").read_text("utf-8"), re.MULTILINE)
)


def rows() -> list[list[str]]:
    part = PAGE.partition("\n## Servers\n")[0]
    found = [line.strip("|").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in found[1:]]


ROWS = rows()
TESTS = {
    f"{path.stem}::{name}"
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
}


def test_there_is_a_table() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_is_true(row: list[str]) -> None:
    """Its setting exists and has that default, what is counted exists, and so does its test."""
    _, default, setting, answer, counted, test = row
    name = re.match(r"`([\w.]+)`", setting)
    assert name is not None
    owner, _, field = name[1].rpartition(".")
    value = getattr(SETTINGS[owner] if owner in SETTINGS else importlib.import_module(owner), field)
    number, _, unit = default.partition(" ")
    assert float(number.replace(",", "")) * UNITS[unit] == value
    assert answer
    for label in re.findall(r"`([\w-]+)`", counted):
        assert label in METRICS or label in set(LimitReason), label
    assert test.strip("`") in TESTS


def test_every_reason_of_a_refusal_stands_in_it() -> None:
    told = {label for row in ROWS for label in re.findall(r"`([\w-]+)`", row[4])}
    assert set(LimitReason) <= told


def test_every_limit_of_the_gateway_stands_in_it() -> None:
    """Those that somebody outside can pass, by address and by token."""
    told = {name for row in ROWS for name in re.findall(r"`G\.(\w+)`", row[2])}
    limits = {name for name in GatewaySettings.__slots__ if name.startswith(("address_", "token_", "auth_"))}
    assert limits
    assert limits <= told
