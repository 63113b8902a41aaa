"""Plots in SVG."""

import re
from xml.etree.ElementTree import fromstring

from smq.load.plot import HEIGHT, WIDTH, Axis, Curve, plot

LINEAR = Axis(lambda value: f"{value:g}", "MB/s")
LOG = Axis(lambda value: f"{value:g}", "size", logarithmic=True)


def points(svg: str) -> list[list[tuple[float, float]]]:
    found = re.findall(r'<polyline points="([^"]*)"', svg)
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in each.split())] for each in found
    ]


def test_a_plot_with_any_names_is_xml() -> None:
    svg = plot("<&>", [Curve('"<b>', [1, 2], [3, 4])], LINEAR, LINEAR)
    texts = [each.text for each in fromstring(svg).iter() if each.text and each.text.strip()]
    assert "<&>" in texts
    assert '"<b>' in texts


def test_points_lie_inside_and_in_order() -> None:
    (line,) = points(plot("t", [Curve("c", [10, 100, 1000], [1, 2, 4])], LOG, LINEAR))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
    assert line[1][0] - line[0][0] == line[2][0] - line[1][0]  # A decade is a decade.
    assert line[0][1] > line[1][1] > line[2][1]


def test_a_logarithm_leaves_out_what_it_cannot_show() -> None:
    (line,) = points(plot("t", [Curve("c", [0, 1, 10], [5, 0, 5])], LOG, LOG))
    assert len(line) == 1


def test_zeros_alone_are_a_line_at_the_bottom() -> None:
    (line,) = points(plot("t", [Curve("c", [0, 1], [0, 0])], LINEAR, LINEAR))
    assert line[0][1] == line[1][1]


def test_nothing_is_no_picture() -> None:
    assert plot("t", [Curve("c", [], [])], LINEAR, LINEAR) == ""


def test_names_below_do_not_overlap() -> None:
    marks = [float(each) for each in range(100)]
    svg = plot("t", [Curve("c", marks, marks)], LINEAR, LINEAR, marks)
    assert svg.count('text-anchor="middle"') < 60
