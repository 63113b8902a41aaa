"""Deadlines that pass while a batch is in flight and its fate is unknown."""

from collections import deque

import pytest
from hypothesis import given, settings, strategies as st

from smq.client.errors import AuthenticationFailed, BrokerUnavailable, NoSuchTopic
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.batching.expiry import EXPIRY_CHECK_MS
from smq.model.errors import ErrorCode
from tests.client.accumulator_rig import NODE, Rig
from tests.client.accumulator_steps import (
    STEPS,
    do,
    values,
)
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.

LATER = st.one_of(
    STEPS,
    st.tuples(st.just("add"), st.lists(st.integers(0, 1), min_size=1, max_size=6)),
    st.tuples(st.just("late"), st.integers(1, 6)),
    st.tuples(st.just("doze"), st.integers(0, 6)),
    st.tuples(st.just("stir"), st.integers(1, 6)),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(LATER, min_size=10, max_size=40))
def test_records_that_expire_do_not_reorder_or_duplicate_others(
    steps: list[tuple[object, ...]],
) -> None:
    """Also with a broker that has slept: what lay unread in lost channels it reads later."""
    rig, asleep = Rig(batch_bytes=120), deque[bytes]()
    for step in steps:
        match step:
            case ("late", int(count)):
                for parcel in [*rig.accumulator.pending][:count]:
                    parcel.deadline_ms = rig.now_ms
                rig.now_ms += EXPIRY_CHECK_MS
                rig.accumulator.expire(rig.now_ms)
            case ("doze", int(delivered)):
                asleep += [*rig.channel.sent][delivered:]
                rig.lose(delivered)
            case ("stir", int(count)):
                for _ in range(min(count, len(asleep))):
                    rig.shard.answer(asleep.popleft(), append=True)
            case _:
                do(rig, step)
        rig.accumulator.invariants()
    rig.settle()
    for each in asleep:
        rig.shard.answer(each, append=True)
    rig.check_late()
    assert rig.accumulator.pending.buffered_bytes == 0


def test_a_batch_in_flight_fails_at_its_deadline_and_those_behind_it_go_on_in_order() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    late, good = rig.add([0], deadline_ms=rig.now_ms + 500), rig.add([0])
    rig.drain()
    rig.now_ms += 500
    rig.accumulator.expire(rig.now_ms)
    rig.accumulator.invariants()
    assert isinstance(late.error_of(0), BrokerUnavailable)
    assert "it may have the record" in str(late.error_of(0))
    assert [*rig.accumulator.pending.take_changed()][-1] is late
    assert not good.is_resolved()
    rig.settle()
    assert values(rig) == [0, 1, 2], "it has it, and says so too late"
    assert good.delivery(0).offset == 2
    assert rig.shard.partitions["t", 0].epochs[7] == 0


def test_a_record_waiting_behind_a_batch_in_flight_fails_at_its_deadline() -> None:
    rig = Rig()
    rig.add([0])
    waits = rig.add([0], deadline_ms=500)
    rig.drain()
    rig.accumulator.expire(500)
    assert "took nothing in time" in str(waits.error_of(0))
    rig.settle()
    assert values(rig) == [0]


def test_a_batch_that_may_yet_be_taken_with_a_late_one_before_it_does_not_begin_again() -> None:
    """The broker slept: its inbox holds both, and the later one also came over a new channel."""
    rig = Rig()
    rig.add([0])
    rig.settle()
    late, behind = rig.add([0], deadline_ms=rig.now_ms + 500), rig.add([0])
    rig.drain()
    asleep = [*rig.channel.sent]
    rig.now_ms += 500
    rig.accumulator.expire(rig.now_ms)
    rig.lose(delivered=0)
    rig.now_ms += RETRY_MS
    rig.round()
    assert "it may have the record" in str(behind.error_of(0))
    for each in asleep:
        rig.shard.answer(each, append=True)
    after = rig.add([0])
    rig.settle()
    assert late.is_resolved()
    assert after.error_of(0) is None
    assert values(rig) == [0, 1, 2, 3]


def test_an_expired_batch_in_flight_is_in_doubt_until_a_later_one_is_acknowledged() -> None:
    rig = Rig()
    rig.add([0])
    rig.settle()
    rig.add([0], deadline_ms=rig.now_ms + 500)
    rig.drain()
    rig.lose(delivered=1)
    rig.now_ms += 500
    rig.accumulator.expire(rig.now_ms)
    rig.add([0])
    rig.settle()
    refused = rig.add([0])
    rig.drain()
    rig.lose(delivered=0)
    rig.now_ms += RETRY_MS
    rig.learn()
    rig.drain()
    rig.deliver(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, append=False)
    rig.answer()
    rig.settle()
    assert refused.error_of(0) is None
    assert values(rig) == [0, 1, 2, 3]


def test_a_broker_that_takes_and_does_not_answer_fails_what_is_in_flight_and_what_waits(
    kafka: FakeKafka, open_producer: Open
) -> None:
    (partition,) = kafka.add_topic("t")
    producer = open_producer(delivery_timeout_s=0.3)
    producer.send("t", b"0").result(WAIT_S)
    kafka.takes_records.clear()
    late = [producer.send("t", b"%d" % number) for number in (1, 2)]
    for each in late:
        with pytest.raises(BrokerUnavailable, match="it may have the record"):
            each.result(WAIT_S)
    kafka.takes_records.set()
    while producer.send("t", b"3").exception(WAIT_S) is not None:
        pass  # It is told to wait for what the broker has not done yet.
    found = [int(record.value or b"") for record in partition.records()]
    assert found[:4] == [0, 1, 2, 3]


def test_a_record_past_its_deadline_fails_and_others_arrive() -> None:
    rig = Rig()
    late, early = rig.add([0, 1], deadline_ms=500), rig.add([0])
    rig.now_ms = 500
    rig.accumulator.expire(rig.now_ms)
    rig.accumulator.invariants()
    assert late.is_resolved()
    assert isinstance(late.error_of(0), BrokerUnavailable)
    rig.settle()
    assert values(rig) == [2]
    assert early.is_resolved()


def test_a_topic_that_is_gone_fails_what_waits() -> None:
    rig = Rig()
    parcel = rig.add([0, 1, 2])
    rig.accumulator.fail_topic("t")
    assert isinstance(parcel.error_of(2), NoSuchTopic)
    assert not rig.accumulator.pending


def test_a_failed_login_fails_what_waits_for_the_broker_and_nothing_else() -> None:
    rig = Rig()
    rig.accumulator.learn("t", [NODE, 2, NODE], 10_000)
    sent, other = rig.add([0]), rig.add([1])
    rig.accumulator.drain({NODE: rig.channel}, rig.now_ms)
    rig.lose(delivered=1)
    rig.accumulator.learn("t", [NODE, 2, NODE], 10_000)
    waits = rig.add([2])
    reason = AuthenticationFailed("no login")
    rig.accumulator.fail_unauthenticated(lambda queue: queue.leader == NODE, reason)
    rig.accumulator.invariants()
    assert str(sent.error_of(0)).endswith("no login; t-0 may have the record")
    assert str(waits.error_of(0)).endswith("no login")
    assert not other.is_resolved()
    rig.accumulator.learn("t", [NODE] * 3, 10_000)
    rig.settle()
    again = rig.add([0])
    rig.settle()
    assert again.error_of(0) is None
    rig.check_late()


def test_a_record_that_a_broker_puts_off_until_its_deadline_fails_with_the_reason() -> None:
    rig = Rig()
    late = rig.add([0], deadline_ms=500)
    rig.drain()
    rig.deliver(ErrorCode.NOT_ENOUGH_REPLICAS, append=False)
    rig.answer()
    rig.accumulator.expire(500)
    assert str(late.error_of(0)).endswith("t-0 took nothing in time: NOT_ENOUGH_REPLICAS")


def test_next_due_ms_returns_the_earliest_deadline_or_retry() -> None:
    rig = Rig()
    assert rig.accumulator.next_due_ms(0) is None
    rig.add([0], deadline_ms=5000)
    assert rig.accumulator.next_due_ms(0) == 5000
    rig.drain()
    rig.lose(0)
    assert rig.accumulator.next_due_ms(0) == RETRY_MS
