"""Ids of one hash cost no more than others: a client chooses them, and the hash of a UUID, its
number modulo 2**61 - 1, has no secret."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from gateway.apis.unknown_first import unknown_first
from gateway.fetch.rules import IDS_FROM, topics_of
from gateway.fetch.session import _topics
from smq.model.errors import ErrorCode
from smq.security.caller import Caller
from smq.shard.client_metrics import ClientMetrics
from smq.shard.fetch_sessions import Asked, FetchSession
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.offset_fetch import (
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

COUNT = 10_000
IDS = [UUID(int=5 + number * (2**61 - 1)) for number in range(COUNT)]
LIKE_ANY_MAX = 20 * COUNT  # Quadratic would be fifty million.


def _of_a_session() -> None:
    session = FetchSession(has_ids=True)
    session.update(Asked(each, 0, 0, 0, 0, 0) for each in IDS)
    session.forget([(each, [0]) for each in IDS[1:]])
    session.invariants()


def _of_news() -> None:
    assert len(_topics([Asked(each, 0, 0, 0, 0, 0) for each in IDS])) == COUNT


def _of_a_fetch() -> None:
    rows = [FetchTopic(topic_id=each, partitions=[FetchPartition()]) for each in IDS]
    assert len(topics_of(FetchRequest(topics=rows), IDS_FROM)) == COUNT


def _of_offsets() -> None:
    unknown = OffsetFetchResponsePartitions(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    rows = [OffsetFetchResponseTopics(topic_id=each, partitions=[unknown]) for each in IDS]
    assert len(unknown_first(rows)) == COUNT


def _of_clients() -> None:
    metrics = ClientMetrics()
    for each in IDS:
        metrics.subscribe(each, "client", Caller("", 0, "", ""), 10**9)
    assert len(list(metrics.newest(COUNT))) == COUNT


@pytest.mark.parametrize("use", [_of_a_session, _of_news, _of_a_fetch, _of_offsets, _of_clients])
def test_ids_of_one_hash_are_hardly_compared(
    use: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 17: 10,000 chosen ids stopped a shard for seconds at each request."""
    assert len({hash(each) for each in IDS}) == 1
    compared = 0

    def is_same(one: UUID, other: object) -> bool:
        nonlocal compared
        compared += 1
        assert compared < LIKE_ANY_MAX
        return isinstance(other, UUID) and one.int == other.int

    monkeypatch.setattr(UUID, "__eq__", is_same)
    use()


def test_no_request_keys_a_dict_by_a_clients_id() -> None:
    """Data fault 17: new code takes the bytes of an id."""
    root = Path(__file__).resolve().parents[2]
    for folder in ("gateway/apis", "gateway/fetch", "smq/shard", "smq/coordinator"):
        for file in (root / folder).rglob("*.py"):
            text = file.read_text()
            for wrong in ("dict[UUID", "set[UUID"):
                assert wrong not in text, (file, wrong)
