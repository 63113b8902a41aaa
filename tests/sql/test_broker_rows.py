"""SQL where nobody may read the broker's files: all rows come by Kafka's protocol.

Rows of files are what those of the wire are compared with.
"""

import base64
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from smq.client.client import connect
from smq.client.consuming.consumer import Consumer
from smq.client.kafka.cluster import Cluster, TopicFacts
from smq.client.kafka.topic_changes import delete_records
from smq.client.locate import KAFKA, cluster_at
from smq.client.secure.security import security_of
from smq.filer.location import Location
from smq.model.errors import BrokerError
from smq.sql.broker_rows import BrokerTopics
from smq.sql.session import QueryBounds, QueryRefused, QueryTopics, TopicSource, running
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.another_user import needs_root, result_as
from tests.broker.every_kind import MIXED, KindsBroker, kinds_broker
from tests.broker.one_topic import OneTopic

pytestmark = pytest.mark.timeout(300)

MiB = 1024 * 1024
BOUNDS = QueryBounds(256 * MiB)
FIRST_US = 1_672_531_200_000_000  # 2023.
NOBODY = pwd.getpwnam("nobody").pw_uid
KAFKAS = 'partition, "offset", timestamp, key, value, headers'
QUERIES = (
    f"SELECT {KAFKAS} FROM mixed",
    f"SELECT {KAFKAS} FROM raw.mixed",
    "SELECT * FROM state",
    "SELECT count(*) FROM mixed",
    'SELECT partition, max("offset") FROM mixed GROUP BY ALL',
    f'SELECT {KAFKAS} FROM mixed WHERE partition = 1 AND "offset" BETWEEN 5 AND 30',
    f'SELECT {KAFKAS} FROM mixed WHERE "offset" IN (3, 40)',
    f"SELECT {KAFKAS} FROM mixed WHERE timestamp >= '2023-11-14 22:13:25'",
    f"SELECT {KAFKAS} FROM mixed WHERE timestamp < '2023-11-14 22:13:25'",
    f"SELECT {KAFKAS} FROM mixed WHERE timestamp IS NULL",
    f"SELECT {KAFKAS} FROM raw.mixed WHERE key = 'key 1'::BLOB AND headers[1].key = 'h'",
    'SELECT "offset", value FROM state WHERE "offset" > 15 OR value IS NULL',
    'SELECT a.partition, a."offset" FROM mixed a JOIN mixed b USING (partition, "offset")',
    'SELECT m."offset", s.value FROM mixed m JOIN state s USING (key)',
    "SELECT key FROM mixed LIMIT 0",
    "SHOW TABLES",
)


@pytest.fixture(scope="module")
def kinds() -> Iterator[KindsBroker]:
    with kinds_broker() as kinds:
        yield kinds


@contextmanager
def over_the_wire(kinds: KindsBroker) -> Iterator[BrokerTopics]:
    """As the reader."""
    properties = str(kinds.properties)
    with (
        connect(kinds.address, transport=KAFKA, config=properties) as client,
        cluster_at(kinds.address, security_of(properties)) as cluster,
    ):
        yield BrokerTopics(client, cluster)


@contextmanager
def of_anybody(broker: SmqBroker) -> Iterator[BrokerTopics]:
    with broker.connect(transport=KAFKA) as client, Cluster(broker.bootstrap) as cluster:
        yield BrokerTopics(client, cluster)


@contextmanager
def of_files(broker: SmqBroker) -> Iterator[TopicSource]:
    with broker.connect() as client:
        yield TopicSource(broker.data_dir, Location(str(broker.data_dir / "filer")), client)


def rows_of(query: str, topics: QueryTopics, bounds: QueryBounds = BOUNDS) -> list[str]:
    """Sorted, as text that JSON has too."""
    with running(query, topics, bounds) as rows:
        return sorted(
            str([plain(each) for each in row.values()]) for row in rows.read_all().to_pylist()
        )


def plain(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def rows_as_reader(kinds: KindsBroker) -> list[list[str]]:
    with over_the_wire(kinds) as topics:
        return [rows_of(query, topics) for query in QUERIES]


@pytest.mark.slow
@needs_root
def test_another_user_gets_the_rows_of_the_files(kinds: KindsBroker) -> None:
    with of_files(kinds.broker) as topics:
        files = [rows_of(query, topics) for query in QUERIES]
    assert len(files[0]) == 2 * 2 * (5 * 4 + 3 + 2 * 3), "no record of an aborted transaction"
    rows_as_reader(kinds)  # What is imported late is so here, where it can be read.
    for query, expected in zip(QUERIES, files, strict=True):

        def one(query: str = query) -> list[str]:
            with over_the_wire(kinds) as topics:
                return rows_of(query, topics)

        assert result_as(NOBODY, one) == expected, query


def test_typed_columns_are_there_for_users_with_describe_configs(kinds: KindsBroker) -> None:
    query = 'SELECT "offset", n, price FROM mixed WHERE price > 1 AND n < 1020'
    with of_files(kinds.broker) as files, of_anybody(kinds.broker) as wire:
        assert rows_of(query, wire) == rows_of(query, files)
        assert rows_of("DESCRIBE mixed", wire) == rows_of("DESCRIBE mixed", files)
        assert len(rows_of("SELECT * FROM mixed WHERE n = 1", wire)) == 1
    with over_the_wire(kinds) as topics, pytest.raises(QueryRefused, match='"price" not found'):
        rows_of(query, topics)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where scans begin, by partition and offset."""
    begun: list[tuple[int, int]] = []
    seek = Consumer.seek

    def noted(consumer: Consumer, topic: str, partition: int, place: Any) -> None:
        begun.append((partition, place))
        seek(consumer, topic, partition, place)

    monkeypatch.setattr(Consumer, "seek", noted)
    return begun


def test_filters_of_place_and_time_decide_where_fetches_begin(
    kinds: KindsBroker, fetched: list[tuple[int, int]]
) -> None:
    with over_the_wire(kinds) as topics:
        for where, begun in {
            "true": [(0, 0), (1, 0)],
            '"offset" > 40': [(0, 40), (1, 40)],
            'partition = 1 AND "offset" = 7': [(1, 7)],
            'partition = 7 OR "offset" < 0': [],
        }.items():
            fetched.clear()
            rows_of(f"SELECT count(*) FROM mixed WHERE {where}", topics)
            assert sorted(fetched) == begun, where
        fetched.clear()
        assert rows_of("SELECT count(*) FROM mixed WHERE timestamp >= '2200-01-01'", topics)
        assert min(offset for _, offset in fetched) > 20


def test_explain_names_offsets_and_filters(kinds: KindsBroker) -> None:
    with over_the_wire(kinds) as topics:
        found = "".join(rows_of('EXPLAIN SELECT count(*) FROM mixed WHERE "offset" > 3', topics))
    assert "from the broker: partition 1, offsets 0 to 77" in found
    assert 'Filters: "offset" > 3' in found


def test_a_topic_larger_than_the_memory_is_read(smq_broker: SmqBroker) -> None:
    """Files of it would be refused, as live records of more than half of the memory."""
    count, memory = 300, 64 * MiB
    with smq_broker.connect() as client, client.producer(compression="zstd") as producer:
        client.create_topic("large", 1)
        for each in range(count):
            producer.send("large", bytes([each % 256]) * 400_000, partition=0)
        producer.flush()
    with of_anybody(smq_broker) as topics:
        found = rows_of(
            "SELECT count(*), sum(octet_length(value))::BIGINT FROM raw.large",
            topics,
            QueryBounds(memory),
        )
    assert found == [str([count, count * 400_000])]


def test_a_batch_that_inflates_beyond_half_of_the_memory_is_named(smq_broker: SmqBroker) -> None:
    far = write_batch([Record(0, 0, None, bytes(33 * MiB))], compression=Codec.ZSTD)
    with of_anybody(smq_broker) as topics:
        OneTopic(smq_broker, topics.cluster, "large").append(far)
        with pytest.raises(Unreadable, match="large-0: the records at offsets 0 to 0 inflate to"):
            rows_of("SELECT * FROM large", topics, QueryBounds(64 * MiB))


def test_records_that_are_deleted_while_a_query_runs_are_an_error(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client, client.producer() as producer:
        client.create_topic("orders", 1)
        for _ in range(9):
            producer.send("orders", b"x", partition=0)
    with of_anybody(smq_broker) as topics:
        _, [found] = topics.rows("SELECT * FROM orders", MiB)
        delete_records(topics.cluster, "orders", 4)
        with pytest.raises(Unreadable, match=r"has no offset 0.*deleted while the query ran"):
            found.arrow.scanner().to_reader().read_all()
        assert isinstance(found.failure, Unreadable)
        assert rows_of("SELECT count(*) FROM orders", topics) == ["[5]"]


def test_records_before_1970_are_found_by_their_time(smq_broker: SmqBroker) -> None:
    old = write_batch([Record(number, time, None, b"x") for number, time in enumerate((-1, 5))])
    with of_anybody(smq_broker) as topics:
        OneTopic(smq_broker, topics.cluster, "old").append(old)
        asked = "SELECT count(*) FROM old WHERE timestamp >= '1969-12-31 23:59:55'"
        assert rows_of(asked, topics) == ["[2]"]


def test_a_filter_of_time_hides_neither_a_deletion_nor_another_topic(
    smq_broker: SmqBroker,
) -> None:
    with smq_broker.connect() as client, of_anybody(smq_broker) as topics:
        for name in ("deleted", "replaced"):
            client.create_topic(name, 1)
            with client.producer() as producer:
                for _ in range(9):
                    producer.send(name, b"x", partition=0)
        young = ds.field("timestamp") >= pa.scalar(FIRST_US, pa.timestamp("us"))
        _, [deleted] = topics.rows("SELECT * FROM deleted", MiB)
        _, [replaced] = topics.rows("SELECT * FROM replaced", MiB)
        delete_records(topics.cluster, "deleted", 4)
        client.delete_topic("replaced")
        client.create_topic("replaced", 1)
        for found in (deleted, replaced):
            with pytest.raises((Unreadable, BrokerError)):
                found.arrow.scanner(filter=young).to_reader().read_all()


def test_a_topic_that_is_created_again_while_a_query_begins_is_not_counted_in_part(
    smq_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def created(partitions: int) -> None:
        with smq_broker.connect() as client, client.producer() as producer:
            client.create_topic("again", partitions)
            for each in range(partitions):
                producer.send("again", b"x", partition=each)

    ask = Cluster.topics

    def topics_of_before(cluster: Cluster) -> list[TopicFacts]:
        found = ask(cluster)
        monkeypatch.setattr(Cluster, "topics", ask)
        with smq_broker.connect() as client:
            client.delete_topic("again")
        created(3)
        return found

    created(1)
    with of_anybody(smq_broker) as topics:
        monkeypatch.setattr(Cluster, "topics", topics_of_before)
        with pytest.raises((BrokerError, Unreadable)):
            rows_of("SELECT count(*) FROM again", topics)
        assert rows_of("SELECT count(*) FROM again", topics) == ["[3]"]


def test_a_topic_that_may_not_be_read_is_named(kinds: KindsBroker) -> None:
    with kinds.broker.connect() as client:
        client.create_topic("closed", 1)
    with over_the_wire(kinds) as topics:
        assert rows_of("SHOW TABLES", topics) == [str([MIXED]), str(["state"])]
        with pytest.raises(QueryRefused, match="the topics are mixed, state"):
            rows_of("SELECT * FROM closed", topics)


def test_a_scan_that_is_stopped_gives_no_part_of_its_rows(
    smq_broker: SmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with smq_broker.connect() as client, client.producer() as producer:
        client.create_topic("orders", 1)
        producer.send("orders", b"x", partition=0).result()
    with of_anybody(smq_broker) as topics:
        _, [found] = topics.rows("SELECT * FROM orders", MiB)
        found.stop()
        with pytest.raises(Unreadable, match="the rest of orders was not waited for"):
            found.arrow.scanner().to_reader().read_all()
        monkeypatch.setattr("smq.tables.live.is_read", lambda *_: False)
        with pytest.raises(QueryRefused, match="longer than"):
            rows_of("SELECT * FROM orders", topics, QueryBounds(64 * MiB, 0.5))


def test_a_client_of_shared_memory_is_refused(smq_broker: SmqBroker) -> None:
    with smq_broker.connect() as client, Cluster(smq_broker.bootstrap) as cluster:
        if client.transport != KAFKA:
            with pytest.raises(AssertionError):
                BrokerTopics(client, cluster)
