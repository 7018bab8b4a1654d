"""The output of `lorogo pipeline sql --json`: JSON that any program reads."""

import json
from datetime import UTC, datetime

import pytest

from lorogo_cli.pipeline.pipeline_jobs import _json

pytest.importorskip("pyspark")


def test_every_value_is_json() -> None:
    """Bytes, infinities and times have the form that the tables give them, inside records and lists, too."""
    value = {"at": datetime(2026, 1, 1, tzinfo=UTC), "of": [b"ab", float("nan"), {"n": float("inf")}, None]}
    written = json.dumps(_json(value), allow_nan=False)
    assert json.loads(written) == {
        "at": "2026-01-01T00:00:00+00:00",
        "of": [{"$bytes": "YWI="}, "NaN", {"n": "Infinity"}, None],
    }
