"""Curves as SVG."""

from xml.etree import ElementTree as ET

import pytest

from lorogo_bench import figures
from lorogo_bench.figures import RoundValues
from lorogo_bench.results import plot
from lorogo_bench.workload import Curve, OutcomeBuilder

SVG = "{http://www.w3.org/2000/svg}"


def curves(name: str = "cost") -> tuple[Curve, ...]:
    findings = OutcomeBuilder()
    lines: dict[str, dict[int, RoundValues | None]] = {
        "server": {1000: figures.rounds([40.0, 50.0, 60.0]), 10: figures.rounds([50.0])},
        "client": {10: figures.rounds([5.0]), 1000: None},
        "nobody": {10: None},
    }
    findings.curve(name, lines, along="documents", unit="µs")
    return findings.outcome().curves


def test_a_curve_goes_along_in_order_and_leaves_out_what_is_not_known() -> None:
    """A line without a point is none."""
    (curve,) = curves()
    assert list(curve.lines) == ["server", "client"]
    assert [(one.at, one.value, one.lowest, one.highest) for one in curve.lines["server"]] == [
        (10, 50.0, 50.0, 50.0),
        (1000, 50.0, 40.0, 60.0),
    ]


def test_every_point_is_drawn_and_says_its_numbers() -> None:
    """A constant curve has the same height at both ends, and larger counts are further right."""
    root = ET.fromstring(plot.svg(curves()))
    circles = list(root.iter(f"{SVG}circle"))
    assert len(circles) == 3
    first, last = circles[0], circles[1]
    assert first.get("cy") == last.get("cy")
    assert float(first.get("cx", "")) < float(last.get("cx", ""))
    words = [one.text for one in root.iter(f"{SVG}title")]
    assert "server, 1,000 documents: 50 µs (40 to 60)" in words


def test_words_are_only_words() -> None:
    """Whatever a curve is called, it stays well-formed; several lie below each other."""
    both = plot.svg((*curves('a < b & "c"'), *curves()))
    root = ET.fromstring(both)
    assert 'a < b & "c"' in [one.text for one in root.iter(f"{SVG}text")]
    assert int(root.get("height", "")) == 2 * int(ET.fromstring(plot.svg(curves())).get("height", ""))


def test_nothing_to_draw_is_refused() -> None:
    """An empty picture would look like a result."""
    with pytest.raises(ValueError, match="no curve"):
        plot.svg([])


def test_a_curve_with_nothing_known_is_drawn_empty() -> None:
    """Without /proc there are no CPU figures: that is no error."""
    assert ET.fromstring(plot.svg([Curve("cost", "documents", "µs", {})])) is not None


@pytest.mark.parametrize(
    ("top", "found"),
    [
        (0.0, [0.0, 1.0]),
        (-1.0, [0.0, 1.0]),
        (1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (50.0, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]),
        (61.0, [0.0, 20.0, 40.0, 60.0, 80.0]),
        (2345.0, [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]),
        (0.007, [0.0, 0.002, 0.004, 0.006, 0.008]),
    ],
)
def test_marks_are_round_and_hold_everything(top: float, found: list[float]) -> None:
    """At most six of them."""
    assert plot.marks(top) == pytest.approx(found)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (1_000_000, "1,000,000"),
        (2345.6, "2,346"),
        (12.345, "12.3"),
        (0.6000001, "0.6"),
        (-3.21, "-3.21"),
    ],
)
def test_numbers_are_written_for_people(value: float, words: str) -> None:
    """Never as a power of ten."""
    assert plot.number(value) == words
