"""How offsets are assigned and found again: `python -m bench.offsets`, beside a way by timestamps.

A log that numbers records gives a batch its offsets at once: one addition. Where records have only
times, as in SeaweedMQ's native log (two records of one nanosecond are moved apart, and an offset is
a count beside it), each record takes a step of its own, and after a crash a number is known again
only by counting what lies behind the last checkpoint. Both ways of assigning are measured in Python
over the same batches, so that the ratio is of the ways and not of languages.

Recovery has no ratio: SMQ's is that of a whole shard which was killed, until it has appended a
record at the next offset; beside it stands the counting alone.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import number, write_between
from smq.testing.smq_broker import SmqCommand

DOCUMENT = Path("docs/performance.md")
BEGIN = "<!-- written by bench.offsets: begin -->"
END = "<!-- written by bench.offsets: end -->"
SIZES = 1, 100, 10_000
HEADING = "| offsets | by batch | by timestamp | ratio |\n|---|---|---|---|"
READY_SECONDS_MAX = 60
VALUE = bytes(100)


class BatchOffsets:
    """A batch's first offset is the log's end; its records count from there."""

    def __init__(self) -> None:
        self.end = 0

    def assign(self, times_ns: list[int]) -> int:
        """The first offset of a batch."""
        first = self.end
        self.end += len(times_ns)
        return first


class TimestampOffsets:
    """Each record gets a time of its own, and then a number."""

    def __init__(self) -> None:
        self.last_ns, self.end = 0, 0

    def assign(self, times_ns: list[int]) -> int:
        """The first number of a batch."""
        first = self.end
        for each in times_ns:
            self.last_ns = each if each > self.last_ns else self.last_ns + 1
            self.end += 1
        return first


def _rate(assign: Callable[[list[int]], int], size: int, records: int) -> float:
    batches = [[*range(at, at + size)] for at in range(0, records, size)]
    began = time.perf_counter()
    for batch in batches:
        assign(batch)
    return len(batches) * size / (time.perf_counter() - began)


def _assigned(records: int) -> list[str]:
    rows = []
    for size in SIZES:
        ours = _rate(BatchOffsets().assign, size, records)
        theirs = _rate(TimestampOffsets().assign, size, records)
        cells = number(ours), number(theirs), number(ours / theirs)
        rows.append(f"| assigned, batches of {size:,}: records/s | {' | '.join(cells)} |")
    return rows


def _counted(records: int) -> float:
    """Milliseconds to count what follows a checkpoint, one entry's length after the other."""
    entry = len(VALUE).to_bytes(4, "big") + VALUE
    log = entry * records
    began = time.perf_counter()
    at = count = 0
    while at < len(log):
        at += 4 + int.from_bytes(log[at : at + 4], "big")
        count += 1
    assert count == records
    return (time.perf_counter() - began) * 1000


def _recovered(directory: Path, records: int) -> float:
    """Milliseconds from a shard's kill -9 until a record is appended at the next offset."""
    with SmqCommand(directory, {"shards": "1"}) as broker, broker.connect() as client:
        client.create_topic("t", 1)
        with client.producer() as producer:
            producer.send_batch("t", {"value": [VALUE] * records}).result(READY_SECONDS_MAX)
        broker.kill("shard-1")
        began = time.perf_counter()
        with client.producer() as producer:
            offset = producer.send("t", VALUE).result(READY_SECONDS_MAX).offset
        assert offset == records, f"the next offset is {offset}, after {records} records"
        return (time.perf_counter() - began) * 1000


def main() -> None:
    """Measure, print the table, and write it down if asked to."""
    parser = argparse.ArgumentParser(prog="python -m bench.offsets")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = _assigned(options.records)
    for records in (options.records // 10, options.records):
        with tempfile.TemporaryDirectory(prefix="smq-bench-") as name:
            ours = _recovered(Path(name), records)
        theirs = _counted(records)
        cells = number(ours), number(theirs), ""
        rows.append(f"| next offset after a crash, {records:,} records: ms | {' | '.join(cells)} |")
    print("\n".join([HEADING, *rows]))
    if options.write:
        command = f"python -m bench.offsets --records {options.records} --write"
        text = "\n".join([HEADING, *rows, "", f"Printed by `{command}`."])
        write_between(DOCUMENT, BEGIN, END, text)


if __name__ == "__main__":
    main()
