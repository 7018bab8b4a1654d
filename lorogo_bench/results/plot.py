"""Draw curves as one self-contained SVG file: no script, no font, no external resource. Pure.

The x axis is logarithmic, as sizes are powers of ten; the y axis starts at 0. A point is the median of its
rounds, and the thin line through it their range; its tooltip has the numbers. Text is escaped here only.
"""

import math
from collections.abc import Sequence
from html import escape

from lorogo_bench.workload import Curve, Point

_WIDTH, _HEIGHT = 720, 320  # of one chart
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 64, 48
_COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#64748b")
_MARKS_MAX = 6
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#334155}.title{font-size:15px;font-weight:600}"
    ".paper{fill:#fff}.grid{stroke:#e2e8f0}.floor{stroke:#94a3b8}"
    "@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.paper{fill:#0f172a}.grid{stroke:#1e293b}}"
)


def svg(curves: Sequence[Curve]) -> str:
    """Return all curves, one below the other. There must be at least one."""
    if not curves:
        raise ValueError("there is no curve to draw")
    height = _HEIGHT * len(curves)
    charts = "".join(
        f'<g transform="translate(0 {_HEIGHT * place})">{_chart(curve)}</g>'
        for place, curve in enumerate(curves)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}"><style>{_STYLE}</style>'
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>{charts}</svg>\n'
    )


def marks(top: float) -> list[float]:
    """Return evenly spaced round numbers from 0 to at least `top`."""
    if top <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(top / (_MARKS_MAX - 1)))
    steps = (power * factor for factor in (1, 2, 5, 10, 20))
    step = next(step for step in steps if math.ceil(top / step - 1e-9) < _MARKS_MAX)
    return [step * place for place in range(math.ceil(top / step - 1e-9) + 1)]


def number(value: float) -> str:
    """Return large and whole numbers with commas, others with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def _chart(curve: Curve) -> str:
    points = [point for some in curve.lines.values() for point in some]
    scale = marks(max((point.highest for point in points), default=0.0))
    places = sorted({point.at for point in points})
    parts = [
        f'<text class="title" x="{_LEFT}" y="24">{escape(curve.name)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{escape(curve.along)}</text>',
        f'<text x="{_LEFT - 10}" y="{_TOP - 14}" text-anchor="end">{escape(curve.unit)}</text>',
    ]
    for mark in scale:
        y, kind = _y(mark, scale), "grid" if mark else "floor"
        parts.append(f'<path class="{kind}" d="M{_LEFT} {y:.1f} H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{number(mark)}</text>')
    for at in places:
        x = _x(at, places)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 28}" text-anchor="middle">{number(at)}</text>')
    for place, (name, some) in enumerate(curve.lines.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        parts.append(_legend(name, colour, _LEFT + 140 * place))
        parts.append(_line(curve, name, some, colour, places, scale))
    return "".join(parts)


def _line(
    curve: Curve,
    name: str,
    points: Sequence[Point],
    colour: str,
    places: Sequence[float],
    scale: Sequence[float],
) -> str:
    path = " L".join(f"{_x(one.at, places):.1f} {_y(one.value, scale):.1f}" for one in points)
    parts = [f'<path fill="none" stroke="{colour}" stroke-width="2" d="M{path}"/>']
    for one in points:
        x, y = _x(one.at, places), _y(one.value, scale)
        low, high = _y(one.lowest, scale), _y(one.highest, scale)
        tooltip = (
            f"{name}, {number(one.at)} {curve.along}: {number(one.value)} {curve.unit}"
            f" ({number(one.lowest)} to {number(one.highest)})"
        )
        parts.append(
            f'<g stroke="{colour}"><title>{escape(tooltip)}</title><path d="M{x:.1f} {low:.1f} V{high:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/></g>'
        )
    return "".join(parts)


def _legend(name: str, colour: str, x: float) -> str:
    key = f'<rect x="{x}" y="36" width="12" height="4" fill="{colour}"/>'
    return f'{key}<text x="{x + 18}" y="42">{escape(name)}</text>'


def _x(at: float, places: Sequence[float]) -> float:
    """Return the x position; sizes are above 0."""
    low, high = math.log(places[0]), math.log(places[-1])
    share = 0.5 if high == low else (math.log(at) - low) / (high - low)
    margin = 16  # at both edges, so that points are not cut
    return _LEFT + margin + share * (_WIDTH - _LEFT - _RIGHT - 2 * margin)


def _y(value: float, scale: Sequence[float]) -> float:
    """Return the y position; values below 0 (noise after a subtraction) are drawn at 0."""
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - max(0.0, value) / scale[-1])
