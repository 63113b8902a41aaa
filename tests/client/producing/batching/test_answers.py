"""What answers mean for batches, and what the loss of a channel means."""

from collections.abc import Callable

import pytest

from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.model.errors import BrokerError
from smq.wire.codec import Malformed
from smq.wire.compression import Codec
from smq.wire.records import read_batches
from tests.client.accumulator_rig import NODE, Rig
from tests.client.accumulator_steps import (
    FOR_GOOD,
    values,
)


def test_a_lost_answer_is_asked_for_again_with_the_same_sequence() -> None:
    rig = Rig()
    parcel = rig.add([0])
    rig.drain()
    first = rig.channel.sent[0]
    rig.lose(delivered=1)
    rig.learn()
    rig.drain()
    assert not rig.channel.sent  # Not at once: a broker that is gone is asked now and then.
    rig.now_ms += RETRY_MS
    rig.drain()
    (again,) = rig.channel.sent
    assert again[12:] == first[12:]  # Behind size and correlation id.
    rig.deliver()
    rig.answer()
    assert values(rig) == [0]
    assert parcel.delivery(0).offset == 0


def test_a_batch_refused_for_good_fails_alone_and_the_next_ones_are_sent() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    bad, good = rig.add([0]), rig.add([0])
    rig.drain()
    rig.deliver(FOR_GOOD, append=False)
    rig.deliver()  # Out of order now: the broker never saw its predecessor.
    rig.answer()
    rig.settle()
    assert values(rig) == [0, 2]
    error = bad.error_of(0)
    assert isinstance(error, BrokerError)
    assert error.code == FOR_GOOD
    assert good.delivery(0).offset == 1


def test_a_broker_that_lost_its_last_records_is_sent_a_new_epoch() -> None:
    rig = Rig()
    for _ in range(2):
        rig.add([0])
        rig.settle()
    rig.shard.partitions["t", 0].forget_last_batch(7)
    rig.add([0])
    rig.settle()
    assert values(rig) == [0, 2]
    assert rig.shard.partitions["t", 0].epochs[7] == 1


@pytest.mark.parametrize(
    "change",
    [lambda data: b"\0\0\0\7" + data[4:], lambda data: data[:4] + bytes(8)],
    ids=["another request", "no partition"],
)
def test_an_answer_to_another_question_is_no_answer(change: Callable[[bytes], bytes]) -> None:
    rig = Rig()
    rig.add([0])
    rig.drain()
    rig.deliver()
    (answer,) = rig.channel.answers()
    with pytest.raises(Malformed):
        rig.accumulator.answered(NODE, change(answer), 0)


def test_compressed_batches_are_sent_again_as_they_were() -> None:
    rig = Rig()
    rig.accumulator = Accumulator("test", (7, 0), BatchWriter(Codec.LZ4), 10_000)
    rig.accumulator.learn("t", [NODE] * 3, 10_000)
    rig.add([0] * 500)
    rig.drain()
    first = rig.channel.sent[0]
    (batch,) = read_batches(first[first.index(b"\x02", 40) - 16 :])
    assert batch.codec == Codec.LZ4
    rig.lose(delivered=0)
    rig.settle()
    assert values(rig) == list(range(500))
