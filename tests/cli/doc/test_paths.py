"""Paths within a document."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_cli.doc.paths import json_path, parse_path, pointer
from lorogo_cli.errors import CommandError
from lorogo_server.values.query import query

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=0, max_size=8)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("title", ["title"]),
        ("tasks.0.done", ["tasks", "0", "done"]),
        ("/tasks/0/done", ["tasks", "0", "done"]),
        ("/a.b/c", ["a.b", "c"]),
        ("/a~1b/m~0n", ["a/b", "m~n"]),
        ("/", [""]),
        ("body.-", ["body", "-"]),
    ],
)
def test_a_path_is_dotted_or_a_json_pointer(text: str, tokens: list[str]) -> None:
    """A path has dots; names that contain dots need a JSON pointer."""
    assert parse_path(text) == tokens


@pytest.mark.parametrize("text", ["", ".", "a..b", ".a", "a.", "/a~2", "/~", "$.a", "$"])
def test_what_is_no_path_is_refused(text: str) -> None:
    """A path that names nothing, or perhaps many places, is refused before anything is sent."""
    with pytest.raises(CommandError):
        parse_path(text)


@given(st.lists(names, min_size=1, max_size=5))
def test_a_pointer_reads_back(tokens: list[str]) -> None:
    """Any names, however odd, survive as a JSON pointer."""
    assert parse_path(pointer(tokens)) == tokens


@pytest.mark.parametrize(
    ("document", "text", "found"),
    [
        ({"a": [10, 20]}, "a.1", [20]),
        ({"a": {"1": "one"}}, "a.1", ["one"]),
        ({"a": {"x'y\"z": 5}}, "/a/x'y\"z", [5]),
        ({"a": 1}, "b", []),
        ({"a": [{"b": 1}, {"b": 2}]}, "$.a[*].b", [1, 2]),
        ({"ü": {"": 3}}, "/ü/", [3]),
    ],
)
def test_a_path_asks_the_server_for_that_place(document: object, text: str, found: list[object]) -> None:
    """A number in a path is a place in a list or a name in a map, whichever is there."""
    assert query(document, [json_path(text)]) == [found]
