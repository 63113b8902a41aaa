"""TxnOffsetCommit: aside until the decision; refused as the group or the transaction says."""

from typing import Any

import pytest

from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.errors import ErrorCode
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.gateway.apis.transactions.producers import add_group, begin, end
from tests.gateway.coordinator_bench import CoordinatorBench
from tests.gateway.groups import stable_member

E = ErrorCode


def commit(
    bench: CoordinatorBench,
    producer: ProducerEpoch,
    *offsets: tuple[int, int],
    version: int = 5,
    topic: str = "t",
    metadata: str = "",
    **fields: Any,
) -> list[ErrorCode]:
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets
    ]
    request: dict[str, Any] = {
        "transactional_id": "mine",
        "group_id": "g",
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    }
    answer = bench.ask("TxnOffsetCommit", version, TxnOffsetCommitRequest(**(request | fields)))
    return [each.error_code for each in answer.topics[0].partitions]


def fetched(
    bench: CoordinatorBench, *, stable: bool, named: bool = True, version: int = 9
) -> dict[int, Any]:
    """Offset and error of the partitions of `t`."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])] if named else None
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    answer = bench.ask("OffsetFetch", version, request)
    return {
        each.partition_index: (each.committed_offset, each.error_code)
        for topic in answer.groups[0].topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_wait_for_the_decision(
    bench: CoordinatorBench, version: int, committed: bool
) -> None:
    producer = begin(bench)
    if version < 5:
        add_group(bench, producer)
    assert commit(bench, producer, (0, 17), version=version) == [E.NONE]
    nothing = (-1, E.NONE)
    assert fetched(bench, stable=False) == {0: nothing, 1: nothing}
    assert fetched(bench, stable=True) == {0: (-1, E.UNSTABLE_OFFSET_COMMIT), 1: nothing}
    assert fetched(bench, stable=True, named=False) == {}
    end(bench, producer, committed=committed)
    after = (17, E.NONE) if committed else nothing
    assert fetched(bench, stable=True) == {0: after, 1: nothing}


@pytest.mark.parametrize("version", [7, 8, 9])
@pytest.mark.parametrize("named", [True, False])
def test_an_offset_with_a_pending_commit_is_unstable_even_after_an_earlier_commit(
    bench: CoordinatorBench, version: int, named: bool
) -> None:
    """Data fault 26: below version 8 the error was lost, and a copier read what was pending."""
    producer = begin(bench)
    commit(bench, producer, (0, 17), (1, 18))
    producer = producer._replace(epoch=end(bench, producer).producer_epoch)
    commit(bench, producer, (0, 20))
    how: dict[str, Any] = {"named": named, "version": version}
    unstable, stable = (-1, E.UNSTABLE_OFFSET_COMMIT), (18, E.NONE)
    assert fetched(bench, stable=True, **how) == {0: unstable, 1: stable}
    assert fetched(bench, stable=False, **how) == {0: (17, E.NONE), 1: stable}


@pytest.mark.parametrize(
    ("version", "error"), [(3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)]
)
def test_a_group_that_has_not_joined(
    bench: CoordinatorBench, version: int, error: ErrorCode
) -> None:
    producer = begin(bench)
    assert commit(bench, producer, (0, 17), (1, 18), version=version) == [error, error]


@pytest.mark.parametrize("version", [3, 5])
def test_a_wrong_producer_or_group_cannot_commit(bench: CoordinatorBench, version: int) -> None:
    producer = begin(bench)
    add_group(bench, producer)
    later, other = producer._replace(epoch=9), producer._replace(id=producer.id + 1)
    how: dict[str, Any] = {"version": version}
    assert commit(bench, later, (0, 1), **how) == [E.INVALID_PRODUCER_EPOCH]
    assert commit(bench, other, (0, 1), **how) == [E.INVALID_PRODUCER_ID_MAPPING]
    unknown = commit(bench, producer, (0, 1), transactional_id="unknown", **how)
    assert unknown == [E.INVALID_PRODUCER_ID_MAPPING]
    assert commit(bench, producer, (0, 1), group_id="", **how) == [E.INVALID_GROUP_ID]


def test_a_partition_error_is_returned_for_that_partition_only(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(bench, producer, (0, 1), (3, 1)) == [unknown, E.NONE]
    assert commit(bench, producer, (0, 1), topic="other") == [unknown]
    assert commit(bench, producer, (1, 1), metadata="x" * 5000) == [E.OFFSET_METADATA_TOO_LARGE]
    end(bench, producer)
    assert fetched(bench, stable=True) == {0: (1, E.NONE), 1: (-1, E.NONE)}


def test_members_are_checked_and_others_are_not(bench: CoordinatorBench) -> None:
    producer = begin(bench)
    member: dict[str, Any] = {"member_id": stable_member(bench), "generation_id": 1}
    assert commit(bench, producer, (0, 1), **member) == [E.NONE]
    assert commit(bench, producer, (0, 2)) == [E.NONE]
    late = member | {"generation_id": 0}
    assert commit(bench, producer, (0, 3), **late) == [E.ILLEGAL_GENERATION]
    stranger = member | {"member_id": "stranger"}
    assert commit(bench, producer, (0, 3), **stranger) == [E.UNKNOWN_MEMBER_ID]
    of_another = member | {"group_id": "another"}
    assert commit(bench, producer, (0, 3), **of_another) == [E.ILLEGAL_GENERATION]
