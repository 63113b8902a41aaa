"""A consumer gives the same on both transports: in order, once, from where it was told to."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

import smq
from smq.model.errors import ErrorCode
from tests.client.both import WAIT_SECONDS, client, running, say_when_asleep, topic
from tests.client.numbered import DAY_MS, RECORDS, fill, numbers

__all__ = ["client", "running", "topic"]  # Fixtures.


def test_records_have_all_their_fields(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as consumer:
        for record in islice(consumer, RECORDS):
            number = int(record.value or b"")
            assert record.topic == topic
            assert record.partition == number % 3
            assert record.offset == number // 3
            assert record.timestamp_ms == number // 3 * DAY_MS
            assert record.key == b"k%d" % number
            assert record.headers == (("n", b"%d" % number), ("none", None))
        assert consumer.statistics().records == RECORDS
        assert consumer.transport == client.transport


def test_arrow_has_the_same(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    rows: list[dict[str, Any]] = []
    with client.consumer(topic, start="earliest") as consumer:
        while len(rows) < RECORDS:
            with consumer.poll(1) as batch:
                table = batch.to_arrow()
                table.validate(full=True)
                assert len(table) == len(batch)
                rows += table.to_pylist()
    for row in rows:
        number = int(row["value"])
        assert row == {
            "topic": topic,
            "partition": number % 3,
            "offset": number // 3,
            "timestamp": datetime.fromtimestamp(number // 3 * DAY_MS / 1000, UTC),
            "key": b"k%d" % number,
            "value": b"%d" % number,
            "headers": [{"key": "n", "value": b"%d" % number}, {"key": "none", "value": None}],
        }
    assert sorted(int(row["value"]) for row in rows) == list(range(RECORDS))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(client: smq.Client, topic: str, compression: str) -> None:
    with client.producer(compression=compression) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    with client.consumer(topic, start="earliest") as consumer:
        assert numbers(consumer, RECORDS) == list(range(RECORDS))


def test_several_topics_are_read_together(client: smq.Client, topic: str) -> None:
    client.create_topic(f"{topic}-too", 3)
    fill(client, topic)
    fill(client, f"{topic}-too", first=RECORDS)
    with client.consumer([topic, f"{topic}-too"], start="earliest") as consumer:
        found = [(record.topic, int(record.value or b"")) for record in islice(consumer, 120)]
    assert sorted(number for _, number in found) == list(range(2 * RECORDS))
    assert all((name == topic) == (number < RECORDS) for name, number in found)


def test_nothing_in_time_is_an_empty_batch(client: smq.Client, topic: str) -> None:
    with client.consumer(topic) as consumer, consumer.poll(0.01) as batch:
        assert not batch
        assert batch.to_arrow().num_rows == 0
        assert list(batch.copy()) == []


def test_a_waiting_poll_wakes_for_a_record(client: smq.Client, topic: str) -> None:
    with client.consumer(topic) as consumer, client.producer() as producer:
        consumer.poll(0.01)
        asleep = threading.Event()
        say_when_asleep(consumer, asleep.set)

        def send(number: int) -> None:
            asleep.wait(WAIT_SECONDS)
            producer.send(topic, b"%d" % number)

        for number in range(5):
            asleep.clear()
            sending = threading.Thread(target=send, args=(number,))
            started = time.monotonic()
            sending.start()
            assert numbers(consumer, 1) == [number]
            assert time.monotonic() - started < WAIT_SECONDS, "woken, not timed out"
            sending.join()


def test_a_spinning_consumer_reads_every_record(client: smq.Client, topic: str) -> None:
    with client.consumer(topic, start="earliest", spin_us=2000) as consumer:
        consumer.poll(0.01)
        fill(client, topic)
        assert numbers(consumer, RECORDS) == list(range(RECORDS))


def test_following_begins_at_the_end_and_goes_on(client: smq.Client, topic: str) -> None:
    fill(client, topic)
    with client.consumer(topic, start="earliest") as consumer:
        following = consumer.follow(timeout_s=0.5)
        fill(client, topic, 3, RECORDS)
        assert sorted(int(record.value or b"") for record in following) == [60, 61, 62]


def test_tables_and_arrays_come_back(client: smq.Client, topic: str) -> None:
    np = pytest.importorskip("numpy")
    pa = pytest.importorskip("pyarrow")
    table, array = pa.table({"x": [1, 2], "s": ["a", None]}), np.arange(12.0).reshape(3, 4)
    with client.producer() as producer:
        producer.send_arrow(topic, table, partition=0)
        producer.send_array(topic, array, partition=1)
    with client.consumer(start="earliest") as consumer:
        consumer.assign([(topic, 0)])
        with consumer.poll(5) as batch:
            assert [each.to_pylist() for each in batch.tables()] == [table.to_pylist()]
        consumer.assign([(topic, 1)])
        with consumer.poll(5) as batch:
            (found,) = batch.arrays()
            assert (found == array).all()
            assert not found.flags.writeable
            del found
        consumer.assign([(topic, 0)])
        with consumer.poll(5) as batch:
            assert list(batch.arrays()) == []
            (record,) = batch
            assert record.table().to_pylist() == table.to_pylist()
            with pytest.raises(ValueError, match=f"offset 0 of topic {topic}, partition 0: "):
                record.array()


def test_a_consumer_of_a_missing_topic_raises_no_such_topic(client: smq.Client) -> None:
    with pytest.raises(smq.NoSuchTopic, match="there is no topic nowhere"):
        client.consumer("nowhere")


def test_a_closed_consumer_says_so(client: smq.Client, topic: str) -> None:
    consumer = client.consumer(topic)
    consumer.close()
    consumer.close()
    for use in (consumer.poll, consumer.lag, lambda: consumer.seek(topic, 0, 0)):
        with pytest.raises(smq.Closed):
            use()


def test_a_consumer_inherited_by_a_fork_is_closed(client: smq.Client, topic: str) -> None:
    fill(client, topic, 3)
    with client.consumer(topic, start="earliest") as consumer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll(0)
            except smq.Closed:
                consumer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert numbers(consumer, 3) == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"start": "first"}, ValueError),
        ({"start": -1}, ValueError),
        ({"start": 1.5}, TypeError),
        ({"start": datetime(2026, 1, 1)}, ValueError),  # noqa: DTZ001  (that is what is wrong)
        ({"group": ""}, ValueError),
        ({"assignors": "range"}, TypeError),
        ({"assignors": ["sticky"]}, ValueError),
        ({"auto_commit_s": 5}, ValueError),
        ({"group": "g", "auto_commit_s": -1}, ValueError),
        ({"batch_bytes_max": 0}, ValueError),
        ({"spin_us": "much"}, TypeError),
        ({"nonsense": 1}, TypeError),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(
    client: smq.Client, topic: str, settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=[*settings][-1]):
        client.consumer(topic, **settings)


WRONG_CALLS: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda consumer: consumer.poll("1"), TypeError, "timeout_s is a number of seconds, not str"),
    (lambda consumer: consumer.poll(-1), ValueError, "timeout_s is -1; it should be 0 or more"),
    (lambda consumer: consumer.assign("t"), TypeError, "partitions is a list of pairs"),
    (lambda consumer: consumer.assign(["t"]), TypeError, "partitions has pairs of a topic"),
    (lambda consumer: consumer.assign([("t", "0")]), TypeError, "partition is a whole number"),
    (lambda consumer: consumer.seek("nowhere", 0, 0), ValueError, "nowhere-0 is not assigned"),
    (lambda consumer: consumer.find("first"), ValueError, "place: 'first' is neither"),
    (lambda consumer: consumer.seek(["t"], 0, 0), TypeError, "topic is text, not list"),
    (lambda consumer: consumer.position("a b", 0), ValueError, "topic is 'a b'; it should be"),
    (lambda consumer: consumer.pause("t", True), TypeError, "partition is a whole number"),
    (lambda consumer: consumer.follow("1"), TypeError, "timeout_s is a number of seconds"),
    (lambda consumer: consumer.read_until({("t", 0): "x"}), TypeError, "the offset of"),
    (lambda consumer: consumer.read_until({("x", 0): 1}), ValueError, "x-0 is not assigned"),
    (lambda consumer: consumer.offsets_for_times({("t", 0): "latest"}), TypeError, "the time of"),
    (lambda consumer: consumer.offsets_for_times({("t", 0): 1.5}), TypeError, "the time of"),
]


def test_wrong_arguments_are_refused_at_the_call(client: smq.Client, topic: str) -> None:
    with client.consumer(topic) as consumer:
        for call, error, words in WRONG_CALLS:
            with pytest.raises(error, match=words):
                call(consumer)


@pytest.mark.parametrize(
    "topics", [5, None, b"bytes", ["a", 5]], ids=["number", "nothing", "bytes", "mixed"]
)
def test_topics_are_names(client: smq.Client, topics: Any) -> None:
    with pytest.raises(TypeError, match="topic"):
        client.consumer(topics)


def test_without_a_group_there_is_nothing_to_commit(client: smq.Client, topic: str) -> None:
    with client.consumer(topic) as consumer:
        for use in (consumer.commit, consumer.committed):
            with pytest.raises(ValueError, match="group"):
                use()


@pytest.fixture
def killed(running: smq.testing.smq_broker.SmqBroker) -> Iterator[smq.testing.smq_broker.SmqBroker]:
    yield running
    running.restart()


def test_shards_that_die_cost_nothing(
    client: smq.Client, topic: str, killed: smq.testing.smq_broker.SmqBroker
) -> None:
    with client.consumer(topic, start="earliest") as consumer:
        for life in range(3):
            fill(client, topic, RECORDS, life * RECORDS)
            if life:
                killed.kill(f"shard-{life}")
            expected = list(range(life * RECORDS, (life + 1) * RECORDS))
            assert numbers(consumer, RECORDS) == expected
        deadline = time.monotonic() + 10
        while consumer.transport != client.transport:
            assert time.monotonic() < deadline, "back to the rings"
            consumer.poll(0.1)


def test_an_unreachable_broker_raises_broker_unavailable(client: smq.Client) -> None:
    with smq.testing.broker() as gone:
        other = smq.connect(gone.bootstrap, transport=client.transport, timeout_s=0.5)
        other.create_topic("away", 1)
        consumer = other.consumer("away")
        gone.kill("supervisor")
        with pytest.raises(smq.BrokerUnavailable) as raised:
            numbers(consumer, 1)
        assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        consumer.close()
        other.close()
