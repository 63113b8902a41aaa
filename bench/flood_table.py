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
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.clients.programs import ClientFailed, has_librdkafka, librdkafka, raw, raw_process
from bench.local.lines import tables
from bench.machine import direct_read_mb_s, first_touches, touch_free_memory, warm_file
from bench.measures.filling import await_sealed, fill, fill_spread, sealed_bytes
from bench.measures.lines import GB, Figures, topic
from bench.measures.rebalance import rebalanced_group
from bench.report import number, write_between
from smq.cli.bench import measured_step, steps_for
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
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
SMALL_CACHE = {"page.cache.bytes": "1GiB"}
SEALED_ONLY = {"seal.ms": "2000", "wal.keep.bytes": "0"}  # What is sealed leaves the log at once.
SEALING_GB_MIN = 4.0  # So that it takes longer than what is measured beside it.
SEALS_ALONG = {"smq.seal.ms": "1000", "smq.seal.bytes": "16777216"}
SEALS_LATER = {"smq.seal.ms": "86400000", "smq.seal.bytes": str(1 << 40)}
READER = {"fetch_message_max_bytes": 8 << 20, "fetch_max_bytes": 50 << 20}
DISK_FLOOD_GB = 0.5
NEIGHBOUR_BYTES = 256 << 20
CONNECTIONS = 9900  # Beside the ten of the load: 10,000 is the broker's bound.
DOOR_WARM_UP_ROWS = 2_000_000
SPREAD_BATCH_BYTES = 16384
HEADLINES = (  # Of the README: what a newcomer decides by.
    "| flood of 1 KiB, librdkafka",
    "| flood of 100 B",
    "| read from the earliest",
    "| producers at 50,000",
    "| single-record requests",
    "| 100 B through the local door",
    "| 10,000 connections: p99",
)


class Line(NamedTuple):
    """A figure of a part: its words, its target, and whether that is of SMQ's ratio to Kafka."""

    words: str
    figure: str
    target: str


@dataclass
class Run:
    """How much is measured."""

    gb: float
    quick: bool
    directory: Path

    def seconds(self, full: float) -> float:
        return full / 5 if self.quick else full

    def step(self, broker: Broker, workload: str, **fields: object) -> Mapping[str, Any]:
        """The result of one step of a workload of `smq bench`. Raises ClientFailed."""
        minutes = {"testDurationMinutes": self.seconds(30) / 60}
        given = [f"{name}={value}" for name, value in (minutes | fields).items()]
        [step] = steps_for(workload, given)
        result, problem = measured_step(broker.bootstrap, step, broker.name)
        if problem:
            raise ClientFailed(problem)
        return result

    def p99_us(self, broker: Broker, figure: str, workload: str, **fields: object) -> float:
        """A 99th percentile of such a step."""
        return self.percentile_us(broker, "p99", workload, figure, **fields)

    def percentile_us(
        self, broker: Broker, percentile: str, workload: str, figure: str, **fields: object
    ) -> float:
        """A percentile of such a step."""
        return float(self.step(broker, workload, **fields)["latency_us"][figure][percentile])


class Part(NamedTuple):
    """What is run, with which settings of SMQ, and the lines that come of it."""

    name: str
    run: Callable[[Run, Broker], Figures]
    lines: tuple[Line, ...]
    settings: Mapping[str, str] = MappingProxyType({})
    with_kafka: bool = True


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


def disk_beside_a_flood(run: Run, broker: Broker) -> Figures:
    """Acks of a `disk` topic, one request in flight, alone and beside a flood of an `os` topic."""
    requests = int(run.seconds(5000))
    with topic(broker, smq_durability="disk") as name, topic(broker) as other:
        options = {"topic": name, "record_bytes": 100, "batch_bytes": 1, "depth": 1}
        alone = raw(broker.port, "produce", requests=requests, **options)["p99_us"]
        with again_and_again(lambda: fill(broker, other, DISK_FLOOD_GB)):
            beside = raw(broker.port, "produce", requests=requests, **options)["p99_us"]
    return {"alone_us": alone, "beside_us": beside}


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


@contextmanager
def again_and_again(action: Callable[[], object]) -> Iterator[list[int]]:
    """Do it in a thread until the block ends; gives a list that grows by one each time."""
    stop, done, met = Event(), list[int](), list[Exception]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                action()
                done.append(1)
        except Exception as failure:  # noqa: BLE001  (carried over)
            met.append(failure)

    thread = Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    if met:
        raise met[0]


def beside_a_drain(run: Run, broker: Broker) -> Figures:
    """Producers at 10,000 messages a second, alone, and while a backlog is read again and again."""
    alone = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    with topic(broker) as name:
        records, _ = fill(broker, name, min(run.gb, 4))
        read = partial(
            librdkafka, broker.bootstrap, "consume", topic=name, records=records, **READER
        )
        with again_and_again(read):
            beside = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    return {"alone_us": alone, "beside_us": beside, "times": beside / alone}


@contextmanager
def sealing(run: Run, broker: Broker) -> Iterator[None]:
    """A backlog that is sealed meanwhile; Apache Kafka just has it."""
    if broker.name != "smq":
        with topic(broker, 8) as name:
            fill_spread(broker, name, max(run.gb / 2, SEALING_GB_MIN))
            yield
        return
    with topic(broker, 8, **SEALS_LATER) as name:
        records = fill_spread(broker, name, max(run.gb / 2, SEALING_GB_MIN))
        with Cluster(broker.bootstrap) as cluster:
            alter_topic(cluster, name, SEALS_ALONG, ())
        deadline = time.monotonic() + 30
        while sealed_bytes(broker)[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield
        if sealed_bytes(broker)[0] >= records:
            print("  sealing ended before the measurement did", file=sys.stderr)


def beside_sealing(run: Run, broker: Broker) -> Figures:
    """Producers at 10,000 messages a second, alone, and while a backlog is sealed."""
    alone = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    with sealing(run, broker):
        beside = run.p99_us(broker, "publish", "latency", producerRate=10_000)
    return {"alone_us": alone, "beside_us": beside, "times": beside / alone}


def tail_beside_sealing(run: Run, broker: Broker) -> Figures:
    """The slowest thousandth of 50,000 messages a second while a backlog is sealed."""
    with sealing(run, broker):
        tail = run.percentile_us(broker, "p99.9", "latency", "publish", producerRate=50_000)
    return {"tail_us": tail}


def singles_beside_sealing(run: Run, broker: Broker) -> Figures:
    """Requests of one record, five deep, at rest and while a backlog is sealed."""
    requests = int(run.seconds(500_000))

    def rate() -> float:
        with topic(broker) as name:
            return raw(
                broker.port, "produce", topic=name, record_bytes=100, batch_bytes=1, depth=5,
                requests=requests,
            )["req_s"]  # fmt: skip

    rest = rate()
    with sealing(run, broker):
        busy = rate()
    return {"rest": rest, "busy": busy, "share": busy / rest}


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
    Part("producers at 10,000 msg/s beside a drain", beside_a_drain, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
        Line("times", "times", "SMQ ≤ 1.5"),
    )),
    Part("producers at 10,000 msg/s beside sealing", beside_sealing, (
        Line("p99 alone, µs", "alone_us", ""),
        Line("p99 beside it, µs", "beside_us", ""),
        Line("times", "times", "SMQ ≤ 1.5"),
    ), with_kafka=False),
    Part("producers at 50,000 msg/s beside sealing", tail_beside_sealing, (
        Line("p99.9, µs", "tail_us", "≤ 1.0"),
    )),
    Part("single-record requests beside sealing", singles_beside_sealing, (
        Line("at rest, requests/s", "rest", ""),
        Line("of that beside sealing", "share", "SMQ ≥ 0.9"),
    ), with_kafka=False),
    Part("100 B through the local door", local_door, (
        Line("msg/s", "msg_s", "SMQ ≥ 8,000,000"),
    ), with_kafka=False),
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
