"""Floods and backlogs, SMQ beside Apache Kafka, as one table: `python -m bench.flood_table`.

Every line has brokers of its own, so that no line depends on another's leftovers; a broker that is
not measured does not run. With `--gb 20` SMQ takes some 40 GB of the disk, and the whole run an
hour; with `--gb 5` it takes some 10 GB and 20 minutes. `--quick` is a look with 1 GB and a fifth of
the time, `--only WORDS` takes the lines whose name has these words, `--write` puts the table into
docs/performance.md and its headlines into README.md. A failing line is reported, and the others
continue.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.clients.programs import ClientFailed, has_librdkafka, librdkafka, raw, raw_process
from bench.local.lines import tables
from bench.machine import direct_read_mb_s, first_touches, touch_free_memory, warm_file
from bench.measures.beside import (
    again_and_again,
    beside_a_drain,
    beside_sealing,
    disk_beside_a_flood,
    hurried_sealing,
    singles_beside_sealing,
    tail_beside_sealing,
)
from bench.measures.filling import READER, await_sealed, fill
from bench.measures.lines import GB, Figures, Line, topic
from bench.measures.parts import Part, Run
from bench.measures.rebalance import rebalanced_group
from bench.report import number, write_between
from smq.load.cost import RINGS, pss_mb
from smq.model.errors import BrokerError
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqCommand

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
BEGIN = "<!-- written by bench.flood_table: begin -->"
END = "<!-- written by bench.flood_table: end -->"
UNBOUNDED = {"page.cache.bytes": "-1"}  # What the system keeps of the logs is its choice.
AT_ONCE = {"seal.late.ms": "0"}  # Sealing waits for no idle core.
SMALL_CACHE = {"page.cache.bytes": "1GiB"}
SEALED_ONLY = {"seal.ms": "2000", "wal.keep.bytes": "0"}  # What is sealed leaves the log at once.
NEIGHBOUR_BYTES = 256 << 20
CONNECTIONS = 9900  # Beside the ten of the load: 10,000 is the broker's bound.
DOOR_WARM_UP_ROWS = 2_000_000
SPREAD_BATCH_BYTES = 16384
HEADLINES = (  # Of the README: what a newcomer decides by.
    "| flood of 1 KiB, librdkafka:",
    "| flood of 100 B",
    "| read from the earliest, sealed only:",
    "| producers at 50,000 msg/s beside sealing:",
    "| single-record requests beside sealing:",
    "| 100 B through the local door:",
    "| 10,000 connections: p99",
)


def flood(run: Run, broker: Broker) -> Figures:
    """1 KiB through librdkafka, and all of it read back."""
    neighbour = warm_file(run.directory / "neighbour", NEIGHBOUR_BYTES)
    with topic(broker) as name, neighbour as still_warm:
        records, figures = fill(broker, name, run.gb)
        figures["neighbour"] = still_warm()
        figures["slowest_of_median"] = figures["slowest_second"] / figures["median_second"]
        read = librdkafka(broker.bootstrap, "consume", topic=name, records=records, **READER)
    return figures | {"read_mb_s": read["mb_s"]}


def disk_limit(run: Run, _: Broker) -> Figures:
    """What the disk gives to a backlog that is read past the page cache."""
    return {"disk_mb_s": direct_read_mb_s(run.directory)}


def small_flood(run: Run, broker: Broker) -> Figures:
    """100 B in batches of 1 MB, half as many bytes."""
    with topic(broker) as name:
        total = int(run.gb / 2 * GB)
        return raw(broker.port, "produce", topic=name, record_bytes=100, bytes=total)


def over_recycled_segments(run: Run, broker: Broker) -> Figures:
    """Batches of 16 KiB and single records, over fresh files and over files that are used again."""

    def rates() -> tuple[float, float]:
        with topic(broker) as name:
            total = int(run.seconds(1.0) * GB)
            batches = raw(
                broker.port, "produce", topic=name, batch_bytes=SPREAD_BATCH_BYTES, bytes=total
            )
            singles = raw(
                broker.port, "produce", topic=name, record_bytes=100, batch_bytes=1, depth=5,
                requests=int(run.seconds(200_000)),
            )  # fmt: skip
        return batches["mb_s"], singles["req_s"]

    batches, singles = rates()
    with topic(broker) as name:
        records, _ = fill(broker, name, run.gb / 2)
        await_sealed(broker, records)  # Nothing else goes on then.
    batches_later, singles_later = rates()
    return {
        "mb_s": batches_later,
        "batches": batches_later / batches,
        "req_s": singles_later,
        "singles": singles_later / singles,
    }


def read_sealed(run: Run, broker: Broker) -> Figures:
    """Read from the earliest what has left the log."""
    with topic(broker) as name:
        records, _ = fill(broker, name, run.gb / 2)
        await_sealed(broker, records)
        read = librdkafka(broker.bootstrap, "consume", topic=name, records=records, **READER)
    return {"mb_s": read["mb_s"]}


def local_door(run: Run, broker: Broker) -> Figures:
    """20 million messages of 100 B as Arrow batches through the local door, once it is warm."""
    with topic(broker) as name:
        tables(broker.bootstrap, name, DOOR_WARM_UP_ROWS)
    with topic(broker) as name:
        return tables(broker.bootstrap, name, 5_000_000 if run.quick else 20_000_000)


def partitions(run: Run, broker: Broker) -> Figures:
    """The same load over more and more partitions, first pass; memory of an idle one."""
    total, figures = int(run.seconds(1.0) * GB), Figures()
    for count in (1, 1000, 10_000):
        before = pss_mb(broker.pids(), without=RINGS)
        with topic(broker, count) as name:
            figures[f"kib_{count}"] = (
                (pss_mb(broker.pids(), without=RINGS) - before) * 1e6 / 1024 / count
            )
            figures[f"mb_s_{count}"] = raw(
                broker.port, "produce", topic=name, partitions=count,
                batch_bytes=SPREAD_BATCH_BYTES, bytes=total,
            )["mb_s"]  # fmt: skip
    for count in (1000, 10_000):
        figures[f"share_{count}"] = figures[f"mb_s_{count}"] / figures["mb_s_1"]
    return figures


def connections(run: Run, broker: Broker) -> Figures:
    """Latency beside ten and beside 9,900 other connections, and what an idle one takes."""
    ten = run.p99_us(broker, "publish", "many-connections", idleConnections=10)
    many = run.p99_us(broker, "publish", "many-connections", idleConnections=CONNECTIONS)
    before = pss_mb(broker.pids(), without=RINGS)
    with raw_process(broker.port, "idle", connections=CONNECTIONS) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        client.stdout.readline()
        after = pss_mb(broker.pids(), without=RINGS)
        client.stdin.close()
    kib = (after - before) * 1e6 / 1024 / CONNECTIONS
    return {"ten_us": ten, "many_us": many, "times": many / ten, "kib": kib}


def groups(run: Run, broker: Broker) -> Figures:
    """1,000 consumers in 100 groups, one of which leaves and comes back each two seconds.

    Beside them a group of ten whose members answer at once rebalances again and again.
    """

    def rebalance() -> None:
        group.rebalance()
        time.sleep(0.2)

    count = 10 if run.quick else 100
    with rebalanced_group(broker.bootstrap, "rebalanced") as group, again_and_again(rebalance):
        result = run.step(broker, "many-groups", subscriptionsPerTopic=count)
    latency, cost = result["latency_us"], result["cost"]
    return {
        "rebalance_ms": median(group.seconds) * 1000,
        "rejoin_ms": latency["rejoin"]["p50"] / 1000,
        "memory_mb": cost["memory_mb"],
    }


PARTS = (
    Part("flood of 1 KiB, librdkafka", flood, (
        Line("whole run, MB/s", "mb_s", "≥ 2.5"),
        Line("slowest second, of its median", "slowest_of_median", "SMQ ≥ 0.5"),
        Line("read from the earliest, MB/s", "read_mb_s", "≥ 1.0"),
        Line("a neighbour's warm file, the share that is still cached", "neighbour", "SMQ ≥ 0.95"),
    )),
    Part("flood of 1 KiB, page cache unbounded", flood, (
        Line("whole run, MB/s", "mb_s", ""),
        Line("slowest second, of its median", "slowest_of_median", ""),
        Line("read from the earliest, MB/s", "read_mb_s", ""),
    ), UNBOUNDED, with_kafka=False),
    Part("flood of 1 KiB, page cache of 1 GiB", flood, (
        Line("whole run, MB/s", "mb_s", ""),
        Line("slowest second, of its median", "slowest_of_median", ""),
        Line("read from the earliest, MB/s", "read_mb_s", ""),
    ), SMALL_CACHE, with_kafka=False),
    Part("limit of reading a flood of 1 KiB", disk_limit, (
        Line("the disk, past the page cache, MB/s", "disk_mb_s", ""),
    ), with_kafka=False),
    Part("acks of a `disk` topic beside a flood", disk_beside_a_flood, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
    ), with_kafka=False),
    Part("acks of a `disk` topic beside a flood, page cache unbounded", disk_beside_a_flood, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
    ), UNBOUNDED, with_kafka=False),
    Part("flood of 100 B in 1 MB batches", small_flood, (Line("MB/s", "mb_s", "≥ 1.3"),)),
    Part("over recycled segments", over_recycled_segments, (
        Line("16 KiB batches, MB/s", "mb_s", ""),
        Line("of those over fresh files", "batches", "SMQ ≥ 0.9"),
        Line("single-record requests, five deep, requests/s", "req_s", ""),
        Line("of those over fresh files", "singles", "SMQ ≥ 0.9"),
    ), SEALED_ONLY, with_kafka=False),
    Part("read from the earliest, sealed only", read_sealed, (
        Line("MB/s", "mb_s", "≥ 0.6"),
    ), SEALED_ONLY),
    Part("read from the earliest, sealed only, page cache unbounded", read_sealed, (
        Line("MB/s", "mb_s", ""),
    ), SEALED_ONLY | UNBOUNDED, with_kafka=False),
    Part("producers at 10,000 msg/s beside a drain", beside_a_drain, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
        Line("times", "times", "SMQ ≤ 1.5"),
    )),
    Part("producers at 10,000 msg/s beside a drain, page cache unbounded", beside_a_drain, (
        Line("times", "times", ""),
    ), UNBOUNDED, with_kafka=False),
    Part("producers at 10,000 msg/s beside sealing", beside_sealing, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
        Line("times", "times", "SMQ ≤ 1.5"),
    ), with_kafka=False),
    Part("producers at 50,000 msg/s beside sealing", tail_beside_sealing, (
        Line("p99.9, µs", "tail_us", "≤ 1.0"),
    )),
    Part("producers at 50,000 msg/s beside sealing at once", tail_beside_sealing, (
        Line("p99.9, µs", "tail_us", ""),
    ), AT_ONCE, with_kafka=False),
    Part("single-record requests beside sealing", singles_beside_sealing, (
        Line("at rest, requests/s", "rest", ""),
        Line("at rest, the shard's CPU a request, µs", "cpu_us", "SMQ ≤ 4.4"),
        Line("beside sealing, of those at rest", "share", "SMQ ≥ 0.9"),
    ), with_kafka=False),
    Part("single-record requests beside sealing at once", singles_beside_sealing, (
        Line("of those at rest", "share", ""),
    ), AT_ONCE, with_kafka=False),
    Part("sealing that waits for nothing", hurried_sealing, (
        Line("MB of batches a second of its CPU time", "mb_cpu_s", "SMQ ≥ 300"),
    ), AT_ONCE, with_kafka=False),
    Part("100 B through the local door", local_door, (
        Line("msg/s", "msg_s", "SMQ ≥ 8,000,000"),
    ), with_kafka=False),
    Part("100 B through the local door, page cache unbounded", local_door, (
        Line("msg/s", "msg_s", ""),
    ), UNBOUNDED, with_kafka=False),
    Part("the same load over partitions", partitions, (
        Line("one, MB/s", "mb_s_1", ""),
        Line("1,000, of one", "share_1000", "SMQ ≥ 0.9"),
        Line("10,000, of one", "share_10000", "SMQ ≥ 0.7"),
        Line("an idle one of 10,000, KiB", "kib_10000", "SMQ ≤ 8"),
    ), with_kafka=False),  # It refuses to create so many partitions in one request.
    Part("10,000 connections", connections, (
        Line("p99 beside ten, µs", "ten_us", ""),
        Line("times that beside all", "times", "SMQ ≤ 2"),
        Line("an idle one, KiB", "kib", "SMQ ≤ 10"),
    )),
    Part("1,000 consumers in 100 groups", groups, (
        Line("a rebalance of ten that answer at once, p50, ms", "rebalance_ms", "SMQ ≤ 100"),
        Line("rejoin p50, ms", "rejoin_ms", ""),
        Line("all processes without rings, MB", "memory_mb", "SMQ < 250"),
    )),
)  # fmt: skip


def measured(part: Part, run: Run) -> list[str]:
    """The lines of a part, as rows of Markdown."""
    figures: dict[str, Figures] = {}
    for name in ("smq", "kafka") if part.with_kafka else ("smq",):
        with tempfile.TemporaryDirectory(prefix="smq-flood-", dir=run.directory) as directory:
            os.sync()
            with ExitStack() as stack:
                try:
                    broker = _broker(name, Path(directory), part)
                    figures[name] = part.run(run, stack.enter_context(broker))
                except (ClientFailed, KafkaUnavailable, BrokerError) as failure:
                    print(f"{part.name}, {name}: {failure}", file=sys.stderr)
    return [_row(part, line, figures) for line in part.lines]


def _broker(name: str, directory: Path, part: Part) -> Broker:
    return SmqCommand(directory, part.settings) if name == "smq" else Kafka(directory)


def _row(part: Part, line: Line, figures: Mapping[str, Figures]) -> str:
    ours, theirs = (figures.get(name, {}).get(line.figure) for name in ("smq", "kafka"))
    ratio = ours / theirs if ours is not None and theirs else None
    words = f"{part.name}: {line.words}"
    return f"| {words} | {number(ours)} | {number(theirs)} | {number(ratio)} | {line.target} |"


def main() -> None:
    """Measure, print the table, and write it down if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--gb", type=float, default=20.0, help="size of the flood; other lines take a part"
    )
    parser.add_argument("--quick", action="store_true", help="1 GB, and a fifth of the time")
    parser.add_argument("--only", default="", help="lines whose name has these words")
    parser.add_argument(
        "--write",
        action="store_true",
        help="into docs/performance.md, the headlines into README.md",
    )
    options = parser.parse_args()
    rows = ["| measure | SMQ | Apache Kafka | ratio | target |", "|---|---|---|---|---|"]
    if not has_librdkafka():
        sys.exit("install librdkafka's headers (librdkafka-dev)")
    found = first_touches()
    touch_free_memory()
    memory = f"First touches of free pages: {found}; {first_touches()} once all were touched."
    print(memory, flush=True)
    with tempfile.TemporaryDirectory(prefix="smq-flood-") as directory:
        gigabytes = 1.0 if options.quick else options.gb
        run = Run(gigabytes, options.quick, Path(directory))
        for part in PARTS:
            if options.only.lower() in part.name.lower():
                rows += (taken := measured(part, run))
                print("\n".join(taken), flush=True)
    if options.write:
        command = " ".join(["python -m bench.flood_table", *sys.argv[1:]])
        notes = ["", f"Printed by `{command}`. {memory}"]
        short = [*rows[:2], *(row for row in rows if row.startswith(HEADLINES))]
        for document, lines in ((DOCUMENT, rows), (README, short)):
            write_between(document, BEGIN, END, "\n".join([*lines, *notes]))


if __name__ == "__main__":
    main()
