"""Places: how callers say them, and what brokers make of them."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetPlace,
    find_offsets,
    find_places,
    place_of,
    resolve,
    timestamp_of,
)
from smq.model.errors import ErrorCode, PeerError
from smq.wire.records import Record
from tests.client.fake_kafka import HANDLERS, FakeKafka


def test_a_start_is_a_word_an_offset_a_time_or_a_place() -> None:
    assert place_of("earliest") is EARLIEST
    assert place_of("latest") is LATEST
    assert place_of(0) == OffsetPlace(offset=0)
    assert place_of(datetime.fromtimestamp(1.5, UTC)) == OffsetPlace(timestamp=1500)
    assert place_of(EARLIEST) is EARLIEST
    assert place_of(np.int64(7)) == OffsetPlace(offset=7)
    assert place_of(datetime(1960, 1, 1, tzinfo=UTC)) == OffsetPlace(timestamp=0)


@pytest.mark.parametrize(
    ("time", "error"),
    [(-5, ValueError), (2**63, ValueError), ("earliest", TypeError), (True, TypeError)],
)
def test_an_invalid_time_is_refused(time: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="milliseconds since 1970"):
        timestamp_of("the time", time)
    assert timestamp_of("the time", datetime.fromtimestamp(1.5, UTC)) == 1500


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ("begin", ValueError),
        (-1, ValueError),
        (2**63, ValueError),
        (datetime(2026, 1, 1), ValueError),  # noqa: DTZ001  (that is what is wrong)
        (True, TypeError),
        (1.0, TypeError),
        (None, TypeError),
    ],
)
def test_an_invalid_start_is_refused(start: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="start"):
        place_of(start)


def test_places_become_offsets(kafka: FakeKafka, cluster: Cluster) -> None:
    kafka.add_topic("a", 2)
    for partition in range(2):
        kafka.append("a", partition, [Record(each, 1000 + each, None, b"") for each in range(10)])
    assert resolve(cluster, "a", [0, 1], EARLIEST) == {0: 0, 1: 0}
    assert resolve(cluster, "a", [0, 1], LATEST) == {0: 10, 1: 10}
    assert resolve(cluster, "a", [1], OffsetPlace(offset=7)) == {1: 7}
    assert resolve(cluster, "a", [0, 1], OffsetPlace(timestamp=1004)) == {0: 4, 1: 4}
    assert resolve(cluster, "a", [0, 1], OffsetPlace(timestamp=9999)) == {0: 10, 1: 10}
    assert find_offsets(cluster, "a", [1], 9999) == {1: -1}
    assert find_places(cluster, "a", [0, 1], 1004) == {0: (4, 1004), 1: (4, 1004)}


@pytest.mark.parametrize("index", [-2147483647, 7])
def test_an_answer_about_other_partitions_raises_peer_error(
    kafka: FakeKafka, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    """`smq consume` ended with a ValueError when a broker told the offset of a partition below
    0."""

    def other(fake: FakeKafka, node: int, request: Any, code: ErrorCode) -> Any:
        answer = fake.list_offsets(node, request, code)
        answer.topics[0].partitions[0].partition_index = index
        return answer

    monkeypatch.setitem(HANDLERS, "ListOffsets", other)
    kafka.add_topic("a")
    with pytest.raises(PeerError, match="answers about other partitions"):
        find_offsets(cluster, "a", [0], -1)


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, -1), (-2, -1), (1000, -2), (-1, -(2**63))])
def test_a_place_that_cannot_be_is_of_no_broker(
    kafka: FakeKafka,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    timestamp: int,
    offset: int,
) -> None:
    """Of the kind of door fault 12: an end below 0 was asked about until the stack was full."""

    def other(fake: FakeKafka, node: int, request: Any, code: ErrorCode) -> Any:
        answer = fake.list_offsets(node, request, code)
        answer.topics[0].partitions[0].offset = offset
        return answer

    monkeypatch.setitem(HANDLERS, "ListOffsets", other)
    kafka.add_topic("a")
    with pytest.raises(PeerError, match=f"it says that a-0 has {offset}"):
        resolve(cluster, "a", [0], OffsetPlace(timestamp=timestamp))
