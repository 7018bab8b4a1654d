"""JSON Patches for what people do."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import LoroDoc

from lorogo_cli.doc.patches import difference, same, set_value
from lorogo_cli.doc.paths import parse_path
from lorogo_cli.errors import CommandError
from lorogo_server.values.patch import apply_patch

DOCUMENT: dict[str, Any] = {
    "title": "Hi",
    "tasks": [{"what": "a"}, {"what": "b"}],
    "one": ["a"],
    "meta": {"n": 1, "none": None},
}

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~é", max_size=4)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)
# what a Loro document can be: texts, maps and lists at the top
roots = st.dictionaries(
    st.sampled_from("abcd"),
    st.text("xyz", max_size=4)
    | st.lists(values, max_size=4)
    | st.dictionaries(st.text("ab", max_size=2), values, max_size=3),
    max_size=4,
)


@pytest.mark.parametrize(
    ("path", "value", "operation", "exact"),
    [
        ("title", "New", ("add", "/title"), False),
        ("body", "text", ("add", "/body"), False),
        ("meta.n", 2, ("add", "/meta/n"), False),
        ("meta.new", 2, ("add", "/meta/new"), False),
        ("tasks.0", 5, ("replace", "/tasks/0"), False),
        ("tasks.0.what", "c", ("add", "/tasks/0/what"), False),
        ("tasks.2", 5, ("add", "/tasks/2"), True),
        ("tasks.-", 5, ("add", "/tasks/-"), False),
        ("title.-", "!", ("add", "/title/-"), False),
        ("title.0", "h", ("replace", "/title/0"), False),
    ],
)
def test_setting_what_is_there_is_one_operation(
    path: str, value: object, operation: tuple[str, str], exact: bool
) -> None:
    """A map's entry is set, a list's item replaced, the place behind the last filled."""
    setting = set_value(DOCUMENT, parse_path(path), value)
    assert setting.operations == [{"op": operation[0], "path": operation[1], "value": value}]
    assert setting.exact is exact


@pytest.mark.parametrize(
    ("path", "operation", "value"),
    [
        ("a.b.c", "/a", {"b": {"c": 1}}),
        ("meta.x.y", "/meta/x", {"y": 1}),
        ("list.0", "/list", [1]),
        ("list.-.name", "/list", [{"name": 1}]),
        ("tasks.2.sub.0", "/tasks/2", {"sub": [1]}),
    ],
)
def test_what_is_missing_on_the_way_is_made(path: str, operation: str, value: object) -> None:
    """Missing parents become maps, or lists where 0 or - follows; the result is exact for the current version
    only.
    """
    setting = set_value(DOCUMENT, parse_path(path), 1)
    assert setting.operations == [{"op": "add", "path": operation, "value": value}]
    assert setting.exact


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("count", 3, "a number is not allowed at the top level of a document: .* count.value"),
        ("flag", True, "true or false is not allowed at the top level"),
        ("nothing", None, "null is not allowed at the top level"),
        ("tasks.7", 1, "tasks is a list of 2 items: 7 is not an index in it; tasks.- appends"),
        ("one.2", 1, "one is a list of 1 item: 2 is not"),
        ("tasks.x.y", 1, "tasks is a list of 2 items: x is not an index in it"),
        ("meta.n.x", 1, "meta.n is a number: it cannot contain other values"),
        ("meta.none.x", 1, "meta.none is null"),
        ("title.x.y", 1, "title is text"),
    ],
)
def test_what_cannot_be_set_says_why(path: str, value: object, words: str) -> None:
    """A place that cannot take the value is refused in words of the document."""
    with pytest.raises(CommandError, match=words):
        set_value(DOCUMENT, parse_path(path), value)


@given(documents, documents)
def test_a_difference_leads_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applied by another implementation of RFC 6902, the patch makes the edited document of the old one."""
    operations = difference(before, after)
    assert same_deep(jsonpatch.apply_patch(copy.deepcopy(before), operations), after)
    assert (operations == []) == same_deep(before, after)


@given(roots, roots)
def test_a_difference_is_taken_by_the_server(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Applied to a Loro document, roots that change their type included; empty roots may stay behind."""
    doc = LoroDoc()
    apply_patch(doc, list(difference({}, before)))
    apply_patch(doc, list(difference(before, after)))
    shown: Any = doc.get_deep_value()
    assert same_deep(_filled(shown), _filled(after))


def test_a_list_is_edited_where_it_changed() -> None:
    """An item inserted at the front leaves the others, and who is editing them, alone."""
    before = {"tasks": [{"what": "a"}, {"what": "b"}, {"what": "c"}]}
    after = {"tasks": [{"what": "new"}, {"what": "a"}, {"what": "c"}]}
    assert difference(before, after) == [
        {"op": "remove", "path": "/tasks/1"},
        {"op": "add", "path": "/tasks/0", "value": {"what": "new"}},
    ]
    done = {"tasks": [{"what": "a"}, {"what": "b", "done": True}, {"what": "c"}]}
    assert difference(before, done) == [{"op": "add", "path": "/tasks/1/done", "value": True}]


def test_a_long_list_takes_bounded_work() -> None:
    """Thousands of items that all changed are replaced one by one, not compared each with each."""
    before, after = {"a": list(range(5000))}, {"a": [-n for n in range(5000)]}
    assert len(difference(before, after)) == 4999


@pytest.mark.parametrize("after", [[], "text", 3, None])
def test_a_document_that_is_no_map_is_refused(after: object) -> None:
    """The whole document is a map at its top level."""
    with pytest.raises(CommandError, match="a map at its top level"):
        difference({}, after)


def test_true_is_not_one() -> None:
    """Python thinks so; JSON does not."""
    assert not same(True, 1)
    assert same(1, 1.0)
    assert difference({"a": {"x": 1}}, {"a": {"x": True}}) == [
        {"op": "replace", "path": "/a/x", "value": True}
    ]


def same_deep(one: object, other: object) -> bool:
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same_deep(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(same_deep, one, other))
        case _:
            return same(one, other)


def _filled(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value not in ({}, [], "")}
