"""Charts as inline SVG, without scripts, fonts or external resources.

A chart fills the width of its container: x coordinates are percentages (curves: a stretched inner SVG), so
text keeps its size on a phone. Colours are CSS variables of the page, --c1 to --c8. Tooltips (`<title>`) show
numbers; `label` describes the chart for screen readers. Text is escaped in this module only: callers pass it
unescaped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from lorogo_pipeline.report import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TOP = 10  # pixels above the plot, for the uppermost label
_BOTTOM = 22  # below it, for the labels of x
_COLOURS = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """The x axis: a name for each place, and the labels of some."""

    names: Sequence[str]
    marks: Sequence[tuple[int, str]]
    unfinished: frozenset[int] = frozenset()  # places with numbers of an incomplete period


@dataclass(frozen=True, slots=True)
class Series:
    """A named series, one value for each place of the axis; None: no value."""

    name: str
    values: Sequence[float | None]
    colour: int = 1


def text(words: str) -> str:
    """Escape untrusted text for HTML and XML, and replace characters that XML does not allow."""
    return escape("".join(char if _printable(char) else "\N{REPLACEMENT CHARACTER}" for char in words))


def bars(
    axis: Axis,
    series: Sequence[Series],
    *,
    label: str,
    unit: Callable[[float], str] = quantities.count,
    binary: bool = False,
    height: int = 200,
) -> str:
    """Draw bars over the places of an axis; several series are stacked, the first at the bottom."""
    places = len(axis.names)
    sums = [sum(one.values[place] or 0 for one in series) for place in range(places)]
    marks = quantities.ticks(max(sums, default=0), binary=binary)
    y = _linear(marks, height)
    slot = 100 / max(places, 1)
    width = slot * (0.55 if places < 4 else 0.8)
    parts = [_grid(marks, y, unit)]
    for place, name in enumerate(axis.names):
        tooltip = [
            f"{one.name}: {unit(one.values[place] or 0)}"
            for one in series
            if one.values[place] or len(series) == 1
        ]
        so_far = " (incomplete)" if place in axis.unfinished else ""
        kind = "place part" if so_far else "place"
        parts.append(f'<g class="{kind}"><title>{text(name + so_far)}\n{text(_lines(tooltip))}</title>')
        parts.append(
            f'<rect class="hit" x="{slot * place:.3f}%" y="{_TOP}" width="{slot:.3f}%" height="{height}"/>'
        )
        below = 0.0
        for one in series:
            if value := one.values[place]:
                high, low = y(below + value), y(below)
                left = slot * place + (slot - width) / 2
                parts.append(
                    f'<rect class="{_colour(one)}" x="{left:.3f}%" y="{high:.2f}"'
                    f' width="{width:.3f}%" height="{max(low - high, 0.75):.2f}"/>'
                )
                below += value
        parts.append("</g>")
    return _frame(label, height, [*parts, _labels(axis, height)])


def lines(
    axis: Axis,
    series: Sequence[Series],
    *,
    label: str,
    unit: Callable[[float], str] = quantities.count,
    binary: bool = False,
    logarithmic: bool = False,
    area: bool = True,
    height: int = 200,
) -> str:
    """Draw curves through the middles of the places; a value of None leaves a gap."""
    known = [value for one in series for value in one.values if value is not None]
    if logarithmic:
        marks = quantities.decades(min(known, default=1), max(known, default=1))
        y = _logarithmic(marks, height)
    else:
        marks = quantities.ticks(max(known, default=0), binary=binary)
        y = _linear(marks, height)
    places = max(len(axis.names), 1)
    parts = [_grid(marks, y, unit)]
    curves, dots = [], []
    for one in series:
        for run in _runs(one.values):
            points = [((place + 0.5) / places * 1000, y(value)) for place, value in run]
            curves.append(_curve(points, _colour(one), height + _TOP if area else None))
            if len(points) == 1:
                x, middle = points[0][0] / 10, points[0][1]
                dots.append(f'<circle class="{_colour(one)}" cx="{x:.3f}%" cy="{middle:.2f}" r="3"/>')
    parts += [_stretched("".join(curves), height + _TOP), *dots]
    return _frame(label, height, [*parts, _hits(axis, series, unit, height), _labels(axis, height)])


def growth(
    axis: Axis,
    series: Series,
    *,
    label: str,
    before: float = 0,
    unit: Callable[[float], str] = quantities.count,
    binary: bool = False,
    height: int = 150,
) -> str:
    """Draw a cumulative curve: it starts at `before` and reaches each value at the end of its place."""
    values = [before, *(value or 0 for value in series.values)]
    marks = quantities.ticks(max(values), binary=binary, wanted=3)
    y = _linear(marks, height)
    places = max(len(axis.names), 1)
    points = [(index / places * 1000, y(value)) for index, value in enumerate(values)]
    curve = _stretched(_curve(points, _colour(series), height + _TOP), height + _TOP)
    parts = [_grid(marks, y, unit), curve, _hits(axis, [series], unit, height), _labels(axis, height)]
    return _frame(label, height, parts)


def heatmap(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    label: str,
    unit: Callable[[float], str] = quantities.count,
    cell: int = 24,
) -> str:
    """Draw a table as shades; the darkest cell has the largest value."""
    top = max((value for row in values for value in row), default=0)
    slot = 100 / max(len(columns), 1)
    parts = []
    for index, (row, numbers) in enumerate(zip(rows, values, strict=True)):
        y = _TOP + index * cell
        parts.append(
            f'<text class="tick" x="-10" y="{y + cell / 2 + 4:.0f}" text-anchor="end">{text(row)}</text>'
        )
        for place, (column, value) in enumerate(zip(columns, numbers, strict=True)):
            # square root: one peak must not make all other cells pale
            shade = (
                f'class="c1" fill-opacity="{0.12 + 0.88 * math.sqrt(value / top):.3f}"'
                if value
                else 'class="none"'
            )
            parts.append(
                f'<rect {shade} x="{slot * place + slot * 0.04:.3f}%" y="{y + 1}" width="{slot * 0.92:.3f}%"'
                f' height="{cell - 2}" rx="3"><title>{text(row)} {text(column)}\n{text(unit(value))}</title>'
                "</rect>"
            )
    height = len(rows) * cell
    axis = Axis(columns, [(place, columns[place]) for place in range(0, len(columns), 3)])
    return _frame(label, height, [*parts, _labels(axis, height)])


def rows(
    items: Sequence[tuple[str, float, str]],
    *,
    label: str,
    colour: int = 1,
    faint: frozenset[int] = frozenset(),
) -> str:
    """Draw horizontal bars, each with a name, its value, and the text of the value."""
    top = max((value for _, value, _ in items), default=0)
    parts = []
    for index, (name, value, words) in enumerate(items):
        y = index * 32
        width = 100 * value / top if top > 0 else 0
        shade = ' fill-opacity="0.35"' if index in faint else ""
        parts.append(
            f'<g class="place"><title>{text(name)}\n{text(words)}</title>'
            f'<rect class="hit" x="0" y="{y}" width="100%" height="32"/>'
            f'<text class="name" x="0" y="{y + 15}">{text(_shortened(name))}</text>'
            f'<text class="value" x="100%" y="{y + 15}" text-anchor="end">{text(words)}</text>'
            f'<rect class="none" x="0" y="{y + 21}" width="100%" height="5" rx="2.5"/>'
            f'<rect class="c{colour}"{shade} x="0" y="{y + 21}" width="{width:.3f}%" height="5" rx="2.5"/>'
            "</g>"
        )
    return (
        f'<svg class="rows" role="img" aria-label="{text(label)}" width="100%" height="{len(items) * 32}">'
        f"{''.join(parts)}</svg>"
    )


def meter(value: float, top: float, *, colour: int = 1) -> str:
    """Draw a small bar for a table cell; hidden from screen readers, which read the cell's number."""
    width = 100 * min(value / top, 1) if top > 0 else 0
    return (
        '<svg class="meter" aria-hidden="true" width="100%" height="6">'
        '<rect class="none" width="100%" height="6" rx="3"/>'
        f'<rect class="c{colour}" width="{width:.2f}%" height="6" rx="3"/></svg>'
    )


def sparkline(values: Sequence[float | None], *, colour: int = 1, height: int = 28) -> str:
    """Draw a small curve without labels."""
    numbers = [value or 0 for value in values]
    top = max(numbers, default=0) or 1
    if len(numbers) == 1:
        numbers *= 2
    last = max(len(numbers) - 1, 1)
    points = [
        (index / last * 1000, height - 1 - (height - 3) * value / top) for index, value in enumerate(numbers)
    ]
    curve = _curve(points, f"c{colour}", height) if points else ""
    return (
        f'<svg class="spark" aria-hidden="true" width="100%" height="{height}" viewBox="0 0 1000 {height}"'
        f' preserveAspectRatio="none">{curve}</svg>'
    )


def _frame(label: str, height: int, parts: Sequence[str]) -> str:
    whole = height + _TOP + _BOTTOM
    return (
        f'<svg class="chart" role="img" aria-label="{text(label)}" width="100%" height="{whole}">'
        f"{''.join(parts)}</svg>"
    )


def _stretched(curves: str, height: int) -> str:
    return (
        f'<svg x="0" y="0" width="100%" height="{height}" viewBox="0 0 1000 {height}"'
        f' preserveAspectRatio="none">{curves}</svg>'
    )


def _curve(points: Sequence[tuple[float, float]], colour: str, floor: float | None) -> str:
    path = " L".join(f"{x:.2f} {y:.2f}" for x, y in points)
    under = ""
    if floor is not None and len(points) > 1:
        back = f"L{points[-1][0]:.2f} {floor} L{points[0][0]:.2f} {floor} Z"
        under = f'<path class="area {colour}" d="M{path} {back}"/>'
    return f'{under}<path class="line {colour}" vector-effect="non-scaling-stroke" d="M{path}"/>'


def _grid(marks: Sequence[float], y: Callable[[float], float], unit: Callable[[float], str]) -> str:
    if unit is quantities.count:
        unit = quantities.short  # so that all marks of an axis have one format
    found = []
    for mark in marks:
        kind, at = "floor" if mark == marks[0] else "grid", y(mark)
        found.append(f'<line class="{kind}" x1="0" x2="100%" y1="{at:.2f}" y2="{at:.2f}"/>')
        found.append(
            f'<text class="tick" x="-8" y="{at + 4:.2f}" text-anchor="end">{text(unit(mark))}</text>'
        )
    return "".join(found)


def _labels(axis: Axis, height: int) -> str:
    slot = 100 / max(len(axis.names), 1)
    found = []
    for index, (place, words) in enumerate(axis.marks):
        kind = "tick other" if index % 2 else "tick"  # narrow pages hide every second label
        x, y = slot * (place + 0.5), height + _TOP + 17
        found.append(f'<text class="{kind}" x="{x:.3f}%" y="{y}" text-anchor="middle">{text(words)}</text>')
    return "".join(found)


def _hits(axis: Axis, series: Sequence[Series], unit: Callable[[float], str], height: int) -> str:
    slot = 100 / max(len(axis.names), 1)
    found = []
    for place, name in enumerate(axis.names):
        values = [(one.name, one.values[place]) for one in series]
        words = _lines([f"{of}: {'none' if value is None else unit(value)}" for of, value in values])
        found.append(
            f'<rect class="hit" x="{slot * place:.3f}%" y="{_TOP}" width="{slot:.3f}%" height="{height}">'
            f"<title>{text(name)}\n{text(words)}</title></rect>"
        )
    return "".join(found)


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    found: list[list[tuple[int, float]]] = []
    going = False
    for place, value in enumerate(values):
        if value is None:
            going = False
            continue
        if not going:
            found.append([])
        found[-1].append((place, value))
        going = True
    return found


def _linear(marks: Sequence[float], height: int) -> Callable[[float], float]:
    return lambda value: _TOP + height * (1 - value / marks[-1])


def _logarithmic(marks: Sequence[float], height: int) -> Callable[[float], float]:
    low, high = math.log10(marks[0]), math.log10(marks[-1])
    return lambda value: _TOP + height * (1 - (math.log10(max(value, marks[0])) - low) / (high - low))


def _colour(one: Series) -> str:
    return f"c{(one.colour - 1) % _COLOURS + 1}"


def _lines(words: Sequence[str]) -> str:
    return "\n".join(words)


def _shortened(name: str, chars_max: int = 40) -> str:
    return name if len(name) <= chars_max else f"{name[: chars_max - 1]}…"


def _printable(char: str) -> bool:
    code = ord(char)
    return (
        code >= 32 and not 127 <= code < 160 and not 0xD800 <= code < 0xE000 and code % 0x10000 < 0xFFFE
    ) or (char in "\n\t")
