"""Queries over topics: what they see, what they may not do, and how they end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.agent.proto.mq_schema_pb2 import RecordValue, Value as RecordedValue
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic
from smq.filer.location import Location
from smq.sql.session import QueryBounds, QueryRefused, TopicSource, mentioned, running
from smq.tables.live import TooMuch
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import SealTopic, seal_topic

__all__ = ["seal_topic"]

MiB = 1024 * 1024
BOUNDS = QueryBounds(256 * MiB)


@pytest.fixture
def sealed(tmp_path: Path, seal_topic: SealTopic) -> TopicSource:
    """The topic "orders": offsets 0 to 9, of which 4 and 5 are in a raw segment."""
    seal_topic([batch(0, 4), batch(4, 2, key=b"\xff"), batch(6, 4)])
    return TopicSource(tmp_path, Location(str(tmp_path / "filer")), None)


def rows_of(
    query: str, topics: TopicSource, bounds: QueryBounds = BOUNDS
) -> list[dict[str, object]]:
    with running(query, topics, bounds) as rows:
        found: list[dict[str, object]] = rows.read_all().to_pylist()
    return found


@pytest.fixture
def live(smq_broker: SmqBroker) -> Iterator[TopicSource]:
    with smq_broker.connect() as client:
        client.create_topic("my-topic", 2)
        with client.producer() as producer:
            for number in range(6):
                producer.send("my-topic", b'{"n": %d}' % number, key=b"k%d" % (number % 2))
            producer.send("my-topic", b"\xff\x00", partition=0, key=None)
            producer.flush()
        yield TopicSource(smq_broker.data_dir, Location(str(smq_broker.data_dir / "filer")), client)


def test_sealed_rows_of_both_kinds_are_one_table(sealed: TopicSource) -> None:
    found = rows_of('SELECT "offset" AS o, value FROM orders ORDER BY o', sealed)
    assert [row["o"] for row in found] == list(range(10))
    [row] = rows_of("SELECT count(*) AS n, min(partition) AS p FROM orders", sealed)
    assert (row["n"], row["p"]) == (10, 0)


def test_live_rows_are_read_and_json_is_text(live: TopicSource) -> None:
    query = """
        SELECT (value->>'n')::INTEGER AS n, key FROM "my-topic" WHERE key IS NOT NULL ORDER BY n
    """
    found = [(row["n"], row["key"]) for row in rows_of(query, live)]
    assert found == [(number, f"k{number % 2}") for number in range(6)]


def test_bytes_that_are_no_text_are_escaped_and_raw_has_them(live: TopicSource) -> None:
    where = "WHERE key IS NULL"
    assert rows_of(f'SELECT value FROM "my-topic" {where}', live) == [{"value": "\\xFF\\x00"}]
    assert rows_of(f'SELECT value FROM raw."my-topic" {where}', live) == [{"value": b"\xff\x00"}]


RECORD_TYPE = '{"fields": [{"name": "key", "type": "STRING"}, {"name": "n", "type": "INT64"}]}'


def test_rows_have_seaweedmqs_columns_whether_they_are_sealed_or_not(
    smq_broker: SmqBroker,
) -> None:
    fields = {"n": RecordedValue(int32_value=7), "key": RecordedValue(string_value="a")}
    value = bytes(RecordValue(fields=fields).SerializeToString())
    query = "SELECT * FROM seaweedmq.typed ORDER BY _index"
    with smq_broker.connect() as client, client.producer() as producer:
        filer = Location(str(smq_broker.data_dir / "filer"))
        topics = TopicSource(smq_broker.data_dir, filer, client)
        any_time = {"message.timestamp.after.max.ms": str(2**62)}
        configs = any_time | {"smq.seal.ms": "1", "smq.record.type": RECORD_TYPE}
        client.create_topic("typed", 1, configs)
        producer.send("typed", value, key=b"k", timestamp_ms=1000).result(30)
        producer.send("typed", b"plain", timestamp_ms=2**52).result(30)
        eventually(
            lambda: {row["_source"] for row in rows_of(query, topics)} == {"parquet_archive"},
            "both records are sealed",
        )
        with Cluster(smq_broker.bootstrap) as cluster:
            alter_topic(cluster, "typed", {"smq.seal.ms": "3600000"}, [])
        producer.send("typed", value, timestamp_ms=2000).result(30)
        rows = rows_of(query, topics)
    first = {
        "partition": 0, "key_": "a", "n": 7, "_index": 0, "_offset": 0, "_ts_ns": 1_000_000_000,
        "_key": b"k", "_value": value, "_source": "parquet_archive",
    }  # fmt: skip
    none = {"key_": None, "n": None, "_ts_ns": None, "_key": None}
    assert [list(row) for row in rows] == [list(first)] * 3
    assert rows[:2] == [first, first | none | {"_index": 1, "_offset": 1, "_value": b"plain"}]
    last = {"_index": 2, "_offset": 2, "_ts_ns": 2_000_000_000, "_key": None}
    assert rows[2] == first | last | {"_source": "live_log"}


def test_topics_join_and_windows_work(live: TopicSource) -> None:
    query = """
        SELECT a."offset" AS o, row_number() OVER (ORDER BY a.partition, a."offset") AS r
        FROM "my-topic" a JOIN "my-topic" b USING (partition, "offset")
    """
    assert sorted(row["r"] for row in rows_of(query, live)) == list(range(1, 8))  # type: ignore[type-var]


def test_lists_of_topics_and_their_columns(live: TopicSource) -> None:
    assert rows_of("SHOW  tables;", live) == [{"name": "my-topic"}]
    assert rows_of("show databases", live) == [{"database_name": "kafka"}]
    assert rows_of("SHOW TABLES FROM kafka", live) == [{"name": "my-topic"}]
    described = rows_of('DESCRIBE "my-topic"', live)
    assert described == rows_of('SHOW COLUMNS FROM "my-topic"', live)
    assert [(row["column_name"], row["column_type"]) for row in described[:5]] == [
        ("partition", "INTEGER"),
        ("offset", "BIGINT"),
        ("timestamp", "TIMESTAMP"),
        ("key", "VARCHAR"),
        ("value", "VARCHAR"),
    ]


def test_explain_names_segments_and_live_offsets(sealed: TopicSource, live: TopicSource) -> None:
    [first, *plan] = rows_of("EXPLAIN SELECT count(*) FROM orders", sealed)
    assert first["explain_key"] == "segments of orders"
    assert str(first["explain_value"]).count("partition=0/") == 3
    assert "offsets 4 to 5" in str(first["explain_value"])
    assert plan
    [first, *_] = rows_of('EXPLAIN SELECT count(*) FROM "my-topic"', live)
    assert "not sealed, from the broker: partition 0, offsets 0 to" in str(first["explain_value"])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM read_parquet('{data_dir}/filer/topics/default/orders/*/*.parquet')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_text('{data_dir}/store.sqlite')",
        "COPY (SELECT 1) TO '{data_dir}/x'",
        "ATTACH '{data_dir}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_external_access = true",
        "CREATE TABLE t (i INTEGER)",
        "DELETE FROM orders",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{segment}' (USE_TMP_FILE false)",
        "EXPLAIN (FORMAT json) COPY (SELECT 1) TO '{segment}' (USE_TMP_FILE false)",
        "/**/ EXPLAIN ANALYZE COPY (SELECT 1) TO '{segment}' (USE_TMP_FILE false)",
        "EXPLAIN /**/ ANALYZE COPY (SELECT 1) TO '{segment}' (USE_TMP_FILE false)",
        "EXPLAIN EXPLAIN ANALYZE SELECT 1",
        "EXPLAIN ANALYZE DROP VIEW orders",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{segment}'' (USE_TMP_FILE false)')",
        "SELECT * FROM read_parquet('{segment}/../*.parquet'), orders",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SUMMARIZE FROM read_csv('/etc/passwd')",
        "SELECT * FROM sqlite_scan('{data_dir}/store.sqlite', 'topics')",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM rows",
        "SELECT * FROM query",
        "CALL pragma_version()",
        "USE raw",
        "SELECT 1; SELECT 2",
        "",
        "SELEC 1",
        "SELECT * FROM no_such_topic",
        "SELECT no_such_column FROM orders",
    ],
)
def test_only_topics_are_read_and_nothing_is_written(sealed: TopicSource, query: str) -> None:
    (segment,) = list(sealed.data_dir.rglob("00000000000000000000-*.parquet"))
    before = segment.read_bytes()
    with pytest.raises(QueryRefused):
        rows_of(query.format(data_dir=sealed.data_dir, segment=segment), sealed)
    assert segment.read_bytes() == before
    assert not (sealed.data_dir / "x").exists()
    assert not (sealed.data_dir / "x.db").exists()


def test_a_missing_topic_is_named_with_those_that_are_there(sealed: TopicSource) -> None:
    with pytest.raises(QueryRefused, match="the topics are orders"):
        rows_of("SELECT * FROM nope", sealed)


def test_a_query_ends_at_its_time_and_at_its_memory(sealed: TopicSource) -> None:
    with pytest.raises(QueryRefused, match=r"longer than 0\.2 s"):
        rows_of(
            "SELECT sum(range) FROM range(1_000_000_000_000)", sealed, QueryBounds(256 << 20, 0.2)
        )
    with pytest.raises(QueryRefused, match="emory"):
        rows_of("SELECT list(range) FROM range(100_000_000)", sealed, QueryBounds(64 << 20))


def test_an_error_behind_the_first_rows_is_one_of_the_query(sealed: TopicSource) -> None:
    """Arrow's readers raise DuckDB's errors as OSError, as if a file could not be written."""
    query = "SELECT CASE WHEN range = 2000000 THEN 'x' ELSE '1' END::INT FROM range(3000000)"
    with running(query, sealed, BOUNDS) as rows:
        assert len(rows.read_next_batch())
        with pytest.raises(QueryRefused, match="Could not convert string 'x'"):
            rows.read_all()


def test_more_live_bytes_than_half_the_memory_are_refused(live: TopicSource) -> None:
    with pytest.raises(TooMuch):
        rows_of('SELECT * FROM "my-topic"', live, QueryBounds(200))


def test_a_batch_that_inflates_beyond_the_memory_is_named_sealed_or_not(
    tmp_path: Path, seal_topic: SealTopic, live: TopicSource
) -> None:
    """Data fault 16."""
    far = [Record(1, 0, None, bytes(65 * MiB))]
    seal_topic([batch(0), write_batch(far, compression=Codec.ZSTD), batch(2)])
    sealed = TopicSource(tmp_path, Location(str(tmp_path / "filer")), None)
    query = 'SELECT sum(octet_length(value)) AS n FROM raw.orders WHERE "offset" = 1'
    assert rows_of(query, sealed, QueryBounds(512 * MiB)) == [{"n": 65 * MiB}]
    with pytest.raises(Unreadable, match="orders-0: the records at offsets 1 to 1 inflate to more"):
        rows_of(query, sealed, QueryBounds(128 * MiB))
    assert live.client is not None
    with live.client.producer(compression="zstd") as producer:
        producer.send("my-topic", bytes(200_000), partition=0).result()
    with pytest.raises(TooMuch, match=r"my-topic-0 has a batch at offsets .* than 100000 bytes"):
        rows_of('SELECT * FROM "my-topic"', live, QueryBounds(200_000))


def test_a_segment_that_is_gone_is_an_error_that_names_it(sealed: TopicSource) -> None:
    files = sorted((sealed.data_dir / "filer").rglob("*.parquet"))
    files[0].unlink()
    with pytest.raises((QueryRefused, Unreadable), match=files[0].name):
        rows_of("SELECT count(value) FROM orders", sealed)


def test_the_topics_that_a_query_mentions() -> None:
    topics = ["a", "b-c", "d", "e", "E"]
    assert mentioned('SELECT * FROM a JOIN "b-c" x ON true', topics) == ["a", "b-c"]
    assert mentioned("FROM raw.D", topics) == ["d"]
    assert mentioned("SELECT 1", topics) == []
    assert mentioned('FROM "e"', topics) == ["e"]
    with pytest.raises(QueryRefused, match="differ only by case"):
        mentioned('FROM "e" JOIN "E"', topics)


@pytest.mark.parametrize("function", ["pandas_scan(NULL)", "arrow_scan(NULL, NULL, NULL)"])
def test_a_function_that_takes_addresses_of_memory_is_refused(
    sealed: TopicSource, function: str
) -> None:
    """Door fault 15: below DuckDB 2 it ended the process."""
    with pytest.raises(QueryRefused, match="No function matches"):
        rows_of(f"SELECT * FROM {function}", sealed)
