"""How fast Spark and SQL read topics: `python -m bench.spark`, a table of ratios from one run.

It needs the extras `spark`, `sql` and `bench`; the lines beside Spark's Kafka source also Maven and
Java, for Apache Kafka and that source's jars. Whatever is compared takes turns; a line gives the
median of the rounds after some warm-ups. `--write` puts the table into docs/performance.md.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.report import write_between
from bench.spark.inputs import (
    fill,
    fill_kafka,
    kafka_source_jars,
    make_segments,
    segments_of,
    wait_sealed,
)
from smq.client.kafka.cluster import Cluster
from smq.filer.location import Location
from smq.load.cost import cpu_seconds
from smq.model.segments import directory_of
from smq.sql.broker_rows import BrokerTopics
from smq.sql.session import QueryBounds, QueryTopics, TopicSource, running
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.smq_broker import SmqCommand
from spark_jobs import read_topic, start_session, stream_topic
from spark_jobs.native import FILE_SCHEMA
from spark_jobs.source.reading import SmqReader

RECORDS = 5_000_000
SQL_SEALED, SQL_LIVE = 10_000_000, 1_000_000
KAFKA_RECORDS = 2_000_000
PLANNED_SEGMENTS = 5_000
WARM_UPS, ROUNDS = 4, 6  # The JVM compiles what it runs for seconds.
STREAM_BATCHES = 5
PLANNED_BATCHES, PLANNED_WARM_UPS = 60, 10
PLANNING = ("latestOffset", "queryPlanning", "addBatch")  # The rest of a batch is its checkpoint.
RATE, FRESH_S, WARM_S = 20_000, 20.0, 10.0
SEALS = {"smq.seal.ms": "2000"}
STAYS = {"smq.seal.ms": "3600000", "smq.seal.bytes": str(1 << 40)}
SMQ_SETTINGS = {"shards": "1"}
OVER_THE_WIRE = 'format("smq"), transport=kafka'
DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- written by bench.spark: begin -->", "<!-- written by bench.spark: end -->"
GiB = 1 << 30
SQL_BYTES = 4 * GiB


class Line(NamedTuple):
    """A line of the table. `figure` is of SMQ, `other` of what it is compared with."""

    words: str
    figure: float
    other: float | None
    target: str

    def __str__(self) -> str:
        ratio = "" if self.other is None else f"{self.figure / self.other:.2f}"
        other = "" if self.other is None else f"{self.other:,.2f}"
        return f"| {self.words} | {self.figure:,.2f} | {other} | {ratio} | {self.target} |"


class Bench:
    """A broker, a Spark session, and the lines so far."""

    def __init__(self, broker: SmqCommand, spark: SparkSession, scale: float) -> None:
        self.broker, self.spark, self.scale = broker, spark, scale
        self.directory = broker.data_dir.parent / "bench"

    def cpu_s(self) -> float:
        """The CPU time of Spark so far: its JVM, and the Python workers that this started."""
        gateway: Any = self.spark.sparkContext._gateway  # noqa: SLF001  (knows the process)
        return cpu_seconds([gateway.proc.pid])

    def count(self, records: int) -> int:
        """So many records, or fewer in a quick run."""
        return max(10_000, int(records * self.scale))

    def plain(self, topic: str) -> DataFrame:
        """The files of a topic, without anything of ours."""
        filer = self.broker.data_dir / "filer"
        paths = [str(filer / each.path) for each in segments_of(self.broker, topic)]
        base = str(filer / directory_of("kafka", topic))
        return self.spark.read.schema(FILE_SCHEMA).option("basePath", base).parquet(*paths)

    def topic(self, topic: str) -> DataFrame:
        """A topic through `read_topic`."""
        return read_topic(self.spark, topic, data_dir=self.broker.data_dir)

    def rows(self, source: str, topic: str, bootstrap: str, **options: str) -> DataFrame:
        """A topic through a source of Kafka's kind."""
        reader = self.spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).options(**options).load()


def noop(rows: DataFrame) -> None:
    """Read all of it."""
    rows.write.format("noop").mode("overwrite").save()


def in_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds of each, after the warm-ups."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(WARM_UPS + rounds):
        for name, act in ways.items():
            began = clock()
            act()
            taken[name].append(clock() - began)
    return {name: statistics.median(each[WARM_UPS:]) for name, each in taken.items()}


def scans(bench: Bench) -> list[Line]:
    """Whole and narrow reads beside Spark's reader over the same files; Python sources."""
    count = bench.count(RECORDS)
    fill(bench.broker, "scan", count, SEALS)
    wait_sealed(bench.broker, "scan", count)
    plain, ours = bench.plain("scan"), bench.topic("scan")
    return [
        compared(
            "read_topic, all columns: M rows/s, beside spark.read.parquet", "≥ 0.95", count,
            ours=lambda: noop(ours), plain=lambda: noop(plain),
        ),
        compared(
            "read_topic, sum(length(value)), max(offset)", "≥ 0.95", count,
            ours=lambda: ours.agg(f.sum(f.length("value")), f.max("offset")).collect(),
            plain=lambda: plain.agg(f.sum(f.length("_value")), f.max("_offset")).collect(),
        ),
        compared(
            "read_topic, count of 10,000 offsets", "≥ 0.95", count,
            ours=lambda: ours.where("offset between 50000 and 59999").count(),
            plain=lambda: plain.where("_offset between 50000 and 59999").count(),
        ),
        *python_sources(bench, count, ours),
    ]  # fmt: skip


def python_sources(bench: Bench, count: int, native: DataFrame) -> list[Line]:
    """`format("smq")` beside the most that a Python source can do, and both beside `read_topic`."""
    options = {"kafka.bootstrap.servers": bench.broker.bootstrap, "subscribe": "scan"}
    options["includeHeaders"] = "true"

    def rows() -> DataFrame:
        return bench.spark.read.format("smq").options(**options).load()

    source = in_memory(rows().schema, options, bench.directory / "in-memory")
    bench.spark.dataSource.register(source)

    def ready() -> DataFrame:
        return bench.spark.read.format(source.name()).load()

    return [
        compared(
            'format("smq"), all columns, beside read_topic', "", count,
            ours=lambda: noop(rows()), native=lambda: noop(native),
        ),
        compared(
            'format("smq"): M rows per s of CPU, beside a Python source of these rows in memory',
            "≥ 0.95", count, clock=bench.cpu_s,
            ours=lambda: noop(rows()), ready=lambda: noop(ready()),
        ),
        compared(
            "a Python source of these rows in memory, beside read_topic", "", count,
            ours=lambda: noop(ready()), native=lambda: noop(native),
        ),
    ]  # fmt: skip


def compared(
    words: str,
    target: str,
    count: int,
    clock: Callable[[], float] = time.perf_counter,
    **ways: Callable[[], object],
) -> Line:
    """The line of one comparison: millions of rows a second of "ours" and of the other."""
    taken = in_turns(ways, clock=clock)
    ours_s = taken.pop("ours")
    (other_s,) = taken.values()
    line = Line(words, count / 1e6 / ours_s, count / 1e6 / other_s, target)
    print(line, flush=True)
    return line


def in_memory(columns: StructType, options: dict[str, str], directory: Path) -> type[DataSource]:
    """A source of the rows of `format("smq")`, without reading them: the limit of Python's sources.

    The same Arrow batches in the same tasks, from files that are mapped into memory. It is here
    since workers cannot import `bench`: Spark sends them classes of `__main__` whole.
    """
    directory.mkdir(parents=True)
    reader, paths = SmqReader(options, columns), list[str]()
    for number, task in enumerate(reader.partitions()):
        paths.append(str(directory / f"{number}.arrow"))
        batches = reader.read(task)
        first = next(batches)
        with pa.OSFile(paths[-1], "wb") as file, pa.ipc.new_file(file, first.schema) as rows:
            for batch in chain([first], batches):
                rows.write_batch(batch)

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(path) for path in paths]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            rows = pa.ipc.open_file(pa.memory_map(partition.value))
            return map(rows.get_batch, range(rows.num_record_batches))

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "in-memory"

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    return Source


def planning(bench: Bench) -> list[Line]:
    """How long a DataFrame of many segments takes, before anything is read."""
    directory = bench.directory / "planning"
    make_segments(directory, "many", PLANNED_SEGMENTS)
    taken = in_turns(
        {"plan": lambda: read_topic(bench.spark, "many", data_dir=directory)}, rounds=5
    )
    count = read_topic(bench.spark, "many", data_dir=directory).count()
    assert count == PLANNED_SEGMENTS, count
    words = f"read_topic, planning of {PLANNED_SEGMENTS:,} segments: s"
    return [Line(words, taken["plan"], None, "≤ 1")]


def streams(bench: Bench) -> list[Line]:
    """The plan stream beside Spark's file stream over the same files."""
    if not segments_of_or_none(bench, "scan"):
        scans(bench)
    count = bench.count(RECORDS)
    each = max(1, count // STREAM_BATCHES)
    base = str(bench.broker.data_dir / "filer" / directory_of("kafka", "scan"))
    files = len(segments_of(bench.broker, "scan"))

    def ours() -> float:
        stream = stream_topic(
            bench.spark, "scan", dataDir=bench.broker.data_dir, startingOffsets="earliest",
            maxOffsetsPerTrigger=each, tail="sealed",
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as checkpoint:
            query = stream.foreach_batch(
                lambda rows, _: noop(rows), checkpoint=checkpoint, availableNow=True
            )
            query.awaitTermination()
            return _batches_s(query)

    def theirs() -> float:
        reader = bench.spark.readStream.schema(FILE_SCHEMA)
        reader = reader.option("maxFilesPerTrigger", max(1, files // STREAM_BATCHES))
        writer = reader.parquet(base).writeStream.foreachBatch(lambda rows, _: noop(rows))
        with tempfile.TemporaryDirectory() as checkpoint:
            query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            running_query = query.start()
            running_query.awaitTermination()
            return _batches_s(running_query)

    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(WARM_UPS + ROUNDS):
        taken["ours"].append(ours())
        taken["theirs"].append(theirs())
    ours_s, theirs_s = (statistics.median(taken[name][WARM_UPS:]) for name in ("ours", "theirs"))
    words = "stream_topic: M rows/s, beside Spark's file stream"
    return [
        Line(words, count / 1e6 / ours_s, count / 1e6 / theirs_s, "≥ 0.85"),
        Line("stream_topic, planning of a batch: ms", _planning_ms(bench, count), None, "≤ 40"),
    ]


def _planning_ms(bench: Bench, count: int) -> float:
    """What a batch of `stream_topic` takes that is never read."""
    stream = stream_topic(
        bench.spark, "scan", dataDir=bench.broker.data_dir, startingOffsets="earliest",
        maxOffsetsPerTrigger=max(1, count // PLANNED_BATCHES), tail="sealed",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.foreach_batch(lambda *_: None, checkpoint=checkpoint, availableNow=True)
        query.awaitTermination()
    taken = [each["durationMs"] for each in query.recentProgress]
    batches = [each for each in taken if each.get("addBatch")][PLANNED_WARM_UPS:]
    return float(statistics.median(sum(each[part] for part in PLANNING) for each in batches))


def segments_of_or_none(bench: Bench, topic: str) -> int:
    """How many segments a topic has; 0 too if it does not exist."""
    try:
        return len(segments_of(bench.broker, topic))
    except ValueError:
        return 0


def _batches_s(query: Any) -> float:  # noqa: ANN401  (Spark's)
    """The time of a query's batches with records."""
    progress = [each for each in query.recentProgress if each["durationMs"].get("addBatch")]
    return float(sum(each["durationMs"]["triggerExecution"] for each in progress)) / 1000


def freshness(bench: Bench) -> list[Line]:
    """From a record's timestamp until a stream's batch has it, at RATE records a second."""
    with bench.broker.connect() as client:
        client.create_topic("fresh", 4, SEALS)
    delays: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    began_s = time.time()

    def take(rows: DataFrame, _: int) -> None:
        stamps = rows.select(f.unix_millis("timestamp").alias("ms")).toArrow()["ms"].to_numpy()
        now_ms = 1000 * time.time()
        delays.append((now_ms - stamps)[stamps > 1000 * (began_s + WARM_S)])

    reader = bench.spark.readStream.format("smq").option("subscribe", "fresh")
    reader = reader.option("dataDir", str(bench.broker.data_dir))
    writer = reader.option("startingOffsets", "earliest").load().writeStream.foreachBatch(take)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        _feed(bench, WARM_S + FRESH_S)
        query.processAllAvailable()
        query.stop()
    p50, p99 = np.percentile(np.concatenate(delays), [50, 99]) / 1000
    words = f"a record is in a stream's batch, {RATE:,} records/s:"
    return [Line(f"{words} p50 s", p50, None, ""), Line(f"{words} p99 s", p99, None, "≤ 2")]


def _feed(bench: Bench, seconds: float) -> None:
    """RATE records a second, in hundredths of a second."""
    done, step = threading.Event(), RATE // 100
    values = [b"x" * 100] * step
    with bench.broker.connect() as client, client.producer() as producer:
        due_s = time.monotonic()
        end_s = due_s + seconds
        while due_s < end_s:
            producer.send_batch("fresh", {"value": values})
            due_s += 0.01
            done.wait(max(0.0, due_s - time.monotonic()))


def beside_kafka(bench: Bench, kafka: Kafka) -> list[Line]:
    """Our reads beside Spark's Kafka source, which reads the same from SMQ and from Kafka."""
    count = bench.count(KAFKA_RECORDS)
    fill(bench.broker, "peer", count, SEALS)
    wait_sealed(bench.broker, "peer", count)
    fill_kafka(kafka.bootstrap, "peer", count)
    ours, theirs = bench.broker.bootstrap, kafka.bootstrap
    taken = in_turns(
        {
            "read_topic": lambda: noop(bench.topic("peer")),
            'format("smq")': lambda: noop(bench.rows("smq", "peer", ours)),
            OVER_THE_WIRE: lambda: noop(bench.rows("smq", "peer", ours, transport="kafka")),
            "SMQ": lambda: noop(bench.rows("kafka", "peer", ours)),
            "Kafka": lambda: noop(bench.rows("kafka", "peer", theirs)),
        },
        rounds=3,
    )
    rates = {name: count / 1e6 / seconds for name, seconds in taken.items()}
    words = "{}: M rows/s, beside Spark's Kafka source from {}"
    return [
        Line(words.format(way, broker), rates[way], rates[broker], target)
        for way, target in (("read_topic", "≥ 2"), ('format("smq")', "≥ 2"), (OVER_THE_WIRE, ""))
        for broker in ("SMQ", "Kafka")
    ]  # fmt: skip


def sql(bench: Bench) -> list[Line]:
    """Counts with DuckDB, in a process that runs, and as a command."""
    sealed, live = bench.count(SQL_SEALED), bench.count(SQL_LIVE)
    fill(bench.broker, "sealed", sealed, SEALS)
    fill(bench.broker, "live", live, STAYS)
    wait_sealed(bench.broker, "sealed", sealed)
    filer = Location(str(bench.broker.data_dir / "filer"))
    lines: list[Line] = []
    with (
        bench.broker.connect() as client,
        bench.broker.connect(transport="kafka") as far,
        Cluster(bench.broker.bootstrap) as cluster,
    ):
        topics = TopicSource(bench.broker.data_dir, filer, client)
        wire = BrokerTopics(far, cluster)
        for topic, count, target in (("sealed", sealed, "≤ 1"), ("live", live, "≤ 0.5")):
            query = f"SELECT count(*) AS n FROM {topic}"  # noqa: S608  (a name of ours)

            def ask(query: str = query, count: int = count, of: QueryTopics = topics) -> None:
                with running(query, of, QueryBounds(SQL_BYTES)) as rows:
                    assert rows.read_all()["n"].to_pylist() == [count]

            def command(query: str = query) -> None:
                program = [sys.executable, "-m", "smq.cli.main", "sql", query]
                place = ["--bootstrap", bench.broker.bootstrap, "--memory", "4096"]
                subprocess.run([*program, *place], check=True, capture_output=True)

            ways: dict[str, Callable[[], object]] = {
                "query": ask,
                "command": command,
                "wire": partial(ask, of=wire),
            }
            taken = in_turns(ways, rounds=3)
            words = f"smq sql, count of {count:,} {topic} records: s"
            lines += [
                Line(words, taken["query"], None, target),
                Line(f"{words}, with the program's start", taken["command"], None, ""),
                Line(f"{words}, over the wire alone", taken["wire"], None, ""),
            ]
    return lines


PARTS: dict[str, Callable[[Bench], list[Line]]] = {
    "scans": scans,
    "planning": planning,
    "streams": streams,
    "freshness": freshness,
    "sql": sql,
}
KAFKA = "kafka"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the records")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, KAFKA], help="these parts")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    given = parser.parse_args()
    wanted = given.only or [*PARTS, KAFKA]
    settings = {"spark.driver.memory": "4g"}
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        kafka: Kafka | None = None
        if KAFKA in wanted:
            try:
                settings["spark.jars"] = ",".join(kafka_source_jars())
                kafka = stack.enter_context(Kafka(directory / "kafka", {"num.partitions": "4"}))
            except KafkaUnavailable as reason:
                print(f"without Spark's Kafka source: {reason}", file=sys.stderr)
        settings["spark.local.dir"] = str(directory / "local")
        broker = stack.enter_context(SmqCommand(directory / "smq", SMQ_SETTINGS))
        spark = stack.enter_context(start_session("bench", **settings))
        bench = Bench(broker, spark, 0.02 if given.quick else 1.0)
        for part in [each for each in PARTS if each in wanted]:
            lines += PARTS[part](bench)
        if kafka is not None:
            lines += beside_kafka(bench, kafka)
    table = "\n".join(
        ["| measure | SMQ | other | ratio | target |", "|---|---|---|---|---|", *map(str, lines)]
    )
    print(f"\n{table}")
    if given.write:
        command = " ".join(["python -m bench.spark", *sys.argv[1:]])
        write_between(DOCUMENT, BEGIN, END, f"{table}\n\nPrinted by `{command}`.")


if __name__ == "__main__":
    main()
