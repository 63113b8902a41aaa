"""Rows of records that are not sealed yet."""

from contextlib import suppress

import pyarrow as pa
import pytest

from smq.client.errors import BrokerUnavailable
from smq.model.errors import BrokerError
from smq.tables import live
from smq.tables.live import TooMuch, live_rows, owned
from smq.testing.smq_broker import SmqBroker
from tests.tables.aborted_records import AbortedRecords


def send(broker: SmqBroker, count: int, partitions: int = 2) -> None:
    with broker.connect() as client:
        client.create_topic("orders", partitions)
        with client.producer() as producer:
            table = {
                "value": [b"%d" % i for i in range(count)],
                "partition": [i % partitions for i in range(count)],
                "timestamp": list(range(count)),
                "headers": [[("h", b"1")]] * count,
            }
            producer.send_batch("orders", table)


@pytest.mark.parametrize("transport", ["shared memory", "kafka"])
def test_rows_from_given_offsets_to_the_present_end(smq_broker: SmqBroker, transport: str) -> None:
    send(smq_broker, 10)
    with smq_broker.connect(transport=transport) as client:
        rows, ends = live_rows(
            client, "orders", client.topic_ids()["orders"], {0: 2, 1: 5}, bytes_max=1 << 20
        )
    assert ends == {0: 5, 1: 5}
    assert rows.schema == live.SCHEMA
    found = sorted(zip(*(rows[name].to_pylist() for name in ("partition", "value")), strict=True))
    assert found == [(0, b"4"), (0, b"6"), (0, b"8")]
    assert rows["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]] * 3
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [4_000, 6_000, 8_000]


@pytest.mark.parametrize("transport", ["shared memory", "kafka"])
def test_rows_are_of_committed_records(smq_broker: SmqBroker, transport: str) -> None:
    with smq_broker.connect(transport=transport) as client:
        client.create_topic("paid", 1)
        with client.producer(transactional_id="shop") as producer:
            with producer.transaction():
                producer.send("paid", b"1")
            with suppress(KeyError), producer.transaction():
                producer.send("paid", b"2")
                producer.flush()
                raise KeyError
            rows, ends = live_rows(
                client, "paid", client.topic_ids()["paid"], {0: 0}, bytes_max=1 << 20
            )
            assert (rows["value"].to_pylist(), ends) == ([b"1"], {0: 4})
            with producer.transaction():
                producer.send("paid", b"3")
                producer.flush()
                rows, ends = live_rows(
                    client, "paid", client.topic_ids()["paid"], {0: 0}, bytes_max=1 << 20
                )
                assert (rows["value"].to_pylist(), ends) == ([b"1"], {0: 4}), "it is open"
        rows, ends = live_rows(
            client, "paid", client.topic_ids()["paid"], {0: 0}, bytes_max=1 << 20
        )
    assert (rows["value"].to_pylist(), ends) == ([b"1", b"3"], {0: 6})


def test_nothing_to_read_is_no_rows(smq_broker: SmqBroker) -> None:
    send(smq_broker, 4)
    with smq_broker.connect() as client:
        rows, ends = live_rows(
            client, "orders", client.topic_ids()["orders"], {0: 2, 1: 9}, bytes_max=1 << 20
        )
    assert (rows.num_rows, ends) == (0, {0: 2, 1: 2})


def test_more_than_the_bound_is_refused(smq_broker: SmqBroker) -> None:
    send(smq_broker, 1_000)
    with smq_broker.connect() as client, pytest.raises(TooMuch, match="100 bytes"):
        live_rows(client, "orders", client.topic_ids()["orders"], {0: 0, 1: 0}, bytes_max=100)


def test_a_broker_that_is_away_is_said(smq_broker: SmqBroker) -> None:
    with smq_broker.connect(timeout_s=1) as client:
        client.create_topic("orders", 1)
        topic_id = client.topic_ids()["orders"]
        smq_broker.stop()
        with pytest.raises(BrokerUnavailable):
            live_rows(client, "orders", topic_id, {0: 0}, bytes_max=1)


def test_records_of_another_topic_of_the_name_are_not_taken(smq_broker: SmqBroker) -> None:
    """Data fault 8, its kind: they would stand beside sealed ones of the former topic."""
    send(smq_broker, 4)
    with smq_broker.connect() as client:
        topic_id = client.topic_ids()["orders"]
        client.delete_topic("orders")
        send(smq_broker, 4)
        with pytest.raises(BrokerError, match="orders was deleted and created again"):
            live_rows(client, "orders", topic_id, {0: 0, 1: 0}, bytes_max=1 << 20)


def test_times_outside_the_years_1_to_9999_are_null() -> None:
    """Use fault 5."""
    columns = {
        "topic": pa.array(["t", "t"]),
        "partition": pa.array([0, 0], pa.int32()),
        "offset": pa.array([0, 1]),
        "timestamp": pa.array([2**62, 1], pa.timestamp("ms", "UTC")),
        "key": pa.array([None, b"k"], pa.binary_view()),
        "value": pa.array([b"", None], pa.binary_view()),
        "headers": pa.array([[], []], live.SCHEMA.field("headers").type),
    }
    rows = owned(pa.table(columns))
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [None, 1_000]
    assert rows["key"].to_pylist() == [None, b"k"]


def test_records_that_no_reader_gets_are_no_silence() -> None:
    consumer = AbortedRecords(live.SILENCE_S / 2)
    rows = live._rows_up_to(consumer, "paid", {0: 9}, 1 << 20)  # type: ignore[arg-type]
    assert (len(rows), consumer.offset) == (0, 9)
