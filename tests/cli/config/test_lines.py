"""The line of a key is found in whatever way TOML lets it be written."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_cli.config.lines import lines_of


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", {}),
        ("a = 1", {("a",): [1]}),
        ("\n\n# a = 0\n  a = 1 # b = 2\nb = 3", {("a",): [4], ("b",): [5]}),
        ("a.b = 1\n[c.d]\ne = 1", {("a", "b"): [1], ("c", "d"): [2], ("c", "d", "e"): [3]}),
        ("'a.b' = 1\n\"c = d\" = 2", {("a.b",): [1], ("c = d",): [2]}),
        ("[ 'x y' ] # [z]\na = 1", {("x y",): [1], ("x y", "a"): [2]}),
        ("[[a]]\nb = 1\n[[a]]\nb = 2", {("a",): [1, 3], ("a", "b"): [2, 4]}),
        ("a = [\n 1, # ]\n '[',\n]\nb = 1", {("a",): [1], ("b",): [5]}),
        ("a = [[1],\n[2]]\nb = {c = [\n1]}\nd = 1", {("a",): [1], ("b",): [3], ("d",): [5]}),
        ('a = """\nb = 1\n[c]\n"""\nd = 1', {("a",): [1], ("d",): [5]}),
        ("a = '''\nb = 1\n'''\nd = 1", {("a",): [1], ("d",): [4]}),
        ('a = "\\"#"\nb = "[\\\\"\nc = 1', {("a",): [1], ("b",): [2], ("c",): [3]}),
        ("a = 1\na = 2", {("a",): [1, 2]}),
        ("a = 1\r\nb = 2\r\n", {("a",): [1], ("b",): [2]}),
        # what is no TOML: as far as it goes
        ("a = 1\n[b\nc = 2", {("a",): [1], ("c",): [3]}),
        ("=\na = 1", {("a",): [2]}),
        ("a b = 1\nc = 2", {("c",): [2]}),
    ],
)
def test_where_keys_stand(text: str, lines: dict[tuple[str, ...], list[int]]) -> None:
    assert lines_of(text) == lines


_VALUES = st.sampled_from(
    [
        "1",
        "true",
        "'x'",
        '"a # b = [c]"',
        "[1, 2]",
        "[\n 'x', # y = 1\n\n 'z',\n]",
        '"""\nq = 1\n[r]\n"""',
        "{ a = 1 }",
    ]
)
_BETWEEN = st.sampled_from(["", "\n", "# k = [\n", "  \n\n", "# '''\n"])


@given(st.lists(st.tuples(_BETWEEN, st.booleans(), _VALUES), max_size=12))
def test_lines_are_counted_as_they_were_written(pieces: list[tuple[str, bool, str]]) -> None:
    """Whatever stands between and within."""
    text = ""
    expected: dict[tuple[str, ...], list[int]] = {}
    section: tuple[str, ...] = ()
    for number, (between, header, value) in enumerate(pieces):
        text += between
        if header:
            section = (f"s{number}",)
            expected[section] = [text.count("\n") + 1]
            text += f"[s{number}]\n"
        expected[*section, f"k{number}"] = [text.count("\n") + 1]
        text += f"k{number} = {value}\n"
    tomllib.loads(text)
    assert lines_of(text) == expected


def test_a_long_file_takes_no_long_time() -> None:
    """Inputs that could make a search backtrack end quickly."""
    several = "a = [\n" + "1,\n" * 20_000 + "]\nb = 1"
    for text in ("a" + " " * 60_000 + "b", "[" + "]" * 60_000 + "x", 'a = """' + "\\" * 60_000,
                 '"' * 60_001, "'" * 60_001, 'a = "' + '\\"' * 30_000, "a." * 30_000 + "b = 1"):  # fmt: skip
        assert all(at == [1] for at in lines_of(text).values())
    assert lines_of(several) == {("a",): [1], ("b",): [20_003]}
