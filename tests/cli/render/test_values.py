"""Values as people type them."""

import shlex

import pytest

from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import parse_json, parse_size, show_json, show_size


@pytest.mark.parametrize("text", ["Hello", "", "{", "NaN", "-Infinity", "[1,]", "'x'"])
def test_text_without_quotes_is_refused_with_a_hint(text: str) -> None:
    """The commonest mistake is answered with what to type."""
    with pytest.raises(CommandError, match="is not JSON; text needs double quotes"):
        parse_json(text)


@pytest.mark.parametrize("text", ["x", "'x'", "it's", "a b"])
def test_the_hint_can_be_typed(text: str) -> None:
    """A shell reads the example as one argument, which is the text as JSON."""
    with pytest.raises(CommandError) as caught:
        parse_json(text)
    (typed,) = shlex.split(str(caught.value).partition("as in ")[2])
    assert parse_json(typed) == text.strip("'")


def test_a_file_that_is_no_json_names_the_line() -> None:
    """After editing, the place of the mistake matters."""
    with pytest.raises(CommandError, match=r"^your text is not JSON \(line 2: .*\)$"):
        parse_json('{"a": 1,\n x}', what="your text")


def test_json_nested_beyond_reason_is_refused() -> None:
    """No traceback, whatever is typed."""
    with pytest.raises(CommandError, match="too deep"):
        parse_json("[" * 100_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1024", 1024),
        ("1k", 1024),
        ("64MiB", 64 << 20),
        ("10 GiB", 10 << 30),
        ("2tb", 2 << 40),
        ("5B", 5),
    ],
)
def test_a_size_may_have_a_unit(text: str, expected: int) -> None:
    """Sizes are bytes, or powers of 1024."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "1.5k", "MiB", "10 parsecs"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """With examples of what is."""
    with pytest.raises(CommandError, match="64MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 50, "3072.0 TiB")],
)
def test_a_size_is_shown_short(count: int, expected: str) -> None:
    """In the unit that fits."""
    assert show_size(count) == expected


def test_json_for_scripts_is_one_line() -> None:
    """A line per result, text as it is."""
    assert show_json({"a": ["ü", 1.5, None]}) == '{"a":["ü",1.5,null]}'
    assert show_json({"a": 1}, pretty=True) == '{\n  "a": 1\n}'
