"""The benchmark's table."""

from pathlib import Path
from typing import NamedTuple

from bench.measures.lines import Figures, Measure

BEGIN, END = "<!-- written by bench.run: begin -->", "<!-- written by bench.run: end -->"

# The words of each absolute figure, and the bound it should keep.
_ABSOLUTE = {
    "loopback_mb_s": ("the machine's loopback, one connection: MB/s", ""),
    "gaps_percent": ("threads that only look at the clock, kept from a core 1 ms or more: %", ""),
    "gap_us_max": ("— the longest: µs", ""),
    "fdatasync_us": ("the machine's fdatasync, 4 KiB: µs", ""),
    "ack_p50_us": ("`disk` topic, one connection: ack p50 µs", ""),
    "of_fdatasync": ("— beside the machine's fdatasync", "≤ 2"),
    "acks_s_16": ("`disk` topics, 16 connections: acks/s", ""),
    "of_serial_syncs": ("— beside one fdatasync after another", "≥ 1.8"),
    "first_start_s": ("first start on a machine, kernels compiled: s", "≤ 12"),
    "loaded_pss_mb": ("after these measurements, all processes: PSS MB, rings too", ""),
    "ready_s": ("ready after start, warm kernels: s", "≤ 0.5"),
    "imports_s": ("imports of a start: CPU s", ""),
    "numpy_imports_s": ("— Python and NumPy alone", ""),
    "idle_pss_mb": ("at rest, all processes: PSS MB, rings not counted", "≤ 100"),
    "idle_cpu_percent": ("at rest: % of a core", "≤ 1"),
    "kib_per_connection": ("an idle connection: KiB", "≤ 20"),
    "serving_s": ("serving after kill -9 of everything, 2 GB in the WAL: s", "≤ 2"),
    "shard_serving_s": ("serving after kill -9 of a shard, 2 GB in the WAL: s", "≤ 0.5"),
}

_CEILINGS = {"librdkafka_mock_mb_s": "librdkafka against its own mock broker, 1 MB batches, MB/s"}


class Row(NamedTuple):
    """One line: figures of both, their ratio, and the bound."""

    words: str
    smq: float
    kafka: float | None
    ratio: float | None
    target: str


def comparison_rows(measure: Measure, figures: dict[str, Figures]) -> list[Row]:
    """The lines of a measurement that was taken of both brokers."""
    rows = []
    for line in measure.lines:
        smq = figures["smq"][line.figure]
        kafka = figures.get("kafka", {}).get(line.figure)
        ratio = smq / kafka if kafka else None
        rows.append(Row(f"{measure.name}: {line.words}", smq, kafka, ratio, line.target))
    return rows


def absolute_rows(figures: Figures, kafka: Figures | None = None) -> list[Row]:
    """Lines whose bound is not a ratio."""
    return [
        Row(words, figures[key], (kafka or {}).get(key), None, target)
        for key, (words, target) in _ABSOLUTE.items()
        if key in figures
    ]


def table(rows: list[Row], *, heading: bool = True) -> str:
    """As Markdown."""
    lines = ["| measure | SMQ | Apache Kafka | ratio | target |", "|---|---|---|---|---|"]
    body = [
        f"| {row.words} | {number(row.smq)} | {number(row.kafka)} | {number(row.ratio)} "
        f"| {row.target} |"
        for row in rows
    ]
    return "\n".join((lines if heading else []) + body)


def number(value: float | None) -> str:
    """A figure with three digits, or as many as it has."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write_into(document: Path, rows: list[Row], ceiling: Figures, command: str) -> None:
    """Put the table, and what printed it, between the marks of a document."""
    notes = "".join(f"\n{_CEILINGS[key]}: {number(value)}\n" for key, value in ceiling.items())
    write_between(document, BEGIN, END, f"{table(rows)}\n{notes}\nPrinted by `{command}`.")


def write_between(document: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two marks of a document."""
    before, _, rest = document.read_text().partition(begin)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")
