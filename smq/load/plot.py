"""Plots curves as SVG, small enough to keep beside the docs or inside a page."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 40, 56
COLOURS = ("#b3412f", "#2f6db3", "#2f8f5b", "#8a6d1f", "#6b4ba3", "#3b8c94", "#a33b72", "#555555")
STYLE = "font: 12px sans-serif; fill: #555"
TICKS = 6
LEGEND = 16  # Pixels of a line below the plot that names a curve.
LETTER = 6.6  # Approximate width in pixels.

Label = Callable[[float], str]


class Curve(NamedTuple):
    """Points, and their name."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False


class Axis(NamedTuple):
    """An axis's scale and label."""

    label: Label
    name: str = ""
    logarithmic: bool = False


class _Scale:
    """Maps values to pixels, and selects the marked values."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self._axis, self._start, self._end = axis, start, end
        if axis.logarithmic:
            self._low = float(math.floor(math.log10(min(values))))
            self._high = max(self._low + 1, math.ceil(math.log10(max(values))))
        else:
            self._low = 0.0
            self._step = _round_step((max(values) or 1) / TICKS)
            self._high = self._step * math.ceil((max(values) or 1) / self._step)

    def at(self, value: float) -> float:
        there = math.log10(value) if self._axis.logarithmic else value
        share = (there - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def marks(self) -> list[float]:
        if self._axis.logarithmic:
            return [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        count = round(self._high / self._step)
        return [self._step * number for number in range(count + 1)]


def _round_step(step: float) -> float:
    """The next number of the form 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= step)


def plot(title: str, curves: Sequence[Curve], x: Axis, y: Axis, marks: Sequence[float] = ()) -> str:
    """The SVG. `marks` label the horizontal axis, by default round values."""
    curves = [_drawable(each, x, y) for each in curves]
    curves = [each for each in curves if each.xs]
    if not curves:
        return ""
    across = _Scale(x, [each for curve in curves for each in curve.xs], LEFT, WIDTH - RIGHT)
    up = _Scale(y, [each for curve in curves for each in curve.ys], HEIGHT - BOTTOM, TOP)
    height = HEIGHT + LEGEND * len(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" style="{STYLE}; font-weight: bold">{escape(title)}</text>',
    ]
    for value in up.marks():
        at = up.at(value)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, at + 4, y.label(value), "end"))
    parts += _below(x, across, list(marks or across.marks()))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, x.name, "middle"))
    parts.append(_text(WIDTH - RIGHT, 20, y.name, "end"))
    for number, curve in enumerate(curves):
        parts += _drawn(curve, across, up, number)
    return "\n".join([*parts, "</svg>", ""])


def _drawable(curve: Curve, x: Axis, y: Axis) -> Curve:
    """The points that a logarithmic scale can show."""
    pairs = [
        (a, b)
        for a, b in zip(curve.xs, curve.ys, strict=True)
        if not (x.logarithmic and a <= 0) and not (y.logarithmic and b <= 0)
    ]
    return curve._replace(xs=[a for a, _ in pairs], ys=[b for _, b in pairs])


def _below(x: Axis, across: _Scale, marks: Sequence[float]) -> list[str]:
    """The labels below the plot; skips one that would overlap the last."""
    parts, free = [], 0.0
    for value in marks:
        at, words = across.at(value), x.label(value)
        if at - len(words) * LETTER / 2 >= free:
            parts.append(_text(at, HEIGHT - BOTTOM + 20, words, "middle"))
            free = at + len(words) * LETTER / 2 + LETTER
    return parts


def _drawn(curve: Curve, across: _Scale, up: _Scale, number: int) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    spots = [(across.at(a), up.at(b)) for a, b in zip(curve.xs, curve.ys, strict=True)]
    points = " ".join(f"{a},{b}" for a, b in spots)
    dashes = ' stroke-dasharray="6 4"' if curve.dashed else ""
    parts = [
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>',
        _text(LEFT, HEIGHT + LEGEND * number + 8, curve.name, "start", colour),
    ]
    if len(spots) <= 12:
        parts += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in spots]
    return parts


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#555") -> str:
    style = f"{STYLE}; fill: {colour}"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" style="{style}">{escape(words)}</text>'
