"""Units of work: what values cost, before they are read or written."""

import pytest

from lorogo_protocol.limits import LOOP_WORK_MAX
from lorogo_server.sandbox import work_meter
from lorogo_server.values import parts


@pytest.mark.parametrize("value", ["x" * 1024, b"x" * 1024, {"k" * 1024: 1}, [["x" * 1024]]])
def test_a_value_costs_at_least_its_characters(value: object) -> None:
    """Texts, bytes and keys, however deep they are."""
    assert work_meter.cost(value) >= 1024


@pytest.mark.parametrize("value", [{"$bytes": "AAAA" * LOOP_WORK_MAX}, {"k" * 1024: 1}])
def test_bytes_and_keys_are_counted_before_they_are_read(value: object) -> None:
    """Base64 and keys cost as many units as they have characters."""
    spent: list[int] = []
    parts.lift(value, 0, spent.append)
    assert sum(spent) >= len(str(value)) - 20
