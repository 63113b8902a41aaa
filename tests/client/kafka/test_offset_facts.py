"""Offsets of a topic's partitions at a real broker: ends, lag, and starts of each type."""

from uuid import uuid4

import pytest

import smq
from smq.client.kafka.group_admin import commit_offsets
from smq.client.kafka.offset_facts import PartitionOffsets
from smq.client.locate import cluster_at
from smq.client.names import TopicPartition
from smq.testing.smq_broker import SmqBroker

T = smq.OffsetType
FIRST_MS = 1_790_000_000_000


@pytest.fixture
def topic(smq_session_broker: SmqBroker) -> str:
    """Ten records in partition 0, of which a group has committed four; none in partition 1."""
    name = uuid4().hex[:8]
    with smq_session_broker.connect() as client, client.producer() as producer:
        client.create_topic(name, 2)
        for each in range(10):
            producer.send(name, b"v", partition=0, timestamp_ms=FIRST_MS + each)
    with cluster_at(smq_session_broker.data_dir) as cluster:
        commit_offsets(cluster, name, {TopicPartition(name, 0): 4})
    return name


def test_a_groups_lag_is_counted_from_what_it_has_committed(
    smq_session_broker: SmqBroker, topic: str
) -> None:
    with smq_session_broker.connect() as client:
        found = client.offsets(topic, group=topic)
        assert found == {
            0: PartitionOffsets(0, 10, 10, committed=4, lag=6, start=4, note=""),
            1: PartitionOffsets(0, 0, 0, committed=None, lag=None, start=0, note=""),
        }
        alone = client.offsets(topic)
        assert (alone[0].committed, alone[0].lag, alone[0].start) == (None, None, 0)


def test_each_offset_type_has_its_start(smq_session_broker: SmqBroker, topic: str) -> None:
    starts = {
        smq.WantedPlace(T.RESUME_OR_LATEST): 4,
        smq.WantedPlace(T.RESET_TO_EARLIEST): 0,
        smq.WantedPlace(T.RESET_TO_LATEST): 10,
        smq.WantedPlace(T.EXACT_OFFSET, 7): 7,
        smq.WantedPlace(T.RESET_TO_OFFSET, 7): 7,
        smq.WantedPlace(T.EXACT_TS_NS, ts_ns=(FIRST_MS + 3) * 10**6): 3,
        smq.WantedPlace(T.EXACT_TS_NS, ts_ns=(FIRST_MS + 99) * 10**6): 10,
    }
    with smq_session_broker.connect() as client:
        found = {each: client.offsets(topic, group=topic, start=each)[0].start for each in starts}
    assert found == starts


def test_an_offset_out_of_range_is_nowhere_or_at_the_nearest_end_with_a_note(
    smq_session_broker: SmqBroker, topic: str
) -> None:
    with smq_session_broker.connect() as client:
        exact = client.offsets(topic, start=smq.WantedPlace(T.EXACT_OFFSET, 77))[0]
        reset = client.offsets(topic, start=smq.WantedPlace(T.RESET_TO_OFFSET, 77))[0]
        assert (exact.start, reset.start) == (None, 10)
        for each in (exact, reset):
            assert "offset 77 is out of range: the partition has 0 to 10" in each.note
        with pytest.raises(ValueError, match="no offset type 3"):
            client.offsets(topic, start=smq.WantedPlace(3))
        with pytest.raises(smq.NoSuchTopic):
            client.offsets("nowhere")
