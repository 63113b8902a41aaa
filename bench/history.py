"""`make bench-history`: a row of ratios for each run, and a sentence for each fall.

    | day | machine | change | a ratio for each headline … | falls explained |

A fall is a ratio that is more than a tenth worse than in the last row of the same machine. It fails
the run, and the tests, until the row's last cell names its column and says why:

python -m bench.history                                      # the falls without a sentence
python -m bench.history --explain "produce 1 MB: the sentence"
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.report import Row, number

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN = "<!-- history written by bench.history: begin -->"
END = "<!-- history written by bench.history: end -->"
FALL = 0.1
LOWER_IS_BETTER = "µs"  # At the end of a headline; of the others more is better.
HEADLINES = {  # Each column, and the line of the benchmark that is in it.
    "produce 1 MB": "produce 1 KiB, 1 MB batches, five deep: MB/s",
    "produce 16 KiB": "produce 1 KiB, 16 KiB batches, five deep: MB/s",
    "single, five deep": "single-record requests, five deep: requests/s",
    "single, one by one": "single-record requests, one by one: requests/s",
    "consume hot": "consume hot, 1 MB batches: MB/s",
    "end to end p50": "end to end at 10,000 msg/s: p50 µs",
    "p99": "end to end at 10,000 msg/s: p99 µs",
    "librdkafka produce": "librdkafka: produce 1 KiB, 1 MB batches: MB/s",
}
COLUMNS = tuple(HEADLINES)


class Entry(NamedTuple):
    """A row: `ratios` has SMQ's figure divided by Kafka's for each of COLUMNS, or None."""

    day: str
    machine: str
    change: str
    ratios: tuple[float | None, ...]
    explained: str

    @classmethod
    def read(cls, line: str) -> "Entry":
        """Decode a line of the table. Raises ValueError."""
        day, machine, change, *ratios, explained = (
            cell.strip() for cell in line.strip().strip("|").split("|")
        )
        if len(ratios) != len(COLUMNS):
            raise ValueError(f"a row of the history has {len(ratios)} ratios: {line}")
        numbers = tuple(float(each.replace(",", "")) if each else None for each in ratios)
        return cls(day, machine, change, numbers, explained)

    def line(self) -> str:
        """Encode it."""
        cells = [self.day, self.machine, self.change, *map(number, self.ratios), self.explained]
        return f"| {' | '.join(cells)} |"


class Fall(NamedTuple):
    """A ratio that has become worse on one machine."""

    column: str
    before: Entry
    after: Entry

    def __str__(self) -> str:
        index = COLUMNS.index(self.column)
        return (
            f"{self.column}: {number(self.before.ratios[index])} ({self.before.change}) → "
            f"{number(self.after.ratios[index])} ({self.after.change})"
        )


def this_machine() -> str:
    """The processor, the cores and the memory: what two machines of one kind share."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2] for line in info.splitlines() if line.startswith("model name")]
    model = " ".join(models[0].split()) if models else "unknown processor"
    memory_gib = round(psutil.virtual_memory().total / 2**30)
    return f"{model}, {psutil.cpu_count()} cores, {memory_gib} GiB"


def entry_of(rows: Iterable[Row], day: str, machine: str, change: str) -> Entry:
    """The row of a run."""
    ratios = {row.words: row.ratio for row in rows}
    return Entry(day, machine, change, tuple(ratios.get(each) for each in HEADLINES.values()), "")


def entries(document: Path = DOCUMENT) -> list[Entry]:
    """The history, oldest first. Raises ValueError."""
    _, begin, rest = document.read_text().partition(BEGIN)
    text, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has lost the marks of its history")
    _, _, *lines = text.split("\n\n")[1].splitlines()
    return [Entry.read(line) for line in lines]


def write(history: Iterable[Entry], document: Path = DOCUMENT) -> None:
    """Replace the table."""
    heads = ["day", "machine", "change", *COLUMNS, "falls explained"]
    head = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    table = "\n".join([*head, *(each.line() for each in history)])
    before, _, rest = document.read_text().partition(BEGIN)
    document.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")


def unexplained(history: Iterable[Entry]) -> list[Fall]:
    """The falls whose row does not say why."""
    last: dict[str, Entry] = {}
    found = []
    for entry in history:
        if (before := last.get(entry.machine)) is not None:
            fallen = (Fall(column, before, entry) for column in COLUMNS)
            found += [each for each in fallen if _is_fall(each)]
        last[entry.machine] = entry
    return [each for each in found if f"{each.column}:" not in each.after.explained]


def _is_fall(fall: Fall) -> bool:
    index = COLUMNS.index(fall.column)
    before, after = fall.before.ratios[index], fall.after.ratios[index]
    if not before or not after:
        return False
    is_lower_better = HEADLINES[fall.column].endswith(LOWER_IS_BETTER)
    return after > before * (1 + FALL) if is_lower_better else after < before * (1 - FALL)


def check() -> None:
    """Raise SystemExit with the falls that nobody has explained."""
    if found := unexplained(entries()):
        told = "\n".join(f"  {each}" for each in found)
        raise SystemExit(
            f"these ratios fell by more than {FALL:.0%}:\n{told}\n"
            'explain each: python -m bench.history --explain "column: a sentence"'
        )


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--explain", help="add a sentence to the last row", metavar="SENTENCE")
    options = parser.parse_args()
    if options.explain:
        *before, last = entries()
        if options.explain.partition(":")[0] not in COLUMNS or "|" in options.explain:
            sys.exit(f"the sentence should begin with one of: {', '.join(COLUMNS)}; and a colon")
        told = "; ".join(filter(None, [last.explained, options.explain]))
        write([*before, last._replace(explained=told)])
    check()


if __name__ == "__main__":
    main()
