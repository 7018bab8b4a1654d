"""The first place at which two values differ."""

import pytest

from lorogo_pipeline.audit.values import contrast

LONG = "0123456789" * 30


@pytest.mark.parametrize(
    ("left", "right", "path", "shown"),
    [
        ({"a": 1}, {"a": 2}, "$.a", ("1", "2")),
        ({"a": 1, "b": 1}, {"b": 2, "a": 1}, "$.b", ("1", "2")),
        ({"a": {"b c": [1, 2]}}, {"a": {"b c": [1, 3]}}, '$.a["b c"][1]', ("2", "3")),
        ({"a": 1}, {}, "$.a", ("1", "(nothing)")),
        ({}, {"a": None}, "$.a", ("(nothing)", "null")),
        ([1], [1, {"x": 1}], "$[1]", ("(nothing)", '{"x": 1}')),
        ([1, 2], [1], "$[1]", ("2", "(nothing)")),
        ({"a": 1}, {"a": True}, "$.a", ("1", "true")),
        ({"a": 1}, {"a": 1.0}, "$.a", ("1", "1.0")),
        ({"a": "x"}, {"a": ["x"]}, "$.a", ('"x"', '["x"]')),
        ("abc", "abd", "$", ('"abc"', '"abd"')),
        (LONG, LONG[:200] + "x", "$, character 200,", (f'…"{LONG[188:248]}"…', f'…"{LONG[188:200]}x"')),
        ({"a": list(range(99))}, {"a": 1}, "$.a", (f"{list(range(99))}"[:60] + "…", "1")),
    ],
)
def test_the_first_difference(left: object, right: object, path: str, shown: tuple[str, str]) -> None:
    """It is named by its path, with both values cut to a readable length; the other way round, too."""
    found, other = contrast(left, right), contrast(right, left)
    assert found is not None
    assert other is not None
    assert (found.path, (found.left, found.right)) == (path, shown)
    assert (other.path, (other.right, other.left)) == (path, shown)


@pytest.mark.parametrize("value", [{}, {"a": [1, {"b": None}]}, "x", 0.1 + 0.2, LONG])
def test_no_difference(value: object) -> None:
    """Equal values have none; floats that differ only in their last bits neither."""
    assert contrast(value, value) is None
    assert contrast({"n": 0.1 + 0.2}, {"n": 0.3}) is None
