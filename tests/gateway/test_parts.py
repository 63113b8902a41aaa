"""A request of many elements is answered as one of few, in steps."""

from pathlib import Path
from typing import Any

import pytest

from gateway.apis import list_offsets
from gateway.apis.bounds import NAMED
from gateway.apis.table import APIS
from gateway.coordinator_dispatch import dispatch as ask
from gateway.dispatch import dispatch
from gateway.parts import Parts
from smq.model.errors import ErrorCode, PeerError
from smq.store.rows import CommittedOffset
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from smq.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from smq.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.gateway.coordinator_bench import NODES, CoordinatorBench, finished, relayed
from tests.gateway.groups import make_topic
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NOW, NOW_MS, batch, topic

PARTITIONS = 900


def epochs(*counts: int) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="wide",
                partitions=[OffsetForLeaderPartition(partition=i) for i in range(count)],
            )
            for count in counts
        ]
    )


@pytest.fixture
def shard(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("wide", range(1, PARTITIONS + 1)))


@pytest.mark.parametrize("version", [2, 4])
def test_a_large_request_is_answered_as_its_parts(shard: ShardBench, version: int) -> None:
    small: Any = shard.ask("OffsetForLeaderEpoch", version, epochs(20))
    assert not isinstance(shard.asked.result, Parts)
    large: Any = shard.ask("OffsetForLeaderEpoch", version, epochs(PARTITIONS, 20))
    assert isinstance(shard.asked.result, Parts)
    first, second = large.topics
    assert [each.partition for each in first.partitions] == list(range(PARTITIONS))
    assert first.partitions[:20] == second.partitions == small.topics[0].partitions


def test_error_codes_of_all_parts_are_known_once_it_is_written(shard: ShardBench) -> None:
    shard.ask("OffsetForLeaderEpoch", 4, epochs(PARTITIONS + 20, 5, PARTITIONS + 3))
    parts = shard.asked.result
    assert isinstance(parts, Parts)
    assert parts.errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 23}


def test_all_topics_are_described_in_parts(shard: ShardBench) -> None:
    found = shard.ask("Metadata", 12, MetadataRequest(topics=None))
    assert isinstance(shard.asked.result, Parts)
    [described] = [each for each in found.topics if not each.is_internal]
    assert [each.partition_index for each in described.partitions] == list(range(PARTITIONS))
    assert len(found.brokers) == 2


def test_topics_that_are_to_be_made_have_the_whole_request_relayed(shard: ShardBench) -> None:
    topics = [MetadataRequestTopic(name=f"new-{number}") for number in range(400)]
    question = relayed("Metadata", 12, MetadataRequest(topics=topics)).request
    asked = dispatch(question, shard.shard, NOW)
    assert isinstance(asked.result, Parts)
    while asked.result.pending is None:
        assert not asked.result.step()
    assert asked.result.request == bytes(question)


def test_the_coordinator_finds_many_and_makes_many(bench: CoordinatorBench) -> None:
    keys = [f"group-{number}" for number in range(2000)]
    found = bench.ask("FindCoordinator", 4, FindCoordinatorRequest(coordinator_keys=keys))
    assert [each.key for each in found.coordinators] == keys
    topics = [MetadataRequestTopic(name=f"new-{number}") for number in range(400)]
    made = bench.ask("Metadata", 12, MetadataRequest(topics=topics))
    assert [each.name for each in made.topics] == [each.name for each in topics]
    assert len(bench.coordinator.topics.catalog.by_name) == 400


def test_offsets_of_all_topics_come_page_by_page(bench: CoordinatorBench) -> None:
    made = [make_topic(bench, name, 500) for name in "ab"]
    numbers = [number for each in made for number in each.partition_numbers]
    offsets = {number: CommittedOffset(number, 1, "", 0) for number in numbers}
    bench.coordinator.store.commit_offsets("g", offsets)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in "gh"]
    found = bench.ask("OffsetFetch", 9, OffsetFetchRequest(groups=groups))
    committed, none = found.groups
    assert (committed.group_id, none.group_id, list(none.topics)) == ("g", "h", [])
    rows = [row for each in committed.topics for row in each.partitions]
    assert [each.name for each in committed.topics] == ["a", "b"]
    assert [row.committed_offset for row in rows] == numbers


READ_HERE = [api for api in APIS if api.handle is not None]  # Produce is the kernel's.


@pytest.mark.parametrize("api", READ_HERE, ids=[api.name for api in READ_HERE])
def test_a_request_of_more_bytes_than_its_api_takes_is_refused_unread(
    shard: ShardBench, api: Any
) -> None:
    head = api.key.to_bytes(2) + api.versions[-1].to_bytes(2) + b"\0\0\0\1\xff\xff"
    request = head + bytes(api.bounds.bytes_max)
    with pytest.raises(PeerError, match=f"{api.name}: a request of {len(request)} bytes"):
        dispatch(memoryview(request), shard.shard, NOW)


def test_a_request_malformed_at_its_end_changes_nothing(bench: CoordinatorBench) -> None:
    topics = [MetadataRequestTopic(name=f"new-{number}") for number in range(2000)]
    question = relayed("Metadata", 12, MetadataRequest(topics=topics))
    assert len(question.request) > NAMED.few_bytes
    cut = question._replace(request=question.request[:-3])
    asked = ask(cut, bench.coordinator, NODES, bench.now, 1)
    assert isinstance(asked.response, Parts)
    with pytest.raises(PeerError):
        finished(asked.response)
    assert not bench.coordinator.topics.catalog.by_name


def test_a_topic_named_many_times_is_described_once(shard: ShardBench) -> None:
    named = ["wide", *(f"none-{number}" for number in range(400)), "wide"] * 3
    topics = [MetadataRequestTopic(name=name) for name in named]
    question = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    found = shard.ask("Metadata", 12, question)
    assert isinstance(shard.asked.result, Parts)
    assert [each.name for each in found.topics].count("wide") == 1
    again = shard.ask("Metadata", 12, question)
    assert [each.name for each in again.topics] == [each.name for each in found.topics]


@pytest.mark.slow
def test_portions_share_what_may_be_inflated(
    shard: ShardBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[int] = []
    asks = list_offsets._Search.asks

    def noted(search: Any, of: Any, bytes_max: int) -> Any:
        budgets.append(bytes_max)
        return asks(search, of, bytes_max)

    monkeypatch.setattr(list_offsets._Search, "asks", noted)
    for partition in range(PARTITIONS):
        shard.appender.append("wide", partition, batch(b"a"))
    asked = [ListOffsetsPartition(partition_index=i, timestamp=NOW_MS) for i in range(PARTITIONS)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="wide", partitions=asked)]
    )
    found = shard.ask("ListOffsets", 7, request)
    assert isinstance(shard.asked.result, Parts)
    assert [each.offset for each in found.topics[0].partitions] == [0] * PARTITIONS
    assert budgets == sorted(budgets, reverse=True)
    assert budgets[0] == list_offsets.INFLATED_BYTES_MAX > budgets[-1]
