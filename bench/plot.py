"""A plot of some curves over two logarithmic axes, as SVG: small enough to keep beside the docs."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 40, 40
COLOURS = ("#b3412f", "#2f6db3", "#2f8f5b", "#8a6d1f")
STYLE = "font: 12px sans-serif; fill: #555"

Label = Callable[[float], str]


class Curve(NamedTuple):
    """Points, and what they are."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


class _Axis:
    """Values onto pixels; its decades are marked."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(self._low + 1, math.ceil(math.log10(max(values))))
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def decades(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def plot(title: str, curves: Sequence[Curve], x_label: Label, y_label: Label) -> str:
    """The picture."""
    x = _Axis([each for curve in curves for each in curve.xs], LEFT, WIDTH - RIGHT)
    y = _Axis([each for curve in curves for each in curve.ys], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" style="{STYLE}; font-weight: bold">{escape(title)}</text>',
    ]
    for value in y.decades():
        at = y.at(value)
        parts.append(f'<path d="M{LEFT} {at}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, at + 4, y_label(value), "end"))
    below = HEIGHT - BOTTOM + 20
    parts += [_text(x.at(each), below, x_label(each), "middle") for each in curves[0].xs]
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x.at(a)},{y.at(b)}" for a, b in zip(curve.xs, curve.ys, strict=True))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(LEFT + 12, TOP + 16 + 16 * number, curve.name, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#555") -> str:
    style = f"{STYLE}; fill: {colour}"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" style="{style}">{escape(words)}</text>'
