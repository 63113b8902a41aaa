"""A broker that asks who you are, in TLS, and topics with all kinds of records, sealed and young.

Its files are closed to other users. A reader may read the topics, and nothing else.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from smq.cli.verbs import app
from smq.client.client import Client
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.guarded import allow
from tests.broker.one_topic import SETTINGS, OneTopic
from tests.broker.users import add_users

MIXED, STATE = "mixed", "state"
SCHEMA = '{"fields": [{"name": "n", "type": "int64"}, {"name": "price", "type": "double"}]}'
LONG = {"smq.seal.ms": "3600000"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
KEPT = {"retention.ms": "-1"}
KEYS = 5


class KindsBroker(NamedTuple):
    """The broker, where it asks who you are, and the file of the reader's properties."""

    broker: SmqBroker
    address: str
    properties: Path


@contextmanager
def kinds_broker() -> Iterator[KindsBroker]:
    """The broker, with its topics."""
    with tempfile.TemporaryDirectory(prefix="smq-") as name:
        home = Path(name)
        home.chmod(0o755)
        done = CliRunner().invoke(app, ["certs", str(home / "certs")])
        assert done.exit_code == 0, done.output
        given = SETTINGS | {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.location": str(home / "certs" / "broker.pem"),
            "seal.ms": "1",
            "log.retention.check.interval.ms": "100",
        }
        with SmqBroker(home / "broker", given, listeners={"ASKS": "SASL_SSL"}) as broker:
            add_users(broker.bootstrap, {"reader": "r"})
            _fill(broker)
            for topic in (MIXED, STATE):
                allow(broker, "reader", ResourceType.TOPIC, topic, Operation.READ)
            properties = _reader_in(home)
            yield KindsBroker(broker, f"127.0.0.1:{broker.port_of('ASKS')}", properties)


def _reader_in(home: Path) -> Path:
    authority = home / "ca.pem"
    authority.write_bytes((home / "certs" / "ca.pem").read_bytes())
    properties = home / "reader.properties"
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader",
        "sasl.password": "r",
        "ssl.truststore.location": str(authority),
        "ssl.truststore.type": "PEM",
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    for path in (authority, properties):
        path.chmod(0o644)
    return properties


def _fill(broker: SmqBroker) -> None:
    with Cluster(broker.bootstrap) as cluster, broker.connect() as client:
        mixed = OneTopic(broker, cluster, MIXED, {"smq.schema": SCHEMA} | KEPT, partitions=2)
        state = OneTopic(broker, cluster, STATE, COMPACTED | KEPT)
        _send_mixed(mixed, client, 0)
        _send_state(state)
        for partition in range(2):
            mixed.wait_sealed(len_of(mixed, partition), partition)
        eventually(lambda: _is_compacted(state), "it is compacted")
        for topic in (MIXED, STATE):
            alter_topic(cluster, topic, LONG, [])
        _send_mixed(mixed, client, 1_000)
        state.append(write_batch([Record(0, 9, b"key 1", b"young"), Record(1, 9, b"key 2", None)]))


def len_of(topic: OneTopic, partition: int) -> int:
    """The end of a partition."""
    return topic.offset_at(-1, partition)


def _send_mixed(topic: OneTopic, client: Client, first: int) -> None:
    """Each codec, headers, tombstones, bytes that are no text, times that go back, transactions."""
    number = first
    for partition in range(2):
        for codec in Codec:
            records = []
            for offset in range(4):
                headers = ((b"h", b"%d" % number), (b"h", None)) if offset == 1 else ()
                value = None if offset == 2 else b'{"n": %d, "price": %d.5}' % (number, offset)
                key = None if offset == 3 else b"key %d" % (number % KEYS)
                time_ms = 1_700_000_000_000 + (number * 7_919) % 10_007
                records.append(Record(offset, time_ms, key, value, headers))
                number += 1
            topic.append(write_batch(records, compression=codec), partition)
        odd = [Record(0, 5, b"\xff", b"\xff\x00"), Record(1, 2**52, b"late", b"no json", ())]
        odd.append(Record(2, 5, b"k", b"v", ((b"\xff", b"1"),)))
        topic.append(write_batch(odd), partition)
        _send_transactions(topic.name, client, partition, number)


def _send_transactions(topic: str, client: Client, partition: int, number: int) -> None:
    with client.producer(transactional_id=f"{topic}-{partition}") as producer:
        for each in range(4):
            with suppress(ZeroDivisionError), producer.transaction():
                for _ in range(3):
                    producer.send(topic, b'{"n": %d}' % (number + each), partition=partition)
                producer.flush()
                assert 1 / (each % 2) > 0, "each other transaction is aborted"


def _send_state(topic: OneTopic) -> None:
    for each in range(4):
        pairs = [(b"key %d" % key, b"value %d" % each) for key in range(KEYS)]
        records = [Record(i, i, key, value) for i, (key, value) in enumerate(pairs)]
        if each == 2:
            records[3] = Record(3, 3, b"key 3", None)
        base = topic.append(write_batch(records, compression=Codec.ZSTD))
        topic.wait_sealed(base + KEYS)


def _is_compacted(topic: OneTopic) -> bool:
    segments = topic.segments()
    counted = sum(each.record_count for each in segments)
    return all(each.compacted_ms for each in segments) and counted == KEYS
