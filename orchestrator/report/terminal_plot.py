"""A small plot for a terminal: one character a point, a mark a curve. Knows numbers only."""

import math
from collections.abc import Mapping, Sequence

from scalewright.fitting.words import counted

MARKS = "●○▲△■□◆◇"
Curve = tuple[Sequence[float], Sequence[float]]


def plot(curves: Mapping[str, Curve], *, width: int = 72, height: int = 14, x_name: str = "step") -> str:
    """Draw curves, (x, y) by name, into lines of text; points that are not finite are left out and counted."""
    points = {name: _finite_points(curve) for name, curve in curves.items()}
    every = [point for curve in points.values() for point in curve]
    if not every:
        return "no finite value to plot"
    low_x, high_x = bounds([x for x, _ in every])
    low_y, high_y = bounds([y for _, y in every])
    canvas = [[" "] * width for _ in range(height)]
    for curve, mark in zip(points.values(), _cycle(len(points)), strict=True):
        for x, y in curve:
            column = round((x - low_x) / (high_x - low_x) * (width - 1))
            row = round((high_y - y) / (high_y - low_y) * (height - 1))
            canvas[row][column] = mark
    n_left_out = sum(len(curve[0]) for curve in curves.values()) - len(every)
    return "\n".join(
        [*framed(canvas, low_y, high_y), _footer(width, low_x, high_x, x_name), *_legend(points, n_left_out)]
    )


def _finite_points(curve: Curve) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(*curve, strict=True) if math.isfinite(x) and math.isfinite(y)]


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis, never equal."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _cycle(n: int) -> list[str]:
    return [MARKS[i % len(MARKS)] for i in range(n)]


def framed(canvas: Sequence[Sequence[str]], low: float, high: float) -> list[str]:
    """Put the scale before the first, the middle and the last line."""
    labels = {0: high, len(canvas) // 2: high - (high - low) * (len(canvas) // 2) / (len(canvas) - 1)}
    labels[len(canvas) - 1] = low
    return [f"{f'{labels[i]:.4g}' if i in labels else '':>10} │{''.join(line)}" for i, line in enumerate(canvas)]


def _footer(width: int, low: float, high: float, name: str) -> str:
    ends = f"{low:,.0f}", f"{high:,.0f} {name}"
    return f"{'':>10} └{'─' * width}\n{'':>12}{ends[0]}{ends[1]:>{width - len(ends[0])}}"


def _legend(points: Mapping[str, Sequence[object]], n_left_out: int) -> list[str]:
    named = [f"{'':>12}{mark} {name}" for name, mark in zip(points, _cycle(len(points)), strict=True)]
    return named + ([f"{'':>12}not finite: {counted(n_left_out, 'point')}"] if n_left_out else [])
