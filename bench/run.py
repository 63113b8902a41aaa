"""`make bench`: SMQ beside Apache Kafka, in one run, as ratios.

Both brokers run; each measurement is taken of one, then of the other, several rounds, and medians
are compared. The other broker is stopped meanwhile (SIGSTOP). Apache Kafka is warmed up first: its
first hundreds of megabytes are slow. `--quick` is a look, `--only WORDS` takes some of the lines,
`--write` puts the table into docs/performance.md.
`--history WORDS` adds a row to the history there, and fails if a ratio fell (`bench.history`).
"""

import argparse
import json
import os
import shlex
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench import history
from bench.clients.programs import ClientFailed, has_librdkafka, librdkafka, raw
from bench.machine import loopback_mb_s, stopped, touch_free_memory
from bench.measures import lifecycle
from bench.measures.lines import (
    Figures,
    Measure,
    measures,
    raw_fetch,
    raw_produce,
    raw_single,
    rdkafka_measures,
)
from bench.report import (
    Row,
    absolute_rows,
    comparison_rows,
    table,
    write_into,
)
from smq.load.cost import pss_mb
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqCommand

WARM_UP_BYTES = 600_000_000
WARM_UP_REQUESTS = 100_000
GAPS_SECONDS = 10
KAFKA_SETTINGS = {"broker.session.timeout.ms": "3600000"}  # It stands still for minutes.
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"


def main() -> None:
    """Measure, print the table, and write it down if asked to."""
    options = _options()
    if options.write and not has_librdkafka():
        sys.exit("nothing is written without librdkafka: install its headers (librdkafka-dev)")
    scale, rounds = (0.1, 1) if options.quick else (1.0, options.rounds)
    wanted = _wanted(options, scale)
    rows: list[Row] = []
    touch_free_memory()
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        brokers: list[Broker] = [stack.enter_context(SmqCommand(directory / "smq"))]
        try:
            brokers.append(stack.enter_context(Kafka(directory / "kafka", KAFKA_SETTINGS)))
            _warm_up(brokers)
        except KafkaUnavailable as reason:
            print(f"without Apache Kafka: {reason}", file=sys.stderr)
        for measure in wanted:
            figures = _measure(measure, brokers, rounds)
            rows += comparison_rows(measure, figures)
            print(table(rows[-len(measure.lines) :], heading=False), flush=True)
        if not options.only:
            loaded = [{"loaded_pss_mb": pss_mb(broker.pids())} for broker in brokers]
            rows += absolute_rows(*loaded)
        if "disk" in options.only or not options.only:
            rows += absolute_rows({"loopback_mb_s": loopback_mb_s()})
            with stopped([pid for broker in brokers for pid in broker.pids()]):
                rows += absolute_rows(raw(0, "gaps", seconds=GAPS_SECONDS))
            with stopped([pid for broker in brokers[1:] for pid in broker.pids()]):
                rows += absolute_rows(lifecycle.disk(brokers[0], directory))
    if not options.only or "rest" in options.only:
        rows += _rest(with_kafka=len(brokers) > 1)
    ceiling = _ceiling(scale) if has_librdkafka() and not options.only else {}
    print("\n" + table(rows))
    print(json.dumps(ceiling))
    _keep(rows, ceiling, options)


def _keep(rows: list[Row], ceiling: Figures, options: argparse.Namespace) -> None:
    """Put the table into its document and the history, as asked for."""
    if options.write:
        command = f'make bench ARGS="{shlex.join(sys.argv[1:])}"'
        write_into(DOCUMENT, rows, ceiling, command)
    if options.history:
        day = datetime.now(UTC).date().isoformat()
        entry = history.entry_of(rows, day, history.this_machine(), options.history)
        history.write([*history.entries(), entry])
        history.check()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="lines whose name has these words")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    parser.add_argument(
        "--history", default="", help="what has changed: adds a row to the history", metavar="WORDS"
    )
    options = parser.parse_args()
    if options.history and (options.quick or options.only):
        parser.error("a row of the history is a whole run: leave out --quick and --only")
    return options


def _all(scale: float) -> list[Measure]:
    return measures(scale) + (rdkafka_measures(scale) if has_librdkafka() else [])


def _wanted(options: argparse.Namespace, scale: float) -> list[Measure]:
    only = options.only.lower()
    return [each for each in _all(scale) if only in each.name.lower()]


def _warm_up(brokers: list[Broker]) -> None:
    for broker in brokers:
        for batch_bytes in (1_000_000, 16384):
            raw_produce(batch_bytes, WARM_UP_BYTES)(broker)
            raw_fetch(batch_bytes, WARM_UP_BYTES)(broker)
        raw_single(5, WARM_UP_REQUESTS)(broker)


def _measure(measure: Measure, brokers: list[Broker], rounds: int) -> dict[str, Figures]:
    """The median of each figure, by broker."""
    taken: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    for _ in range(rounds):
        for broker in brokers:
            others = [pid for other in brokers if other is not broker for pid in other.pids()]
            try:
                os.sync()  # The system would write what came before while the next is measured.
                with stopped(others):
                    taken[broker.name].append(measure.run(broker))
            except ClientFailed as failure:
                print(f"{measure.name}, {broker.name}: {failure}", file=sys.stderr)
    return {
        name: {key: median(each[key] for each in runs) for key in runs[0]}
        for name, runs in taken.items()
        if runs
    }


def _rest(*, with_kafka: bool) -> list[Row]:
    starts: dict[str, type[SmqCommand | Kafka]] = {"smq": SmqCommand}
    if with_kafka:
        starts["kafka"] = Kafka
    figures = {name: lifecycle.start_and_rest(start) for name, start in starts.items()}
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name:
        figures["smq"] |= lifecycle.first_start(Path(name)) | lifecycle.death(Path(name))
    figures["smq"] |= lifecycle.imports()
    return absolute_rows(figures["smq"], figures.get("kafka", {}))


def _ceiling(scale: float) -> Figures:
    """librdkafka against the mock broker in its own process: what the client itself can do."""
    figures = librdkafka(
        "mock", "produce", records=int(1_000_000 * scale), record_bytes=1024,
        batch_size=1_000_000, linger_ms=5,
    )  # fmt: skip
    return {"librdkafka_mock_mb_s": figures["mb_s"]}


if __name__ == "__main__":
    main()
