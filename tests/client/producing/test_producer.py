"""One suite for both transports: each record is in its topic once, in order, in its place."""

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import smq
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import LATEST, resolve
from smq.client.payload_formats import read_array, read_table
from smq.model.partitioner import partition_of_key
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic
from tests.client.reading import Read, read

__all__ = ["client", "running", "topic"]  # Fixtures.

pytestmark = pytest.mark.slow  # A broker is started.
WAIT_S = 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(running: SmqBroker, topic: str, count: int) -> list[Read]:
    """The records of a topic of three partitions, after their partition and offset."""
    with Cluster(running.bootstrap) as cluster:
        ends = resolve(cluster, topic, range(3), LATEST)
    assert sum(ends.values()) == count
    return sorted(read(running.bootstrap, topic, ends))


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.001)


def test_a_record_has_all_that_it_was_given(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    with client.producer() as producer:
        sent = producer.send(
            topic, b"value", key=b"k", headers=[("a", b"1"), ("n", None)], timestamp_ms=5
        )
        assert sent.result(WAIT_S) == (topic, partition_of_key(b"k", 3), 0, 5)
        producer.send(topic, None, partition=2)
    (one, two) = sorted(records(running, topic, 2), key=lambda record: record.value is None)
    assert one[2:] == (5, b"k", b"value", (("a", b"1"), ("n", None)))
    assert (two.partition, two.key, two.value, two.headers) == (2, None, None, ())


@pytest.mark.parametrize("compression", CODECS)
def test_every_compression_arrives(
    client: smq.Client, running: SmqBroker, topic: str, compression: str
) -> None:
    with client.producer(compression=compression, batch_bytes=20_000) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
        producer.send_batch(topic, {"value": [b"%d" % number for number in range(1000, 2000)]})
    found = records(running, topic, 2000)
    assert sorted(int(each.value or b"") for each in found) == [*range(2000)]
    for each in found:
        assert each.key is None or each.partition == partition_of_key(each.key, 3)


def test_of_a_batch_with_a_partition_that_is_not_there_nothing_is_sent(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    count = 70_000  # Of several pieces.
    batch = {"value": [b""] * count, "partition": [*[0] * (count - 1), 3]}
    with client.producer() as producer:
        with pytest.raises(ValueError, match="partition is 3; it should be from 0 to 2"):
            producer.send_batch(topic, batch)
        with pytest.raises(TypeError, match="topic is text, not list"):
            producer.send([topic], b"")  # type: ignore[arg-type]
    assert records(running, topic, 0) == []


def test_a_table_arrives_row_by_row(client: smq.Client, running: SmqBroker, topic: str) -> None:
    count = 5000
    table = pa.table(
        {
            "key": pa.array([b"%d" % i if i % 3 else None for i in range(count)], pa.binary()),
            "value": pa.array([b"%d" % i for i in range(count)], pa.binary()),
            "headers": [[{"key": "n", "value": b"%d" % i}] for i in range(count)],
            "timestamp": pa.array([*range(count)], pa.timestamp("ms", "UTC")),
            "partition": pa.array([i % 3 if i % 2 else None for i in range(count)], pa.int8()),
        }
    )
    with client.producer(batch_bytes=30_000) as producer:
        places = producer.send_batch(topic, table).result(WAIT_S)
    found = {int(each.value or b""): each for each in records(running, topic, count)}
    for i in range(count):
        assert (places.partitions[i], places.offsets[i]) == found[i][:2]
        assert found[i].timestamp_ms == places.timestamps_ms[i] == i
        assert found[i].headers == (("n", b"%d" % i),)
        key = found[i].key
        assert key == (b"%d" % i if i % 3 else None)
        if i % 2:
            assert found[i].partition == i % 3
        elif key is not None:
            assert found[i].partition == partition_of_key(key, 3)
    for partition in range(3):
        rows = [int(each.value or b"") for each in found.values() if each.partition == partition]
        assert len(rows) == len(set(rows)) > 0


def test_acks_are_taken_without_a_waiter(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    with client.producer() as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(50)]
        sender = producer._sender
        assert sender is not None
        until(lambda: not sender._accumulator.pending)
        assert [each.result(0).offset for each in sent] == list(range(50))
    assert len(records(running, topic, 50)) == 50


def test_a_future_is_done_for_polling_waiting_and_callbacks(client: smq.Client, topic: str) -> None:
    called: list[int] = []
    with client.producer() as producer:
        for number in range(0, 300, 3):
            looked = producer.send(topic, b"v", partition=0)
            until(looked.done)
            waited = producer.send(topic, b"v", partition=0).result(WAIT_S)
            assert [looked.result().offset, waited.offset] == [number, number + 1]
            producer.send(topic, b"v", partition=0).add_done_callback(
                lambda each: called.append(each.result().offset)
            )
            until(lambda: len(called) == number // 3 + 1)  # noqa: B023  (called here)
    assert called == list(range(2, 300, 3))


def test_records_sent_before_a_batch_precede_it(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    with client.producer(linger_ms=1000) as producer:
        for number in range(0, 100, 10):
            producer.send(topic, b"%d" % number, partition=1)
            rows = {"value": [b"%d" % each for each in range(number + 1, number + 10)]}
            producer.send_batch(topic, rows | {"partition": [1] * 9})
    assert [int(each.value or b"") for each in records(running, topic, 100)] == [*range(100)]


def test_nothing_is_uploaded_for_a_record_that_cannot_be_sent(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"headers": 0}, TypeError),
        ({"partition": 3}, ValueError),
        ({"timestamp_ms": -(2**63)}, ValueError),
        ({"key": "text"}, TypeError),
        ({"callback": 5}, TypeError),
        ({"colour": "red"}, TypeError),
    ]
    with client.producer() as producer:
        for fields, error in wrong:
            with pytest.raises(error, match=next(iter(fields))):
                producer.send_reference(topic, b"payload", **fields)
        assert not (running.data_dir / "filer" / "payloads" / "kafka" / topic).exists()
        headers = (each for each in [("a", b"1")])
        producer.send_reference(topic, b"payload", headers=headers).result(WAIT_S)
    (sent,) = records(running, topic, 1)
    assert sent.headers == (("a", b"1"), ("smq-ref", b"1"))


def test_a_timestamp_out_of_range_is_refused_with_the_topics_limits(
    client: smq.Client, topic: str
) -> None:
    with client.producer() as producer:
        sent = producer.send(topic, b"", timestamp_ms=2**62)
        with pytest.raises(smq.BrokerError, match=r"message\.timestamp\.after\.max\.ms allow"):
            sent.result(WAIT_S)


def test_no_headers_are_none_and_nothing_else(client: smq.Client, topic: str) -> None:
    with client.producer() as producer:
        with pytest.raises(TypeError, match=r"headers is a list of .* pairs, not int"):
            producer.send_arrow(topic, pa.table({}), headers=0)
        producer.send_array(topic, np.zeros(1), headers=None)
        producer.send_handle(topic, client.upload(topic, b""), headers=()).result(WAIT_S)


def test_tables_and_arrays_are_values_too(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    table, array = pa.table({"a": [1, None]}), np.arange(6.0).reshape(2, 3)
    with client.producer() as producer:
        producer.send_arrow(topic, table, key=b"t", partition=0)
        producer.send_array(topic, array, headers=[("own", b"1")], partition=1).result(WAIT_S)
    sent_table, sent_array = records(running, topic, 2)
    assert read_table(sent_table.value) == table
    assert sent_table.key == b"t"
    assert sent_table.headers == (("content-type", b"application/vnd.apache.arrow.stream"),)
    assert (read_array(sent_array.value) == array).all()
    assert sent_array.headers == (("content-type", b"application/x-npy"), ("own", b"1"))


def test_a_batch_larger_than_the_buffer_goes_through_it(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    values = pa.array([b"%d" % i + bytes(1000) for i in range(20_000)], pa.binary())
    with client.producer(buffer_bytes=1 << 20) as producer:
        result = producer.send_batch(topic, pa.table({"value": values})).result(WAIT_S)
    assert (result.offsets >= 0).all()
    assert len({*zip(result.partitions.tolist(), result.offsets.tolist(), strict=True)}) == 20_000


def test_a_record_that_is_too_large_raises_record_too_large(client: smq.Client, topic: str) -> None:
    with client.producer() as producer:
        with pytest.raises(smq.RecordTooLarge, match=r"max\.message\.bytes"):
            producer.send(topic, bytes(2_000_000)).result(WAIT_S)
        assert producer.send(topic, bytes(1_000_000)).result(WAIT_S).offset == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_topic_may_allow_more_than_the_broker_does(
    client: smq.Client, running: SmqBroker, topic: str, codec: str
) -> None:
    client.create_topic(f"{topic}-large", 1, {"max.message.bytes": "4000000"})
    sizes = [100, 3_900_000, 1000, 20_000, 2_500_000] * 2 + [100] * 20
    with client.producer(compression=codec) as producer:
        sent = [
            producer.send(f"{topic}-large", b"%08d" % at + os.urandom(size))
            for at, size in enumerate(sizes)
        ]
        elsewhere = [producer.send(topic, b"%d" % at, partition=at % 3) for at in range(30)]
        assert [each.result(WAIT_S).offset for each in sent] == [*range(30)]
        assert [each.result(WAIT_S).offset for each in elsewhere] == [at // 3 for at in range(30)]
        with pytest.raises(smq.RecordTooLarge, match=r"max\.message\.bytes"):
            producer.send(f"{topic}-large", bytes(4_000_000)).result(WAIT_S)
    with client.consumer(f"{topic}-large", start="earliest") as consumer:
        found = [
            (int(bytes(each.value[:8])), len(each.value) - 8)
            for each in consumer.read_until({(f"{topic}-large", 0): 30})
            if each.value is not None
        ]
    assert found == [*enumerate(sizes)]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"value": "text"}, TypeError, "value is bytes, a buffer or None, not str"),
        ({"value": b"", "key": 5}, TypeError, "key is bytes, a buffer or None, not int"),
        ({"value": b"", "partition": 3}, ValueError, "partition is 3; .* from 0 to 2"),
        ({"value": b"", "partition": -1}, ValueError, "partition is -1"),
        ({"value": b"", "timestamp_ms": 1.5}, TypeError, "timestamp_ms is a whole number"),
        ({"value": b"", "headers": "a"}, TypeError, "headers is a list"),
        ({"value": b"", "headers": 0}, TypeError, "headers is a list"),
        ({"value": b"", "headers": ""}, TypeError, "headers is a list"),
    ],
)
def test_a_wrong_argument_raises_at_the_call_and_harms_nothing(
    client: smq.Client, topic: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with client.producer() as producer:
        with pytest.raises(error, match=words):
            producer.send(topic, **arguments)
        with pytest.raises(ValueError, match="partition is 3"):
            producer.send_batch(topic, {"value": [b""], "partition": [3]})
        assert producer.send(topic, b"right", partition=0).result(WAIT_S).offset == 0


def test_sending_to_a_missing_topic_raises_no_such_topic(client: smq.Client) -> None:
    with client.producer() as producer:
        with pytest.raises(smq.NoSuchTopic):
            producer.send("nope", b"")
        with pytest.raises(smq.NoSuchTopic):
            producer.send_batch("nope", {"value": [b""]})


def send_some(producer: smq.Producer, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        producer.send(topic, b"%d" % number, partition=number % 3)
    producer.flush(WAIT_S)


def work_in_fork(producer: smq.Producer, topic: str, first: int) -> None:
    send_some(producer, topic, first, 300)


def test_a_fork_in_the_middle_sends_its_own_records_only(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    context = multiprocessing.get_context("fork")
    with client.producer(linger_ms=200) as producer:
        pending = [producer.send(topic, b"%d" % number, partition=0) for number in range(100)]
        children = [
            context.Process(target=work_in_fork, args=(producer, topic, first))
            for first in (1000, 2000)
        ]
        for each in children:
            each.start()
        send_some(producer, topic, 3000, 300)
        for each in children:
            each.join(WAIT_S)
            assert each.exitcode == 0
        assert pending[-1].result(WAIT_S).offset >= 99
        send_some(producer, topic, 4000, 10)
    found = sorted(int(each.value or b"") for each in records(running, topic, 1010))
    expected = [*range(100)]
    for first, count in ((1000, 300), (2000, 300), (3000, 300), (4000, 10)):
        expected += range(first, first + count)
    assert found == expected


def test_a_fork_knows_nothing_of_the_parents_records(client: smq.Client, topic: str) -> None:
    with client.producer(linger_ms=60_000) as producer:
        told: list[int] = []
        sent = producer.send(topic, b"0", callback=lambda _: told.append(os.getpid()))
        pid = os.fork()
        if pid == 0:  # Nothing of pytest's must run in the child.
            found: list[object] = []
            code = 1
            try:
                sent.add_done_callback(lambda each: found.append(each.exception(0)))
                found += [sent.exception(0), asyncio.run(error_of(sent))]
                if [type(each) for each in found] == [smq.Closed] * 3 and not told:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        producer.flush(WAIT_S)
        assert sent.result(0).offset == 0
        assert told == [os.getpid()]


async def error_of(sent: smq.Future) -> Exception | None:
    try:
        await sent
    except smq.Closed as error:
        return error
    return None


def test_a_fork_closes_nothing_for_a_producer_that_was_closed_before(
    client: smq.Client, topic: str
) -> None:
    with client.producer() as producer:
        producer.send(topic, b"0").result(WAIT_S)
    fds = [os.eventfd(0) for _ in range(20)]  # One of them has the number the producer's had.
    pid = os.fork()
    if pid == 0:  # Nothing of pytest's must run in the child.
        code = 1
        try:
            for fd in fds:
                os.eventfd_write(fd, 1)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    for fd in fds:
        os.close(fd)
    assert producer is not None  # It has lived until now.


def test_a_spawned_process_is_given_a_producer_of_its_own(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    context = multiprocessing.get_context("spawn")
    with client.producer() as producer:
        send_some(producer, topic, 0, 30)
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            pool.submit(work_in_fork, producer, topic, 30).result(WAIT_S)
        again: smq.Client = pickle.loads(pickle.dumps(client))
        assert again.transport == client.transport
        with again, again.producer() as other:
            send_some(other, topic, 330, 30)
    found = sorted(int(each.value or b"") for each in records(running, topic, 360))
    assert found == [*range(360)]


def test_a_pool_of_threads_shares_a_producer(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    with client.producer() as producer, concurrent.futures.ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(send_some, producer, topic, i * 500, 500) for i in range(4)]:
            each.result(WAIT_S)
    found = records(running, topic, 2000)
    assert sorted(int(each.value or b"") for each in found) == [*range(2000)]
    for first in range(0, 2000, 500):
        for partition in range(3):
            mine = [int(each.value or b"") for each in found if each.partition == partition]
            mine = [each for each in mine if first <= each < first + 500]
            assert mine == sorted(mine)


def test_shards_killed_in_between_lose_double_and_reorder_nothing(
    client: smq.Client, running: SmqBroker, topic: str
) -> None:
    count = 3000
    with client.producer(batch_bytes=1024) as producer:
        sent = []
        for number in range(count):
            sent.append(producer.send(topic, b"%d" % number, partition=number % 3))
            if number % 1000 == 500:
                shard = f"shard-{1 + number // 1000 % 2}"
                threading.Thread(target=running.kill, args=(shard,)).start()
            if number % 100 == 0:
                sent[-1].result(WAIT_S)
        producer.flush(WAIT_S)
    running.restart()
    found = records(running, topic, count)
    for partition in range(3):
        values = [int(each.value or b"") for each in found if each.partition == partition]
        assert values == [*range(partition, count, 3)]
    places = {(each.partition, each.offset): int(each.value or b"") for each in found}
    for number, future in enumerate(sent):
        place = future.result(0)
        assert places[place.partition, place.offset] == number
