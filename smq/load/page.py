"""Renders results as one self-contained HTML page: tables, and plots in SVG."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any

from hdrh.histogram import HdrHistogram

from smq.load.plot import Axis, Curve, plot
from smq.load.results import (
    FIGURES,
    HIGHER,
    Result,
    compared,
    figure_of,
    number,
    spoken,
)

CURVES_MAX = 8  # Per plot: the number of colours.
CHANGED = 0.05  # A ratio further from 1 is coloured.
# What is left out of 100 %: the axis of percentiles, as HDR histograms are drawn.
PERCENTILES = (0, 50, 75, 90, 95, 98, 99, 99.5, 99.9, 99.95, 99.99, 99.999)
CSS = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1480px; margin: 2em auto; padding: 0 1em }
h1, h2 { font-weight: 600 } h2 { margin-top: 2em; border-bottom: 1px solid #ddd }
table { border-collapse: collapse; margin: 1em 0 } .wide { overflow-x: auto }
th { vertical-align: bottom }
td, th { padding: .25em .6em; border-bottom: 1px solid #eee; text-align: right; font-weight: 400 }
th { color: #555 } td:first-child, th:first-child, .words { text-align: left }
.plots { display: grid; gap: 1em }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)) }
.better { color: #2f8f5b } .worse, .ended { color: #b3412f } .small { color: #555; font-size: 13px }
"""


def page(results: Sequence[Result], before: Sequence[Result] = ()) -> str:
    """The page: a section per workload, in the order of the results."""
    names = dict.fromkeys(each["workload"] for each in results)
    sections = [
        _section(name, [each for each in results if each["workload"] == name]) for name in names
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>smq bench</title><style>{CSS}</style></head><body><h1>smq bench</h1>",
        f'<p class="small">{escape(_whence(results))}</p>',
        _comparison(results, before) if before else "",
        *sections,
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _whence(results: Sequence[Result]) -> str:
    machines = {
        f"{each['machine']['cores']} cores, {each['machine']['memory_gb']} GB, "
        f"Linux {each['machine']['kernel']}, Python {each['machine']['python']}"
        for each in results
    }
    days = sorted(each["when"] for each in results)
    return f"{'; '.join(sorted(machines))}. Measured {days[0]} to {days[-1]}."


def _section(name: str, results: Sequence[Result]) -> str:
    plots = [*_sweeps(results), _percentiles(results), *_over_time(results)]
    drawn = "\n".join(f"<div>{each}</div>" for each in plots if each)
    facts = f"{_table(results)}\n{_notes(results)}"
    return f'<h2>{escape(name)}</h2>\n{facts}\n<div class="plots">{drawn}</div>'


def _names(results: Sequence[Result]) -> list[str]:
    """Distinct names of results: broker and step, with the time where these are equal."""
    brokers = len({each["broker"] for each in results}) > 1
    names = []
    for each in results:
        step = ", ".join(f"{key} {spoken(value)}" for key, value in each["step"].items())
        words = ([str(each["broker"])] if brokers or not step else []) + ([step] if step else [])
        names.append(", ".join(words))
    twice = {name for name in names if names.count(name) > 1}
    return [
        f"{name}, {each['when'][:19]}" if name in twice else name
        for name, each in zip(names, results, strict=True)
    ]


def _table(results: Sequence[Result]) -> str:
    """A row for each step, a column for each figure that any of them has."""
    columns = [
        figure for figure in FIGURES if any(figure_of(each, figure) is not None for each in results)
    ]
    heads = "".join(f"<th>{escape(figure.words)}</th>" for figure in columns)
    rows = []
    for name, each in zip(_names(results), results, strict=True):
        cells = "".join(f"<td>{number(figure_of(each, figure))}</td>" for figure in columns)
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    body = "\n".join(rows)
    return f'<div class="wide"><table><tr><th></th>{heads}</tr>\n{body}</table></div>'


def _notes(results: Sequence[Result]) -> str:
    """The fate of all messages, the client's ceiling, and how a run ended."""
    lines = []
    for name, each in zip(_names(results), results, strict=True):
        words = []
        if check := each.get("check"):
            facts = (f"{key.replace('_', ' ')} {value:,}" for key, value in check.items())
            words.append(", ".join(facts))
        client = each.get("client", {})
        if ceiling := client.get("ceiling_of_one_producer"):
            rate = f"{ceiling['msg_s']:,} msg/s, {ceiling['mb_s']:,} MB/s"
            words.append(f"{client['name']}'s own ceiling {rate}")
        if events := each.get("events"):
            words.append(_events(events))
        ended = f' <span class="ended">{escape(each["ended"])}</span>' if "ended" in each else ""
        lines.append(f"<li>{escape(name)}: {escape('; '.join(words))}{ended}</li>")
    return f'<ul class="small">{"".join(lines)}</ul>'


def _events(events: Sequence[Any]) -> str:
    counted = sorted(events, key=lambda event: str(event["what"]))
    groups = groupby(counted, key=lambda event: str(event["what"]))
    return ", ".join(f"{what} ({len(list(group))})" for what, group in groups)


def _comparison(results: Sequence[Result], before: Sequence[Result]) -> str:
    rows = []
    for each in compared(results, before):
        ratio = each.ratio
        kind = ""
        if ratio is not None and abs(ratio - 1) > CHANGED:
            kind = "better" if (ratio > 1) == (each.better == HIGHER) else "worse"
        words = "" if ratio is None else f"{ratio:.2f}"
        rows.append(
            f'<tr><td>{escape(each.step)}</td><td class="words">{escape(each.words)}</td>'
            f"<td>{number(each.now)}</td><td>{number(each.before)}</td>"
            f'<td class="{kind}">{words}</td></tr>'
        )
    heads = '<th>step</th><th class="words">figure</th><th>now</th><th>before</th><th>ratio</th>'
    table = f'<div class="wide"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'
    return f"<h2>Against what was before</h2>{table}"


def _percentiles(results: Sequence[Result]) -> str:
    """Latency by percentile, on an axis of 100 % minus the percentile, which stretches the tail."""
    named = list(zip(_names(results), results, strict=True))
    kinds = ("publish", "end_to_end") if len(named) * 2 <= CURVES_MAX else ("end_to_end",)
    if not any("end_to_end" in each.get("latency_us", {}) for each in results):
        kinds = ("publish",)
    curves = []
    for name, result in named[:CURVES_MAX]:
        for kind in kinds:
            encoded = result.get("latency_us", {}).get(kind, {}).get("hdr")
            if encoded:
                words = f"{name}: {kind.replace('_', ' ')}"
                curves.append(_percentile_curve(words, encoded)._replace(dashed=kind == "publish"))
    x = Axis(lambda left_out: f"{100 - 100 / left_out:.6g} %", "percentile", logarithmic=True)
    y = Axis(_milliseconds, "latency, ms", logarithmic=True)
    marks = [100 / (100 - each) for each in PERCENTILES]
    most = max((curve.xs[-1] for curve in curves), default=1)
    shown = [each for each in marks if each <= most]
    return plot("Latency by percentile", curves, x, y, shown)


def _percentile_curve(name: str, encoded: str) -> Curve:
    histogram = HdrHistogram.decode(encoded.encode())
    count = histogram.get_total_count()
    shown = [each for each in PERCENTILES if count * (100 - each) >= 100] or [0]
    values = [histogram.get_value_at_percentile(each) / 1000 for each in shown]
    return Curve(name, [100 / (100 - each) for each in shown], values)


def _over_time(results: Sequence[Result]) -> Iterable[str]:
    """Throughput and p99 for each second."""
    seconds = Axis(lambda second: f"{second:g}", "second of the run")
    rates: list[Curve] = []
    tails: list[Curve] = []
    for name, result in list(zip(_names(results), results, strict=True))[: CURVES_MAX // 2]:
        rows = [each for each in result.get("seconds", []) if each["phase"] != "start"]
        if not rows:
            continue
        mb = result["parameters"]["message_size"] / 1e6
        xs = [each["second"] - rows[0]["second"] for each in rows]
        for words, key in (("acknowledged", "acked"), ("read", "received")):
            ys = [each.get(key, 0) * mb for each in rows]
            rates.append(Curve(f"{name}: {words}", xs, ys, dashed=key == "received"))
        for words, key in (("publish", "publish_p99"), ("end to end", "end_to_end_p99")):
            known = [(x, each[key] / 1000) for x, each in zip(xs, rows, strict=True) if key in each]
            curve = Curve(f"{name}: {words}", [x for x, _ in known], [y for _, y in known])
            tails.append(curve._replace(dashed=key == "publish_p99"))
    yield plot("Throughput over time", rates, seconds, Axis(number, "MB/s"))
    y = Axis(_milliseconds, "p99 of the second, ms", logarithmic=True)
    yield plot("Latency over time", tails, seconds, y)


def _sweeps(results: Sequence[Result]) -> Iterable[str]:
    """Figures against the number that a workload's steps vary: size, partitions, connections …"""
    varied = {key for each in results for key, value in each["step"].items() if _is_number(value)}
    for key in sorted(varied):
        steps = [each for each in results if _is_number(each["step"].get(key))]
        if len({each["step"][key] for each in steps}) < 2:
            continue
        x = Axis(spoken, key, logarithmic=True)
        marks = sorted({each["step"][key] for each in steps})
        for words, paths, unit in _SWEPT:
            curves = list(_swept_curves(steps, key, paths))
            y = Axis(_milliseconds if "ms" in unit else number, unit, logarithmic="ms" in unit)
            yield plot(f"{words} against {key}", curves, x, y, marks)


_SWEPT: tuple[tuple[str, dict[str, tuple[str, ...]], str], ...] = (
    ("Throughput", {"": ("rates", "acked_mb_s")}, "MB/s acknowledged"),
    (
        "p99",
        {
            "publish": ("latency_us", "publish", "p99"),
            "end to end": ("latency_us", "end_to_end", "p99"),
            "request": ("latency_us", "request", "p99"),
        },
        "ms",
    ),
    ("The broker's memory", {"": ("cost", "memory_mb")}, "MB without rings"),
    ("The broker's CPU", {"": ("cost", "cpu_seconds")}, "seconds of the whole step"),
)


def _swept_curves(
    steps: Sequence[Result], key: str, paths: dict[str, tuple[str, ...]]
) -> Iterable[Curve]:
    """A curve for each kind and for each combination of broker and the step's other values."""
    families: dict[str, list[Result]] = {}
    for each in steps:
        others = [spoken(value) for name, value in each["step"].items() if name != key]
        families.setdefault(", ".join([str(each["broker"]), *others]), []).append(each)
    for family, members in families.items():
        in_order = sorted(members, key=lambda each: float(each["step"][key]))
        for kind, path in paths.items():
            points = [(each["step"][key], _found(each, path)) for each in in_order]
            known = [(x, y) for x, y in points if y is not None]
            name = f"{family}: {kind}" if kind else family
            yield Curve(name, [x for x, _ in known], [y for _, y in known])


def _found(result: Result, path: tuple[str, ...]) -> float | None:
    value: Any = result
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return None
    return float(value) / 1000 if path[0] == "latency_us" else float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _milliseconds(value: float) -> str:
    return f"{value:,.6g}"
