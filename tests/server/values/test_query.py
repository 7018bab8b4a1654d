"""JSONPath over a document's value, its bounds, and the way from Loro values to JSON and back."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_protocol.loro.crdt import Replica
from lorogo_server.sandbox.work_meter import unmetered
from lorogo_server.values import query as queries
from lorogo_server.values.document_value import TooDeep
from lorogo_server.values.parts import CounterPart, ValueProblem, fill, lift, plain
from lorogo_server.values.query import QueryError, query, to_json

STORE = {
    "store": {
        "book": [
            {"category": "reference", "author": "Rees", "title": "Sayings", "price": 8.95},
            {"category": "fiction", "author": "Waugh", "title": "Sword", "price": 12.99},
            {"category": "fiction", "author": "Melville", "title": "Moby", "isbn": "0-553", "price": 8.99},
            {"category": "fiction", "author": "Tolkien", "title": "Rings", "isbn": "0-395", "price": 22.99},
        ],
        "bicycle": {"color": "red", "price": 399},
    }
}
BOOKS: list[Any] = STORE["store"]["book"]  # type: ignore[assignment]  # the dict above is mixed


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("$", [STORE]),
        ("$.store.book[*].author", ["Rees", "Waugh", "Melville", "Tolkien"]),
        ("$..author", ["Rees", "Waugh", "Melville", "Tolkien"]),
        ("$.store.*", [BOOKS, STORE["store"]["bicycle"]]),
        ("$.store..price", [8.95, 12.99, 8.99, 22.99, 399]),
        ("$..book[2]", [BOOKS[2]]),
        ("$..book[2].publisher", []),
        ("$..book[-1]", [BOOKS[3]]),
        ("$..book[0,1]", BOOKS[:2]),
        ("$..book[:2]", BOOKS[:2]),
        ("$..book[?@.isbn]", BOOKS[2:]),
        ("$..book[?@.price < 10].title", ["Sayings", "Moby"]),
        ("$..book[?@.price < $.store.book[1].price && @.category == 'fiction'].title", ["Moby"]),
        ("$.store[?length(@) == 4][0].title", ["Sayings"]),
        ("$.store[?count(@.*) == 2].color", ["red"]),
        ("$.store.book[?value(@..isbn) == '0-395'].title", ["Rings"]),
        ("$.store.book[?@ == $.store.book[0]].title", ["Sayings"]),
        ("$['store']['bicycle']['color','color']", ["red", "red"]),
        ("$.nope", []),
    ],
)
def test_an_expression_selects_what_rfc_9535_says(expression: str, expected: list[object]) -> None:
    """The examples of the standard, and each of its selectors and functions."""
    assert query(STORE, [expression]) == [expected]


def test_each_expression_has_its_own_answer() -> None:
    """The answers come in the order of the questions; none at all is fine."""
    assert query(STORE, ["$..color", "$.nope", "$..isbn"]) == [["red"], [], ["0-553", "0-395"]]
    assert query(STORE, []) == []


@pytest.mark.parametrize("value", ["[1]", "plain text {", 5, None, True, [1, "a"], b"ab", math.inf])
def test_any_value_can_be_asked(value: object) -> None:
    """A document that is one string is a string, not JSON to be parsed."""
    assert query(value, ["$"]) == [[to_json(value)]]


def test_answers_are_plain_json() -> None:
    """The result is made of dict, list and scalars only, with bytes in their JSON form."""
    (found,) = query({"a": {"b": b"ab", "c": [1, {}]}}, ["$..*"])
    assert json.loads(json.dumps(found)) == found
    assert {type(item) for item in found} == {dict, list, str, int}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "found"),
        ("store", "expected"),
        ("$.", ""),
        ("$[", "unexpected end"),
        ("$.a | $.b", "unexpected"),
        ("$.a & $.b", "unexpected"),
        ("^.a", "unexpected"),
        ("$.~", "unexpected"),
        ("$[?@.a =~ /x/]", "unexpected"),
        ("$[?isinstance(@.a, 'str')]", "isinstance"),
        ("$[?nope(@.a)]", "nope"),
        ("$[?count(1) > 1]", "count"),
        ("$[?@..a == 1]", "singular"),
        ("$[99999999999999999999]", "range"),
        ("$[?match(@.a, '(a+)+b')]", "disabled"),
        ("$[?search(@.a, '(a+)+b')]", "disabled"),
        ("$" + ".a" * 500, "longer than 1000"),
        ("$[?" + "!" * 900 + "@.a]", "nested too deep"),
        ("$ ", "whitespace"),
        ("$[?@.a == 1e400]", "infinity"),
    ],
)
def test_a_bad_expression_is_named_with_its_problem(expression: str, problem: str) -> None:
    """The error quotes the expression, shortened, and has the problem."""
    with pytest.raises(QueryError) as caught:
        query(STORE, ["$.store", expression])
    error = caught.value
    assert error.code == "invalid-request"
    assert error.expression == expression
    assert problem in error.problem
    assert repr(expression)[1:50].rstrip("'\"") in str(error)
    assert len(str(error)) < 500


def test_the_list_of_expressions_is_bounded() -> None:
    """A hundred questions at once are answered, one more is not; a lone string is no list."""
    assert query(STORE, ["$..color"] * 100) == [["red"]] * 100
    with pytest.raises(QueryError, match="101 expressions are more than 100"):
        query(STORE, ["$"] * 101)
    with pytest.raises(QueryError, match="list of strings"):
        query(STORE, "$")
    with pytest.raises(QueryError, match="list of strings"):
        query(STORE, ["$", 1])  # type: ignore[list-item]


MANY = {
    "list": [{"n": n, "s": "x" * 10} for n in range(200)],
    "twin": [{"n": n, "s": "x" * 10} for n in range(200)],
}


@pytest.mark.parametrize(
    "expression",
    [
        "$..[?count($..*) > 0]",
        "$..[?count(@..[?count($..*) > 0]) > 0]",
        "$" + "..*" * 30 + "..nope",
        "$" + "[*,*]" * 40 + ".nope",
        "$.list[*,*,*,*,*,*,*,*][?$.list == $.twin].nope",
    ],
)
def test_a_question_cannot_occupy_the_server(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work inside filters, and work that selects nothing, counts like any other."""
    monkeypatch.setattr(queries, "VISITS_MAX", 5_000)
    value: Any = MANY
    for _ in range(20):
        value = {"a": value, "list": MANY["list"], "twin": MANY["twin"]}
    with pytest.raises(QueryError, match="visits more than 5000"):
        query(value, [expression])


def test_visits_count_over_all_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred cheap questions may together be too much."""
    monkeypatch.setattr(queries, "VISITS_MAX", 10_000)
    assert len(query(MANY, ["$.list[*].n"])[0]) == 200
    with pytest.raises(QueryError, match="visits more"):
        query(MANY, ["$.list[*].n"] * 100)


def test_results_are_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many small results nor a few that contain each other can fill the memory."""
    monkeypatch.setattr(queries, "RESULTS_MAX", 399)
    assert len(query(MANY, ["$.list[*]"])[0]) == 200
    with pytest.raises(QueryError, match="selects more than 399"):
        query(MANY, ["$.list[*]", "$.twin[*]"])
    monkeypatch.setattr(queries, "RESULT_CHARS_MAX", 30_000)
    assert query(MANY, ["$"]) == [[MANY]]
    with pytest.raises(QueryError, match="larger than 30000"):
        query(MANY, ["$", "$.list", "$.twin", "$"])


def nested(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = {"a": value}
    return value


def test_a_document_nested_too_deep_is_refused_not_crashed_on() -> None:
    """Two hundred levels are read; more are an error."""
    assert query(nested(200), ["$..a"])[0][-1] == "end"
    for levels in (201, 100_000):
        with pytest.raises(TooDeep, match="nested deeper than 200"):
            query(nested(levels), ["$"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"ab", {"$bytes": "YWI="}),
        ([b"", {"x": b"\xff"}], [{"$bytes": ""}, {"x": {"$bytes": "/w=="}}]),
        (math.inf, {"$float": "Infinity"}),
        (-math.inf, {"$float": "-Infinity"}),
        (math.nan, {"$float": "NaN"}),
        (2**63 - 1, 2**63 - 1),
        ("é😀", "é😀"),
        (True, True),
        (None, None),
    ],
)
def test_a_value_has_a_json_form(value: object, expected: object) -> None:
    """Bytes and infinities are written as maps with one key; everything else is itself."""
    assert to_json(value) == expected
    assert json.loads(json.dumps(to_json(value), allow_nan=False)) == expected
    assert repr(from_json(expected)) == repr(value)


def from_json(value: object) -> object:
    """What a patch writes for this value."""
    return plain(lift(value, 0, unmetered))


def test_a_counter_stays_a_float() -> None:
    """A counter at three is 3.0 and a number three in a map is 3."""
    doc = Replica().doc
    fill(doc.get_counter("counter"), CounterPart(3.0))
    doc.get_map("map").insert("three", 3)
    assert json.dumps(query(doc.get_deep_value(), ["$.counter", "$.map.three"])) == "[[3.0], [3]]"


def test_a_container_id_is_shown() -> None:
    """A shallow value names its containers."""
    doc = Replica().doc
    doc.get_map("map").insert("k", 1)
    shown = to_json(doc.get_value())
    assert isinstance(shown, dict)
    assert "map" in shown["map"]["$container"]


@pytest.mark.parametrize(
    "value", [{"$bytes": "?"}, {"$bytes": "YWI"}, {"$float": "1"}, [{"a": {"$bytes": "é"}}]]
)
def test_a_wrong_json_form_is_an_error(value: object) -> None:
    """A map in the form of bytes that is not one is refused."""
    with pytest.raises(ValueProblem, match=r"\$(bytes|float)"):
        from_json(value)


@pytest.mark.parametrize(
    "value", [{"$bytes": 1}, {"$bytes": "?", "more": 1}, {"$other": "x"}, {"$container": "x"}]
)
def test_other_maps_with_a_dollar_are_just_maps(value: object) -> None:
    """Only the exact forms mean something."""
    assert from_json(value) == value


LORO = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.binary(max_size=5),
    ),
    lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=3), v, max_size=4),
    max_leaves=20,
)


@given(LORO)
def test_to_json_and_back_changes_nothing(value: object) -> None:
    """Every Loro value survives the way to JSON text and back, and its form is final."""
    form = to_json(value)
    assert to_json(form) == form
    assert repr(from_json(json.loads(json.dumps(form, allow_nan=False)))) == repr(value)


PUNCTUATION = ["$", "@", ".", "..", "*", "[", "]", "?", "(", ")", ":", ",", "==", "<", "&&", "||", "!", "|"]
WORDS = ["'a'", "a", "0", "-1", "1e400", "count(", "length(", "value(", "match(", "é", "_"]
ODD = [" ", '"', "\\", "~", "^", "#", "\0"]
PIECES = st.sampled_from([*PUNCTUATION, *WORDS, *ODD])


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=20))
def test_any_expression_is_answered_or_refused(expression: str) -> None:
    """Whatever comes, the answer is a list of values or a QueryError; nothing else is ever raised."""
    for text in (expression, "$" + expression, f"$[?{expression}]"):
        try:
            (found,) = query(STORE, [text])
        except QueryError as error:
            assert error.expression == text  # noqa: PT017 - either way is allowed
        else:
            json.dumps(found)
