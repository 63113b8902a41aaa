"""Where partitions begin: at their commit, else at `start`; new partitions at 0."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import pytest

from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.source import Partition
from smq.client.errors import NoSuchTopic
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import Begin, Start, place_of, wanted_of
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.model.offset_types import OffsetType, WantedPlace
from smq.wire.records import Record
from tests.client.fake_kafka import FakeKafka

if TYPE_CHECKING:
    from smq.client.consuming.group.commits import Committing

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Committed:
    """What a group has committed."""

    def __init__(self) -> None:
        self.offsets = {ONE: 7}

    def fetch(self, _names: object) -> dict[TopicPartition, int]:
        return dict(self.offsets)

    def forget(self, name: TopicPartition) -> None:
        del self.offsets[name]


def beginnings(kafka: FakeKafka, cluster: Cluster, start: Begin) -> Beginnings:
    """Of a topic with a record a second in partition 0, and none in partition 1."""
    kafka.add_topic("t", 2)
    for second in range(4):
        kafka.append("t", 0, [Record(0, 1000 * second, None, b"v")])
    begin = wanted_of(start) or place_of(start)
    return Beginnings(cluster, begin, cast("Committing", Committed()))


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (WantedPlace(OffsetType.RESUME_OR_EARLIEST), {ZERO: 0, ONE: 7}),
        (WantedPlace(OffsetType.RESUME_OR_LATEST), {ZERO: 4, ONE: 7}),
        (WantedPlace(OffsetType.RESET_TO_EARLIEST), {ZERO: 0, ONE: 0}),
        (WantedPlace(OffsetType.RESET_TO_LATEST), {ZERO: 4, ONE: 0}),
        (WantedPlace(OffsetType.EXACT_TS_NS, ts_ns=1_500_000_000), {ZERO: 2, ONE: 0}),
        (WantedPlace(OffsetType.RESET_TO_OFFSET, offset=3), {ZERO: 3, ONE: 0}),
    ],
)
def test_an_offset_type_decides_once_and_the_commit_afterwards(
    kafka: FakeKafka, cluster: Cluster, start: WantedPlace, found: dict[TopicPartition, int]
) -> None:
    made = beginnings(kafka, cluster, start)
    assert made.positions([ZERO, ONE]) == found
    assert made.positions([ONE]) == {ONE: 7}


def test_an_exact_offset_beyond_the_log_is_refused_with_its_range(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    made = beginnings(kafka, cluster, WantedPlace(OffsetType.EXACT_OFFSET, offset=3))
    assert made.positions([ZERO]) == {ZERO: 3}
    with pytest.raises(BrokerError, match="has 0 to 0"):
        made.positions([ONE])


@pytest.mark.parametrize(
    ("start", "found", "of_new"),
    [
        ("earliest", 0, 0),
        ("latest", 4, 0),
        (3, 3, 3),
        (datetime.fromtimestamp(1.5, UTC), 2, 2),
        (datetime.fromtimestamp(9, UTC), 4, 4),
    ],
)
def test_a_partition_without_a_commit_begins_at_start(
    kafka: FakeKafka, cluster: Cluster, start: Start, found: int, of_new: int
) -> None:
    made = beginnings(kafka, cluster, start)
    assert made.partitions_of(["t"]) == [ZERO, ONE]
    assert made.positions([ZERO, ONE]) == {ZERO: found, ONE: 7}
    assert made.of_new([ZERO]) == {ZERO: of_new}


def test_a_missing_partition_or_topic_is_refused(kafka: FakeKafka, cluster: Cluster) -> None:
    made = beginnings(kafka, cluster, "latest")
    made.check([ZERO, ONE])
    with pytest.raises(BrokerError, match="has no partition 2, only 0 to 1"):
        made.check([TopicPartition("t", 2)])
    with pytest.raises(NoSuchTopic):
        made.check([TopicPartition("none", 0)])
    with pytest.raises(NoSuchTopic):
        made.partitions_of(["none"])


def test_a_position_that_is_gone_begins_anew_where_that_is_a_word(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    made = beginnings(kafka, cluster, "latest")
    assert made.reset(Partition(ZERO, 99)) == 4
    assert made.resets == 1


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_topic_that_was_created_again_is_all_news(
    kafka: FakeKafka, cluster: Cluster, start: str
) -> None:
    made = beginnings(kafka, cluster, start)
    assert made.in_another(Partition(ONE, 3)) == 0
    assert made.resets == 1
    assert ONE not in made.positions([]), "what was committed is no longer"


def test_a_start_offset_in_a_topic_created_again_is_out_of_range(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    made = beginnings(kafka, cluster, 2)
    with pytest.raises(BrokerError, match="topic t was deleted and created again; 3 was") as told:
        made.in_another(Partition(ONE, 3))
    assert told.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_out_of_range_is_refused_with_the_offsets_there_are(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    made = beginnings(kafka, cluster, 99)
    with pytest.raises(BrokerError, match="t-0 has no offset 99: its records are from 0 up to 4"):
        made.reset(Partition(ZERO, 99))
    with pytest.raises(BrokerError) as raised:
        made.reset(Partition(ZERO, 99))
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert made.resets == 0
