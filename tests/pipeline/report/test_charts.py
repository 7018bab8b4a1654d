"""Charts are valid pictures of their numbers, whatever the numbers and the names are."""

import math
import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lorogo_pipeline.report import charts
from lorogo_pipeline.report.charts import Axis, Series

HOSTILE = [
    "</svg><script>alert(1)</script>",
    '" onload="alert(1)" x=\'',
    "&lt;b&gt;",
    "]]><!--",
    "nul \x00 bell \x07 escape \x1b[31m",
    "lone surrogate \ud800, end \uffff",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
    "x" * 5000,
]
numbers = st.lists(st.integers(0, 10**18), max_size=40)
gappy = st.lists(st.none() | st.floats(0, 1e15, allow_nan=False), min_size=1, max_size=40)


def axis(places: int) -> Axis:
    return Axis([f"place {n}" for n in range(places)], [(n, str(n)) for n in range(0, places, 5)])


def parsed(svg: str) -> ET.Element:
    """Parse a picture, and assert that it has no forbidden elements and values."""
    root = ET.fromstring(svg)
    for element in root.iter():
        assert element.tag in {"svg", "g", "rect", "path", "line", "text", "title", "circle"}
        for name, value in element.attrib.items():
            assert not name.startswith("on")
            assert not re.search(r"\b(nan|inf)\b", value.lower()) or name == "aria-label"
        for name in ("width", "height", "r"):
            assert float(element.get(name, "0").rstrip("%")) >= 0
    return root


@given(st.lists(numbers.filter(bool), min_size=1, max_size=4))
def test_bars_are_as_high_as_their_numbers(columns: list[list[int]]) -> None:
    """A bar is as high as its number, a stack as the sum, and all stay inside."""
    places = min(len(column) for column in columns)
    series = [Series(f"s{n}", column[:places], n + 1) for n, column in enumerate(columns)]
    root = parsed(charts.bars(axis(places), series, label="bars", height=200))
    sums = [sum(one.values[place] or 0 for one in series) for place in range(places)]
    stacks = [[r for r in group if r.tag == "rect" and r.get("class") != "hit"] for group in root.iter("g")]
    top = max(sums)
    for total, stack in zip(sums, stacks, strict=True):
        assert bool(stack) == bool(total)
        for rect in stack:
            assert float(rect.get("y", "")) >= 9.9  # below the top of the plot
        if total > top / 100:
            high = max(210 - float(rect.get("y", "")) for rect in stack)
            tallest = max(210 - float(rect.get("y", "")) for group in stacks for rect in group)
            assert math.isclose(high / tallest, total / top, abs_tol=0.01)


@given(gappy)
def test_curves_have_gaps_where_there_is_nothing(values: list[float | None]) -> None:
    """Every value is a point of a curve or a dot, and none is invented for a place without one."""
    for logarithmic in (False, True):
        picture = charts.lines(
            axis(len(values)), [Series("one", values)], label="lines", logarithmic=logarithmic, area=False
        )
        paths = [path.get("d", "") for path in parsed(picture).iter("path")]
        points = [point for path in paths for point in re.split("[ML]", path)[1:]]
        assert len(points) == sum(value is not None for value in values)
        assert all(-0.01 <= float(point.split()[1]) <= 210.01 for point in points)


@given(numbers)
def test_growth_never_leaves_its_plot(values: list[int]) -> None:
    """A curve of sums starts at what there was, ends at the right edge, and parses for any numbers."""
    root = parsed(charts.growth(axis(len(values)), Series("sum", values), label="growth", height=150))
    line = next(path for path in root.iter("path") if path.get("class", "").startswith("line"))
    points = [point.split() for point in re.split("[ML]", line.get("d", ""))[1:]]
    assert len(points) == len(values) + 1
    assert float(points[0][0]) == 0.0
    assert not values or float(points[-1][0]) == pytest.approx(1000)


@given(st.lists(st.lists(st.integers(0, 10**9), min_size=24, max_size=24), min_size=7, max_size=7))
def test_heatmap_shades_follow_the_numbers(values: list[list[int]]) -> None:
    """More is never paler; nothing has no colour at all."""
    days = [f"day {n}" for n in range(7)]
    root = parsed(charts.heatmap(days, [str(n) for n in range(24)], values, label="week"))
    cells = list(root.iter("rect"))
    assert len(cells) == 168
    flat = [value for row in values for value in row]
    shades = [float(cell.get("fill-opacity", "0")) for cell in cells]
    pairs = sorted(zip(flat, shades, strict=True))
    assert [shade for _, shade in pairs] == sorted(shades)
    assert all((value == 0) == (cell.get("class") == "none") for value, cell in zip(flat, cells, strict=True))


@given(st.lists(st.tuples(st.text(), st.integers(0, 10**18).map(float), st.text()), max_size=20))
def test_rows_are_as_long_as_their_numbers(items: list[tuple[str, float, str]]) -> None:
    """The longest horizontal bar is as wide as its place, the others in proportion."""
    root = parsed(charts.rows(items, label="rows"))
    widths = [float(r.get("width", "").rstrip("%")) for r in root.iter("rect") if r.get("class") == "c1"]
    top = max((value for _, value, _ in items), default=0)
    assert widths == pytest.approx([100 * value / top if top else 0 for _, value, _ in items], abs=0.001)


PICTURES: list[Callable[[str], str]] = [
    lambda name: charts.bars(Axis([name], [(0, name)]), [Series(name, [3])], label=name),
    lambda name: charts.lines(Axis([name], [(0, name)]), [Series(name, [3])], label=name),
    lambda name: charts.growth(Axis([name], [(0, name)]), Series(name, [3]), label=name),
    lambda name: charts.heatmap([name], [name], [[1]], label=name),
    lambda name: charts.rows([(name, 1, name)], label=name),
]


@pytest.mark.parametrize("draw", PICTURES)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_foreign_names_stay_words(draw: Callable[[str], str], name: str) -> None:
    """A name cannot become an element, an attribute, or a character that XML does not know."""
    svg = draw(name)
    root = parsed(svg)
    assert "<script" not in svg
    svg.encode()  # no lone surrogate
    assert root.get("aria-label")


@given(st.text())
def test_text_can_be_read_back(words: str) -> None:
    """Escaping loses nothing but characters that XML cannot carry."""
    back = ET.fromstring(f"<t>{charts.text(words)}</t>").text or ""
    assert len(back) == len(words)
    assert all(b in {a, "\N{REPLACEMENT CHARACTER}"} for a, b in zip(words, back, strict=True))


@pytest.mark.parametrize("values", [[], [0], [5], [0, 0, 0], [None, None], [1, None, 10**18]])
def test_little_is_enough(values: Sequence[float | None]) -> None:
    """No data, one place, only zeros, or only gaps: still a picture."""
    places = axis(len(values))
    parsed(charts.bars(places, [Series("one", values)], label="bars"))
    parsed(charts.bars(places, [], label="no series"))
    parsed(charts.lines(places, [Series("one", values)], label="lines"))
    parsed(charts.lines(places, [Series("one", values)], label="lines", logarithmic=True))
    parsed(charts.growth(places, Series("one", values), label="growth"))
    parsed(charts.sparkline(values))
    parsed(charts.meter(len(values), 0))
    parsed(charts.rows([], label="rows"))


def test_a_part_of_a_period_is_marked() -> None:
    """A bar of an unfinished period is paler, and its title marks it as incomplete."""
    whole = Axis(["this", "that"], [], unfinished=frozenset({1}))
    first, second = parsed(charts.bars(whole, [Series("updates", [1, 1])], label="bars")).iter("g")
    assert first.get("class") == "place"
    assert second.get("class") == "place part"
    assert second.findtext("title") == "that (incomplete)\nupdates: 1"
