"""Every way in and out of a broker, over the awkward records, compared record by record.

Topics by each way in, unsealed and in segments that alone have them, are read by each way out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from smq.client.kafka.cluster import Cluster
from smq.testing.smq_broker import SmqBroker
from tests.app.awkward_ways_in import IN, SECONDS_MAX, Place, Records, columns_of, of_confluent, run
from tests.app.awkward_ways_out import (
    OUT,
    TEXT_NAMES_OUT,
    from_confluent,
    from_http,
    from_records,
    of_sql,
    of_table,
)
from tests.app.fake_broker import eventually
from tests.awkward import ANY_TIME, ODD, PLAIN, RECORDS, SMALL_BYTES, Awkward
from tests.broker.one_topic import SETTINGS, MiB, OneTopic, wal_starts

pytestmark = pytest.mark.timeout(300)
SMALL = ANY_TIME | {"max.message.bytes": str(SMALL_BYTES)}
NEVER_MS, OFTEN_MS = "86400000", "100"


class Filled(NamedTuple):
    """A topic, and the records that were sent to it."""

    place: Place
    records: Records


def fill(broker: SmqBroker, directory: Path, state: str, seal_ms: str) -> dict[str, Filled]:
    filled = {}
    with broker.connect() as client:
        for way, (send, takes) in IN.items():
            place = Place(broker, f"{state}-{way}", directory)
            client.create_topic(place.topic, 1, SMALL | {"smq.seal.ms": seal_ms})
            records = takes(RECORDS)
            send(place, records)
            filled[place.topic] = Filled(place, records)
    return filled


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Filled]]:
    directory = tmp_path_factory.mktemp("ways")
    settings = SETTINGS | {"http.port": "0", "seal.ms": OFTEN_MS, "message.max.bytes": "1000000"}
    with (
        SmqBroker(tmp_path_factory.mktemp("broker"), settings) as broker,
        Cluster(broker.bootstrap) as cluster,
    ):
        sealed = fill(broker, directory, "sealed", OFTEN_MS)
        position = wal_starts(broker)[-1]
        filler = OneTopic(broker, cluster, "filler")
        filler.append_filler(2 * 4 + 2)
        filler.wait_recycled(position + MiB)
        yield sealed | fill(broker, directory, "live", NEVER_MS)


def different(found: Records, expected: Records) -> list[tuple[str, str]]:
    """What was found where something else was expected, shortened."""
    pairs = [
        (str(one)[:200], str(other)[:200])
        for one, other in zip(found, expected, strict=False)
        if one != other
    ]
    return pairs + [("records", str(len(found)))] * (len(found) != len(expected))


@pytest.mark.slow
@pytest.mark.parametrize("way", OUT)
def test_each_way_out_returns_the_same_records_for_each_way_in(
    topics: dict[str, Filled], way: str
) -> None:
    read, kept = OUT[way]
    wrong = {
        topic: found
        for topic, (place, records) in topics.items()
        if (found := different(read(place), [*map(kept, records)]))
    }
    assert wrong == {}


@pytest.mark.parametrize("way", TEXT_NAMES_OUT)
def test_a_way_out_refuses_names_that_it_cannot_say(topics: dict[str, Filled], way: str) -> None:
    for place, records in topics.values():
        if all(each.has_text_names for each in records):
            assert different(TEXT_NAMES_OUT[way](place), records) == []
            continue
        number = next(i for i, each in enumerate(records) if not each.has_text_names)
        arguments = ("export", place.topic, str(place.directory / "x.parquet"))
        output = place.smq(*arguments, exit_code=1).decode()
        assert f"partition 0, offset {number}: the header key" in output


@pytest.mark.slow
def test_clients_that_take_little_read_each_record(topics: dict[str, Filled]) -> None:
    """Also use fault 4."""
    for place, records in topics.values():
        expected = [of_confluent(each) for each in records if each.has_text_names]
        assert different(from_confluent(place), expected) == [], place.topic


@pytest.mark.slow
def test_queries_over_http_keep_what_others_do(topics: dict[str, Filled]) -> None:
    for topic in ("sealed-sdk-lists", "live-sdk-lists"):
        place, records = topics[topic]
        assert different(from_http(place), [*map(of_sql, records)]) == []


@pytest.mark.slow
def test_a_restored_snapshot_has_the_same_records(
    topics: dict[str, Filled], tmp_path: Path
) -> None:
    first = next(iter(topics.values())).place
    where = ("--data-dir", str(first.broker.data_dir))
    run("snapshot", str(tmp_path / "snapshot"), *where)
    restored = tmp_path / "restored"
    run("restore", str(tmp_path / "snapshot"), "--data-dir", str(restored / "data"))
    with SmqBroker(restored, SETTINGS) as broker:
        for place, records in topics.values():
            found = from_records("shared memory")(Place(broker, place.topic, tmp_path))
            assert different(found, records) == [], place.topic


def lake_rows(table: pa.Table) -> Records:
    """The records of a lake table."""
    rows = table.sort_by("_offset")
    times, stamps = rows["_ts_ms"], rows["_ts"].cast(pa.int64()).to_pylist()
    for time, stamp in zip(times.to_pylist(), stamps, strict=True):
        assert stamp == (1000 * time if Awkward(time_ms=time).has_calendar_time else None)
    names = ["_key", "_value", "_headers"]
    columns = dict(zip(names, ("key", "value", "headers"), strict=True))
    times = times.cast(pa.timestamp("ms", "UTC"))
    return of_table(rows.select(names).rename_columns(columns).append_column("timestamp", times))


def by_deltalake(broker: SmqBroker, topic: str) -> pa.Table:
    return DeltaTable(f"{broker.data_dir}/filer/topics/kafka/{topic}").to_pyarrow_table()


def by_polars(broker: SmqBroker, topic: str) -> pa.Table:
    return pl.read_delta(f"{broker.data_dir}/filer/topics/kafka/{topic}").to_arrow()


def by_pyiceberg(broker: SmqBroker, topic: str) -> pa.Table:
    uri = f"sqlite:///{broker.data_dir}/iceberg.sqlite"
    return load_catalog("smq", type="sql", uri=uri).load_table(("kafka", topic)).scan().to_arrow()


LAKE = {
    "delta": [by_deltalake, by_polars],
    "iceberg": [by_pyiceberg],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAKE)
def test_lake_tables_have_each_record_of_a_parquet_segment_and_count_the_others(
    topics: dict[str, Filled], kind: str
) -> None:
    broker = next(iter(topics.values())).place.broker
    where = ("tables", "list", "--data-dir", str(broker.data_dir), "--json")
    with broker.connect() as client:
        client.create_topic(kind, 1, SMALL | {"smq.table": kind})
        with client.producer() as producer:
            for records in (PLAIN, ODD):
                producer.send_batch(kind, columns_of(records)).result(SECONDS_MAX)

    def is_published() -> bool:
        [found] = [each for each in json.loads(run(*where)) if each["topic"] == kind]
        return bool(found["files"]) and not found["records_behind"] and found["raw_records"] > 0

    eventually(is_published, f"{kind} is published: {run(*where).decode()}")
    [found] = [each for each in json.loads(run(*where)) if each["topic"] == kind]
    assert found["raw_records"] == len(ODD)
    for read in LAKE[kind]:
        assert different(lake_rows(read(broker, kind)), PLAIN) == [], read.__name__
