"""What transactions cost: `python -m bench.transactions`, SMQ beside Apache Kafka in one run.

One producer of librdkafka's sends 100 records of 100 B a transaction, one transaction after the
other; beside it the same records are sent idempotently, with a wait for their acknowledgements
after each hundred, which is what a transaction waits for too. A reader of committed records reads
a topic in which nothing is open or aborted; beside it one that reads everything. Offsets are
committed eight requests deep over a connection, for a group without members: of one partition a
request, and of a hundred.

Brokers take turns, the other one is stopped; each figure is the median of some rounds. `--write`
puts the table into docs/performance.md.
"""

import argparse
import socket
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from struct import Struct
from typing import BinaryIO
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.machine import stopped
from bench.measures.lines import Figures, Line, Measure, topic
from bench.report import Row, comparison_rows, table, write_between
from smq.client.kafka.admin import coordinator
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.questions import OFFSET_COMMIT
from smq.testing.kafka import Kafka, KafkaUnavailable
from smq.testing.processes import Broker
from smq.testing.smq_broker import SmqCommand
from smq.wire.codec import Writer
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header

RECORDS, RECORD_BYTES = 100, 100  # Of a transaction.
WARM_UP = 50
SECONDS_MAX = 60
DEPTH = 8  # As many requests of a connection as SMQ's coordinator has at a time.
VERSION = 8
DOCUMENT = Path("docs/performance.md")
BEGIN = "<!-- written by bench.transactions: begin -->"
END = "<!-- written by bench.transactions: end -->"
_SIZE = Struct(">i")
_VALUE = bytes(RECORD_BYTES)


def _producer(broker: Broker, **settings: object) -> Producer:
    common = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    return Producer({**common, **settings})


def _send(producer: Producer, name: str) -> None:
    for _ in range(RECORDS):
        producer.produce(name, _VALUE, partition=0)


def produce(broker: Broker, transactions: int) -> Figures:
    """Records a second in transactions, beside idempotent ones, and how long a commit takes."""
    producer = _producer(broker, **{"transactional.id": uuid4().hex})
    producer.init_transactions(SECONDS_MAX)
    commits = []
    with topic(broker) as name:
        for number in range(WARM_UP + transactions):
            if number == WARM_UP:
                began = time.perf_counter()
            producer.begin_transaction()
            _send(producer, name)
            producer.flush(SECONDS_MAX)
            asked = time.perf_counter()
            producer.commit_transaction(SECONDS_MAX)
            commits.append(time.perf_counter() - asked)
        rate = transactions * RECORDS / (time.perf_counter() - began)
    with topic(broker) as name:
        plain = _producer(broker)
        for number in range(WARM_UP + transactions):
            if number == WARM_UP:
                began = time.perf_counter()
            _send(plain, name)
            plain.flush(SECONDS_MAX)
        idempotent = transactions * RECORDS / (time.perf_counter() - began)
    return {
        "msg_s": rate,
        "idempotent_msg_s": idempotent,
        "of_idempotent": rate / idempotent,
        "commit_ms": median(commits[WARM_UP:]) * 1000,
    }


def read(broker: Broker, records: int) -> Figures:
    """Records a second with read_committed, beside those with read_uncommitted."""
    with topic(broker) as name:
        producer = _producer(broker, **{"linger.ms": 5})
        for _ in range(records):
            try:
                producer.produce(name, _VALUE, partition=0)
            except BufferError:
                producer.flush(SECONDS_MAX)
                producer.produce(name, _VALUE, partition=0)
        producer.flush(SECONDS_MAX)
        levels = ("read_committed", "read_uncommitted")
        rates = {level: [_rate(broker, name, records, level) for _ in range(3)] for level in levels}
    committed, all_of_them = (max(rates[level]) for level in levels)
    return {"committed_msg_s": committed, "of_uncommitted": committed / all_of_them}


def _rate(broker: Broker, name: str, records: int, level: str) -> float:
    settings = {"group.id": "bench", "isolation.level": level, "enable.auto.commit": False}
    settings["queued.min.messages"] = 10_000_000  # Else librdkafka rests once it is ahead.
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([TopicPartition(name, 0, 0)])
    count, began = 0, 0.0
    while count < records:
        found = consumer.consume(10_000, SECONDS_MAX)
        assert found, f"no record within {SECONDS_MAX} s"
        began = began or time.perf_counter()  # The first come with connecting.
        count += len(found)
    seconds = time.perf_counter() - began
    consumer.close()
    return records / seconds


def commit_offsets(broker: Broker, commits: int, partitions: int = 1) -> Figures:
    """Requests a second that commit an offset of each partition, and offsets a second."""
    group = uuid4().hex
    with topic(broker, partitions) as name:
        with Cluster(broker.bootstrap) as cluster:
            connection = cluster.connect(coordinator(cluster, group))
            host, _, port = connection.address.rpartition(":")
            connection.close()
        frames = [_commit(group, name, number, partitions) for number in range(commits)]
        with socket.create_connection((host, int(port))) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream, waiting = sock.makefile("rb"), deque[bytes]()
            began = time.perf_counter()
            for frame in frames:
                if len(waiting) == DEPTH:
                    _take(stream)
                    waiting.popleft()
                sock.sendall(frame)
                waiting.append(frame)
            for _ in waiting:
                _take(stream)
            seconds = time.perf_counter() - began
    return {"commits_s": commits / seconds, "offsets_s": commits * partitions / seconds}


def _take(stream: BinaryIO) -> None:
    (size,) = _SIZE.unpack(stream.read(_SIZE.size))
    answer = memoryview(stream.read(size))
    _, at = read_response_header(answer, 0, OFFSET_COMMIT.api.key, VERSION)
    [row] = OFFSET_COMMIT.api.read_response(answer, at, VERSION).topics
    errors = {each.error_code for each in row.partitions}
    assert errors == {0}, f"errors {errors}"


def _commit(group: str, name: str, offset: int, partitions: int) -> bytes:
    places = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=places)],
    )
    writer = Writer()
    header = RequestHeader(OFFSET_COMMIT.api.key, VERSION, 1, "bench")
    write_request_header(header, writer)
    OFFSET_COMMIT.api.write_request(request, VERSION, writer)
    body = writer.to_bytes()
    return _SIZE.pack(len(body)) + body


def transaction_measures(scale: float) -> list[Measure]:
    """The lines of this command; `scale` 1 for figures to keep, less for a look."""

    def n(full: int) -> int:
        return max(1, int(full * scale))

    return [
        Measure(
            "transactions of 100 records",
            lambda broker: produce(broker, n(2000)),
            (
                Line("msg/s", "msg_s", "≥ 1.2"),
                Line("idempotent, each hundred awaited: msg/s", "idempotent_msg_s"),
                Line("beside idempotent", "of_idempotent", "SMQ ≥ 0.8"),
                Line("a commit, p50 ms", "commit_ms", "≤ 1.0"),
            ),
        ),
        Measure(
            "read_committed, nothing open",
            lambda broker: read(broker, n(2_000_000)),
            (
                Line("msg/s", "committed_msg_s"),
                Line("beside read_uncommitted", "of_uncommitted", "SMQ ≥ 0.98"),
            ),
        ),
        Measure(
            "offset commits, eight deep",
            lambda broker: commit_offsets(broker, n(40_000)),
            (Line("commits/s", "commits_s"),),
        ),
        Measure(
            "offset commits of 100 partitions, eight deep",
            lambda broker: commit_offsets(broker, n(2_000), 100),
            (Line("offsets/s", "offsets_s", "≥ 1.0"),),
        ),
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    options = parser.parse_args()
    scale, rounds = (0.1, 1) if options.quick else (1.0, options.rounds)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="smq-bench-") as name, ExitStack() as stack:
        brokers: list[Broker] = [stack.enter_context(SmqCommand(Path(name) / "smq"))]
        try:
            brokers.append(stack.enter_context(Kafka(Path(name) / "kafka")))
        except KafkaUnavailable as reason:
            print(f"without Apache Kafka: {reason}")
        for measure in transaction_measures(scale):
            rows += comparison_rows(measure, _figures(measure, brokers, rounds))
    print(table(rows))
    if options.write:
        printed = f"Printed by `python -m bench.transactions --rounds {rounds} --write`."
        write_between(DOCUMENT, BEGIN, END, f"{table(rows)}\n\n{printed}")


def _figures(measure: Measure, brokers: list[Broker], rounds: int) -> dict[str, Figures]:
    taken: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    for _ in range(rounds):
        for broker in brokers:
            others = [pid for other in brokers if other is not broker for pid in other.pids()]
            with stopped(others):
                taken[broker.name].append(measure.run(broker))
    return {
        name: {key: median(each[key] for each in of) for key in of[0]} for name, of in taken.items()
    }


if __name__ == "__main__":
    main()
