"""A setting describes its allowed values, and the mistake in a wrong one, in plain words."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lorogo_protocol import setting
from lorogo_protocol.setting import Setting, SettingKind, described, number_text, size_text, wrong


def _no_spaces(text: str) -> None:
    if " " in text:
        raise ValueError("must have no spaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of each kind."""

    plain: int = 3  # no setting
    room: int = setting.size(1 << 20, "Room.", at_most=1 << 30)
    least: int = setting.size(1 << 20, "Room.", at_least=1 << 20)
    free: int = setting.size(-1, "Room.", meanings={-1: "no limit"})
    guests: int = setting.count(2, "Guests.")
    port: int = setting.count(80, "Port.", at_least=0, at_most=65535)
    wait: float = setting.seconds(0.5, "Wait.", at_most=10)
    keep: float = setting.seconds(0.0, "Keep.", meanings={0: "for ever"})
    speed: float = setting.rate(2.0, "Speed.")
    loud: bool = setting.switch("Loud.")
    name: str = setting.text("", "Name.", check=_no_spaces)
    names: tuple[str, ...] = setting.texts("Names.", check=_no_spaces)
    paper: Path | None = setting.file("Paper.")  # noqa: RUF009  # a field, and no value
    level: str = setting.choice("low", "Level.", one_of=("low", "high"))
    copies: int = setting.choice(1, "Copies.", one_of=(1, 3, 5))


ABOUT = described(Example)


def test_fields_that_were_not_made_so_are_no_settings() -> None:
    assert "plain" not in ABOUT
    assert list(wrong(Example())) == []
    assert ABOUT["guests"].default == Example().guests == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("room", "a size from 1 to 1GiB"),
        ("least", "a size of 1MiB or more"),
        ("free", "a size above 0 (-1: no limit)"),
        ("guests", "a whole number above 0"),
        ("port", "a whole number from 0 to 65535"),
        ("wait", "a number above 0, up to 10"),
        ("keep", "a number above 0 (0: for ever)"),
        ("speed", "a number above 0"),
        ("loud", "true or false"),
        ("name", "a text"),
        ("names", "a list of texts"),
        ("paper", "the name of a file"),
        ("level", "low or high"),
        ("copies", "1, 3 or 5"),
    ],
)
def test_a_setting_describes_its_allowed_values(name: str, words: str) -> None:
    assert ABOUT[name].allowed() == words


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("room", [1, 1 << 30, 5.0]),
        ("free", [-1, 1, 1 << 40]),
        ("guests", [1, 10**9]),
        ("port", [0, 65535]),
        ("wait", [0.001, 10, 1]),
        ("keep", [0, 0.0, 86_400.0]),
        ("loud", [True, False]),
        ("name", ["", "x"]),
        ("names", [(), ("a", "b")]),
        ("paper", [None, "x", Path("x")]),
        ("level", ["high"]),
        ("copies", [5]),
    ],
)
def test_what_is_right_is_taken(name: str, good: list[Any]) -> None:
    assert [ABOUT[name].problem(value) for value in good] == [""] * len(good)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("room", [0, -1, (1 << 30) + 1, "1", True, None, math.nan]),
        ("least", [1, 0]),
        ("free", [0, -2, 1 << 70, math.inf]),
        ("guests", [0, 1.0, True, "1", 10**9 + 1, 10**400]),
        ("port", [-1, 65536]),
        ("wait", [0, -1, 11, math.nan, math.inf, "1"]),
        ("keep", [-1, math.nan, math.inf, 1e300, 10**400]),
        ("loud", [0, 1, "true", None]),
        ("name", [1, "a b", None]),
        ("names", ["a", ["a"], (1,), ("a", "b c")]),
        ("paper", [1, True]),
        ("level", ["middle", 1]),
        ("copies", [2, "1", True]),
    ],
)
def test_what_is_wrong_is_refused(name: str, bad: list[Any]) -> None:
    assert all(ABOUT[name].problem(value) for value in bad)


def test_a_problem_says_what_would_be_right() -> None:
    assert ABOUT["guests"].problem(0) == "must be a whole number above 0"
    assert ABOUT["keep"].problem(1e300) == "must be a number above 0 (0: for ever), and at most 3153600000"
    assert ABOUT["names"].problem(("a b",)) == "must have no spaces"
    assert list(wrong(Example(guests=0, level="x"))) == [
        "guests must be a whole number above 0",
        "level must be low or high",
    ]


def test_a_list_has_no_empty_texts_if_they_are_checked() -> None:
    """An empty text alone is none; in a list it is one."""

    def never(text: str) -> None:
        raise ValueError(f"{text!r} is wrong")

    about = Setting(kind=SettingKind.TEXTS, words="", default=(), check=never)
    assert about.problem(("",)) == "'' is wrong"
    assert Setting(kind=SettingKind.TEXT, words="", default="", check=never).problem("") == ""


def test_the_same_in_days() -> None:
    """The default and what is allowed go along."""
    days = ABOUT["keep"].in_units_of(86_400.0, SettingKind.DAYS)
    assert days.allowed() == "a number above 0 (0: for ever)"
    assert days.problem(36_501) == "must be a number above 0 (0: for ever), and at most 36500"
    assert ABOUT["wait"].in_units_of(10.0, SettingKind.DAYS).allowed() == "a number above 0, up to 1"
    assert ABOUT["wait"].in_units_of(10.0, SettingKind.DAYS).default == 0.05
    assert Setting(kind=SettingKind.FOLDER, words="", default=None).allowed() == "the name of a folder"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (-1, "-1"),
        (1000, "1000"),
        (1024, "1KiB"),
        (1536, "1536"),
        (64 << 20, "64MiB"),
        (1 << 60, "1048576TiB"),
    ],
)
def test_sizes_are_written_exactly(count: int, text: str) -> None:
    assert size_text(count) == text


def test_numbers_have_no_needless_point() -> None:
    assert [number_text(value) for value in (5.0, 0.5, 3)] == ["5", "0.5", "3"]
