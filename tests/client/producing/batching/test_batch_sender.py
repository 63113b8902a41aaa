"""Batches sent in turn, and batches that can never be sent."""

import pytest

from smq.client.errors import RecordTooLarge
from smq.client.producing.batching import batch_sender
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.batching.batch_queue import IN_FLIGHT_MAX
from smq.client.producing.delivery.futures import Future
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.compression import Codec
from tests.client.accumulator_rig import NODE, Rig, single_of
from tests.client.fake_shard import FakeChannel
from tests.client.parcels import closed


def test_a_record_too_large_for_its_topic_fails_and_its_neighbours_do_not() -> None:
    rig = Rig(message_bytes_max=300)
    parcel = closed([(b"small", 0), (bytes(400), 0), (b"also", 0)])
    rig.accumulator.add(parcel)
    rig.settle()
    assert [parcel.is_done(row) for row in range(3)] == [True] * 3
    assert isinstance(parcel.error_of(1), RecordTooLarge)
    assert rig.shard.partitions["t", 0].values() == [b"small", b"also"]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    rig = Rig(batch_bytes=200)
    rig.accumulator.add(closed([(b"small", 0), (bytes(500), 0), (b"also", 0)]))
    rig.settle()
    assert rig.shard.partitions["t", 0].values() == [b"small", bytes(500), b"also"]


def test_a_full_channel_is_no_loss() -> None:
    rig = Rig()
    rig.channel = FakeChannel(room_bytes=600)
    rig.add([0] * 50 + [1] * 50 + [2] * 50)
    rig.settle()
    rig.check()


def test_exhausted_epochs_raise_invalid_producer_epoch() -> None:
    rig = Rig()
    rig.accumulator = Accumulator("test", (7, 2**15), BatchWriter(Codec.NONE), 10_000)
    rig.accumulator.learn("t", [NODE] * 3, 10_000)
    parcel = rig.add([0, 0])
    rig.drain()
    error = parcel.error_of(0)
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_single_record_leaves_at_once_and_as_many_follow_as_a_broker_remembers() -> None:
    rig = Rig()
    assert rig.send_single(0)
    assert not rig.send_single(0)  # The broker does not know us yet.
    rig.settle()
    sent = [rig.send_single(0) for _ in range(IN_FLIGHT_MAX + 1)]
    assert sent == [True] * IN_FLIGHT_MAX + [False]
    rig.settle()
    rig.check()


@pytest.mark.parametrize("lacks", ["channel", "room for it", "plainness", "epoch"])
def test_a_single_record_that_cannot_go_alone_is_not_taken(lacks: str) -> None:
    rig = Rig(message_bytes_max=150 if lacks == "room for it" else 10_000)
    codec = Codec.GZIP if lacks == "plainness" else Codec.NONE
    producer = (7, 2**15 if lacks == "epoch" else 0)
    rig.accumulator = Accumulator("test", producer, BatchWriter(codec), 200)
    rig.accumulator.learn("t", [NODE], rig.message_bytes_max)
    channels = {} if lacks == "channel" else {NODE: rig.channel}
    assert not rig.accumulator.send_single(single_of(bytes(100)), channels, 0)
    rig.accumulator.invariants()
    assert not rig.accumulator.pending
    assert not rig.channel.sent


def test_a_single_record_waits_for_room() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    rig.channel = FakeChannel(room_bytes=200)
    for _ in range(3):
        rig.send_single(0)
        rig.accumulator.invariants()
    assert len(rig.channel.sent) == 1
    rig.settle()
    rig.check()


def test_a_single_record_whose_channel_is_gone_is_sent_again() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    rig.channel.close()
    assert rig.send_single(0)
    assert rig.accumulator.lost == {NODE}
    rig.accumulator.lost.clear()
    rig.lose(delivered=0)
    rig.settle()
    rig.check()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_batch_too_large_for_a_channel_waits_for_another_and_the_rest_is_split(
    codec: Codec,
) -> None:
    rig = Rig(batch_bytes=100_000, message_bytes_max=100_000)
    rig.accumulator = Accumulator("test", (7, 0), BatchWriter(codec), 100_000)
    rig.accumulator.learn("t", [NODE] * 3, 100_000)
    rig.shard.batch_bytes_max = 100_000
    rig.channel.request_bytes_max = 4000
    single = single_of(bytes(5000))
    assert not rig.accumulator.send_single(single, {NODE: rig.channel}, 0)
    small = rig.add([0] * 100, size=100)
    while rig.accumulator.pending:
        rig.round()
    assert rig.accumulator.lost.request_bytes(NODE) == 0
    before, large, behind = rig.add([0, 1]), rig.add([0], size=5000), rig.add([0, 1])
    rig.accumulator.drain({NODE: rig.channel}, 0)
    assert rig.accumulator.lost == {NODE}
    assert 5000 < rig.accumulator.lost.request_bytes(NODE) < 7500
    rig.accumulator.lost.clear()
    rig.lose(1)  # Of what is before it in flight.
    rig.settle()
    assert [small.delivery(row).offset for row in range(100)] == [*range(100)]
    offsets = [each.delivery(0).offset for each in (before, large, behind)]
    assert offsets == [100, 101, 102]


def test_a_sent_batch_too_large_for_a_new_channel_waits_for_another() -> None:
    rig = Rig()
    parcel = rig.add([0] * 10)
    rig.drain()
    rig.lose(1)
    rig.channel.request_bytes_max = 100
    rig.now_ms += RETRY_MS
    rig.learn()
    rig.accumulator.drain({NODE: rig.channel}, rig.now_ms)
    assert rig.accumulator.lost == {NODE}
    assert rig.accumulator.lost.request_bytes(NODE) > 100
    rig.accumulator.lost.clear()
    rig.lose(0)
    rig.settle()
    assert [parcel.delivery(row).offset for row in range(10)] == [*range(10)]
    rig.check()


def test_a_record_too_large_for_every_channel_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "REQUEST_BYTES_MAX", 4000)
    rig = Rig()
    rig.channel.request_bytes_max = 4000
    large, small = rig.add([0], size=5000), rig.add([0])
    rig.settle()
    with pytest.raises(RecordTooLarge, match="send it by reference"):
        Future(large, 0).result()
    assert small.delivery(0).offset == 0
