"""DescribeTopicPartitions: topics page by page."""

from pathlib import Path

import pytest

from gateway.apis import describe_topic_partitions as module
from smq.model.catalog import INTERNAL_PARTITIONS
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NODES, topic

E = ErrorCode


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("b", range(1, 3)), topic("a", range(3, 6)))


def ask(
    bench: ShardBench, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    answer = bench.ask("DescribeTopicPartitions", 0, request)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    return answer


def rows(answer: DescribeTopicPartitionsResponse) -> dict[str | None, list[int]]:
    return {each.name: [row.partition_index for row in each.partitions] for each in answer.topics}


def next_place(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_all_topics_come_by_name_with_their_leaders(bench: ShardBench) -> None:
    answer = ask(bench)
    internal = [(name, [*range(50)]) for name in ("__consumer_offsets", "__transaction_state")]
    assert list(rows(answer).items()) == [*internal, ("a", [0, 1, 2]), ("b", [0, 1])]
    assert [each.is_internal for each in answer.topics] == [True, True, False, False]
    [row, *_] = answer.topics[2].partitions
    assert (row.leader_id, row.leader_epoch) == (NODES[0].id, NODES[0].generation)
    assert row.replica_nodes == row.isr_nodes == (NODES[0].id,)
    assert row.eligible_leader_replicas == row.last_known_elr == row.offline_replicas == ()


def test_pages_follow_each_other_without_gap(bench: ShardBench) -> None:
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        answer = ask(bench, "a", "b", limit=2, cursor=cursor)
        found += [(name, index) for name, each in rows(answer).items() for index in each]
        cursor, pages = next_place(answer), pages + 1
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    assert pages == 3


def test_a_page_that_ends_with_a_topic_goes_on_with_the_next_one(bench: ShardBench) -> None:
    internal = 2 * INTERNAL_PARTITIONS
    assert next_place(ask(bench, limit=internal + 3)) == ("b", 0)
    assert next_place(ask(bench, limit=internal + 5)) is None


def test_a_cursor_may_name_a_topic_that_is_gone_if_all_are_asked_for(bench: ShardBench) -> None:
    assert rows(ask(bench, cursor=("aa", 0))) == {"b": [0, 1]}


@pytest.mark.parametrize("cursor", [("aa", 0), ("b", 0), ("a", -1)])
def test_an_impossible_cursor_is_refused(bench: ShardBench, cursor: tuple[str, int]) -> None:
    answer = ask(bench, "a", "a", cursor=cursor)
    assert [(each.name, each.error_code) for each in answer.topics] == [("a", E.INVALID_REQUEST)]


def test_a_missing_and_an_invalid_topic_have_different_errors(bench: ShardBench) -> None:
    answer = ask(bench, "none", "no/name", "b")
    errors = {each.name: each.error_code for each in answer.topics}
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == {"none": unknown, "no/name": E.INVALID_TOPIC_EXCEPTION, "b": E.NONE}


def test_an_answer_has_a_limit_of_its_own_and_is_one_row_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITIONS_MAX", 5)
    monkeypatch.setattr(module, "PART_PARTITIONS", 2)
    bench = ShardBench(tmp_path, topic("t", range(1, 7)))
    answer = ask(bench, "t", limit=100)
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("t", 5)]
    assert next_place(answer) == ("t", 5)
