"""Another process maps the live frames as Arrow and counts delays without a copy.

`python -m examples.demo.live <data dir> <topic>` prints a line of JSON. It maps each log's memory
read-only, finds the topic's frames through the index, and passes their values to DuckDB as Arrow
views: 16 bytes a record that point at the payload in the broker's memory.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from shm.arrow import read_only, views
from shm.reader import LogReader, Snapshot
from smq.app.process.clock import monotonic_ns
from smq.app.process.status import attach_logs, read_status
from smq.store.manifest import open_manifest

QUERY = """
    SELECT count(*) AS flights, count(*) FILTER ((value ->> 'dep_delay')::INT > 15) AS delayed
    FROM live
"""


def partition_numbers(data_dir: Path, topic: str) -> set[int]:
    """The numbers of the topic's partitions in frames."""
    with open_manifest(data_dir / "store.sqlite") as manifest:
        return {
            n for each in manifest.topics() if each.name == topic for n in each.partition_numbers
        }


class Batch(NamedTuple):
    """A record batch in place in a ring."""

    number: int
    base_offset: int
    data: np.ndarray


def visible_batches(log: LogReader, snapshot: Snapshot, numbers: set[int]) -> Iterator[Batch]:
    """The visible batches of these partitions in the ring."""
    for number in numbers:
        for place in log.visible(snapshot, number):
            yield Batch(number, place.base_offset, read_only(place.data))


def values_of(batches: list[Batch]) -> pa.ChunkedArray:
    """The values of their records, as views of the payload."""
    values = (views(batch.data)[1].view(pa.string_view()) for batch in batches)
    return pa.chunked_array(list(values), pa.string_view())


def spans(batches: list[Batch], flights: int) -> dict[int, list[int]]:
    """The first and end offset of each partition; checks that nothing is missing in between."""
    found: dict[int, list[int]] = {}
    for batch in batches:
        end = batch.base_offset + len(views(batch.data)[1])
        found.setdefault(batch.number, [batch.base_offset, end])[1] = end
    assert sum(end - first for first, end in found.values()) == flights
    return found


def main() -> None:
    data_dir, topic = Path(sys.argv[1]), sys.argv[2]
    found = read_status(data_dir)
    assert found, "the broker does not run"
    numbers = partition_numbers(data_dir, topic)
    views(read_only(bytes(0)))  # Load the kernels outside the timed part.
    started_ns = monotonic_ns()
    snapshots = [(log, log.snapshot()) for log in map(LogReader, attach_logs(found[0]))]
    batches = [b for log, seen in snapshots for b in visible_batches(log, seen, numbers)]
    live = pa.table({"value": values_of(batches)})
    mapped_ns = monotonic_ns()
    with duckdb.connect() as database:
        database.register("live", live)
        (counts,) = database.execute(QUERY).fetchall()
    read_ns = monotonic_ns()
    told_spans = spans(batches, counts[0])
    if not all(seen.is_intact() for _, seen in snapshots):
        raise SystemExit("the ring has overtaken this reader: read again")
    told = {
        "flights": counts[0],
        "delayed": counts[1],
        "spans": told_spans,
        "payload_bytes": sum(len(batch.data) for batch in batches),
        "view_bytes": 16 * len(live),
        "map_ms": (mapped_ns - started_ns) / 1e6,
        "query_ms": (read_ns - mapped_ns) / 1e6,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
