"""Unmodified clients pass over what segments have lost: aborted records, and superseded ones."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import describe_group
from smq.client.kafka.topic_changes import alter_topic
from smq.model.errors import BrokerError
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, crc_of, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import SETTINGS, MiB, OneTopic, wal_starts
from tests.clients.programs.contract import record
from tests.clients.test_clients import PROGRAM_SECONDS_MAX, RESUMING

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

OFTEN = {
    "seal.ms": "1",
    "log.retention.check.interval.ms": "200",
    "log.retention.ms": "-1",  # The records are of 1970.
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
SECONDS_MAX = 30
RECORDS, HALF = 10, 5


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), SETTINGS | OFTEN) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: SmqBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


def batch(first: int, end: int, *, raw: bool = False) -> bytes:
    """The contract's records; `raw`: with an attribute that nobody knows."""
    rows = [record(number) for number in range(first, end)]
    made = bytearray(
        write_batch(
            [Record(i, 0, key, value, ((b"n", value),)) for i, (key, value) in enumerate(rows)]
        )
    )
    made[21] |= 2 * raw
    made[17:21] = crc_of(made).to_bytes(4)
    return bytes(made)


class Prepared:
    """A topic in the making: what is added is sealed by itself."""

    def __init__(self, topic: OneTopic) -> None:
        self.topic, self.end = topic, 0

    def add(self, *batches: bytes) -> None:
        for each in batches:
            self.topic.append(each)
            self._sealed()

    def abort(self, count: int) -> None:
        """A transaction that is aborted; its marker is a record too."""
        producer = Producer(
            {"bootstrap.servers": self.topic.broker.bootstrap, "transactional.id": uuid4().hex}
        )
        end = self.topic.offset_at(-1) + count + 1
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(self.topic.name, b"aborted", b"%d" % number, partition=0)
        producer.flush(SECONDS_MAX)
        producer.abort_transaction(SECONDS_MAX)
        # Its answer comes first; a marker that came behind all fillers would stay in the log.
        eventually(lambda: self.topic.offset_at(-1) == end, "the marker is in the log")
        self._sealed()

    def _sealed(self) -> None:
        self.end = self.topic.offset_at(-1)
        self.topic.wait_sealed(self.end)

    def leave_the_log(self) -> None:
        """What was added is in segments alone, which the log and the ring have left.

        kafka-go takes markers, and aborted records, for records: from Apache Kafka too.
        """
        filler = OneTopic(self.topic.broker, self.topic.cluster, f"filler-{uuid4().hex[:8]}")
        position = wal_starts(self.topic.broker)[-1]
        filler.append_filler(2 * 4 + 4)  # More than the ring: two to a MiB.
        filler.wait_recycled(position + MiB)


def aborted(made: Prepared) -> None:
    made.add(batch(0, HALF))
    made.abort(3)
    made.add(batch(HALF, RECORDS))


def aborted_first(made: Prepared) -> None:
    made.abort(3)
    made.add(batch(0, RECORDS))


def raw(made: Prepared) -> None:
    made.add(batch(0, HALF, raw=True))
    made.abort(3)
    made.add(batch(HALF, RECORDS, raw=True))
    assert {each.kind for each in made.topic.segments()} == {"parquet", "raw"}


def compacted(made: Prepared) -> None:
    made.add(batch(0, HALF), batch(HALF, RECORDS), batch(HALF, RECORDS))
    _compact(made, [HALF, 0, HALF])


def compacted_first(made: Prepared) -> None:
    made.add(batch(0, RECORDS), batch(0, RECORDS))
    _compact(made, [0, RECORDS])


def _compact(made: Prepared, counts: list[int]) -> None:
    """Compact all segments in one pass: those of an earlier one may become one file, with records,
    when the next segment comes before they are looked at for merging."""
    alter_topic(made.topic.cluster, made.topic.name, COMPACTED, ())
    eventually(
        lambda: [each.record_count for each in made.topic.segments()] == counts,
        "the earlier ones are gone",
    )


# Of fewer segments each than are merged: a merged one has records (smq.sealer.merge_plan.RUN_MIN).
MAKERS: dict[str, Callable[[Prepared], None]] = {
    "aborted": aborted,
    "aborted-first": aborted_first,
    "raw": raw,
    "compacted": compacted,
    "compacted-first": compacted_first,
}


@pytest.fixture(scope="module")
def topics(broker: SmqBroker, cluster: Cluster) -> dict[str, str]:
    """The topics by what is missing in them."""
    names = {}
    for kind, make in MAKERS.items():
        made = Prepared(OneTopic(broker, cluster, f"{kind}-{uuid4().hex[:8]}"))
        make(made)
        made.leave_the_log()
        assert any(each.record_count == 0 for each in made.topic.segments()), kind
        names[kind] = made.topic.name
    return names


@contextmanager
def reading(broker: SmqBroker, client: str, topic: str, tmp_path: Path) -> Iterator[list[str]]:
    """Have a client read all records of a topic, in order; within the block it is at work."""
    command, errors = RESUMING[client](), tmp_path / "errors"
    arguments = ["read", broker.bootstrap, topic, f"group-{uuid4().hex}", str(RECORDS)]
    with (
        errors.open("wb") as sink,
        subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=sink) as program,
    ):
        yield arguments
        try:
            out, _ = program.communicate(timeout=PROGRAM_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            program.kill()
            pytest.fail(f"it is stranded: {errors.read_text()[-3000:]}")
    assert program.returncode == 0, errors.read_text()[-3000:]
    found = json.loads(out.splitlines()[-1])
    assert found == {"values": [f"v{number}" for number in range(RECORDS)], "wrong": 0}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("client", RESUMING)
def test_a_client_passes_over_segments_without_records(
    broker: SmqBroker, topics: dict[str, str], client: str, kind: str, tmp_path: Path
) -> None:
    """Use fault 1: kafka-go, kafkajs and aiokafka were stranded."""
    with reading(broker, client, topics[kind], tmp_path):
        pass


@pytest.mark.parametrize("client", RESUMING)
def test_a_client_that_waits_behind_what_was_aborted_gets_what_comes(
    broker: SmqBroker, cluster: Cluster, client: str, tmp_path: Path
) -> None:
    """Use fault 1, at the end of the log."""
    made = Prepared(OneTopic(broker, cluster, f"ends-{uuid4().hex[:8]}"))
    made.add(batch(0, HALF))
    made.abort(3)
    made.leave_the_log()
    with reading(broker, client, made.topic.name, tmp_path) as (*_, group, _count):
        eventually(lambda: _is_stable(cluster, group), "the client has joined")
        made.topic.append(batch(HALF, RECORDS))


def _is_stable(cluster: Cluster, group: str) -> bool:
    try:
        return describe_group(cluster, group).group_state == "Stable"
    except BrokerError:
        return False
