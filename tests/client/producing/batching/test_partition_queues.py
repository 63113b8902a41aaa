"""The brokers and topics that waiting batches need."""

from smq.client.errors import BrokerUnavailable
from smq.model.errors import ErrorCode
from tests.client.accumulator_rig import NODE, Rig
from tests.client.accumulator_steps import (
    values,
)
from tests.client.fake_shard import FakeChannel


def test_records_follow_their_leader() -> None:
    rig = Rig()
    rig.add([0, 0])
    rig.drain()
    rig.deliver(ErrorCode.NOT_LEADER_OR_FOLLOWER, append=False)
    rig.answer()
    assert rig.accumulator.queues.stale_topics() == {"t"}
    rig.accumulator.learn("t", [2, 2, 2], 10_000)
    assert rig.accumulator.queues.leaders_wanted() == {2}
    other = FakeChannel()
    rig.accumulator.drain({NODE: rig.channel, 2: other}, rig.now_ms)
    assert (len(rig.channel.sent), len(other.sent)) == (0, 1)


def test_a_partition_without_leader_waits_for_one() -> None:
    rig = Rig()
    rig.accumulator.learn("t", [-1, NODE, NODE], 10_000)
    rig.add([1])
    rig.round()
    assert rig.accumulator.queues.stale_topics() == set()
    rig.add([0])
    rig.drain()
    assert (values(rig, 0), values(rig, 1)) == ([], [0])
    assert rig.accumulator.queues.stale_topics() == {"t"}
    rig.settle()
    assert values(rig, 0) == [1]


def test_a_broker_that_cannot_be_reached_is_doubted() -> None:
    rig = Rig()
    rig.add([0])
    rig.accumulator.queues.mark_unreachable(NODE, BrokerUnavailable("gone"))
    assert rig.accumulator.queues.stale_topics() == {"t"}


def test_the_last_failure_is_known_until_a_batch_arrives() -> None:
    rig = Rig()
    rig.add([0, 1])
    queues = rig.accumulator.queues
    queues.mark_unreachable(NODE, BrokerUnavailable("gone"))
    queues.mark_unreachable(2, BrokerUnavailable("another"))
    assert "gone" in queues.get("t", 0).last_failure
    assert queues.get("t", 2).last_failure == "", "nothing waits for it"
    queues.note_no_metadata("t", BrokerUnavailable("silent"))
    queues.note_no_metadata("u", BrokerUnavailable("another"))
    assert "silent" in queues.get("t", 1).last_failure
    rig.settle()
    assert [queues.get("t", each).last_failure for each in range(3)] == [""] * 3
