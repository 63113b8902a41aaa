"""Where a subscription begins: what is asked for each type of place."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from smq.agent.layouts import RingLayout
from smq.agent.proto.mq_schema_pb2 import OffsetType
from smq.agent.topic_names import TopicName
from smq.app.agent.starts import PlacesKnown, start_at
from smq.app.agent.topics import KnownTopic
from smq.client.names import TopicPartition
from smq.model.offset_types import LogEnds, Start, WantedPlace

TOPIC = KnownTopic(TopicName("shop", "orders"), UUID(int=1), {}, (RingLayout(1, 2),))


class Asked:
    """A broker with a partition of offsets 10 to 20, of which 13 is the first at the time 7."""

    def __init__(self) -> None:
        self.times: list[int] = []

    async def ask(self, work: Callable[..., Any]) -> Any:
        asked = work.keywords  # type: ignore[attr-defined]
        self.times.append(asked["time_ms"])
        return 13 if asked["time_ms"] <= 7 else None


def begin(wanted: WantedPlace, committed: int | None = None) -> tuple[Start, list[int]]:
    asked = Asked()
    commits = {} if committed is None else {TopicPartition("shop.orders", 1): committed}
    known = PlacesKnown(commits, {1: LogEnds(10, 20)})
    work = start_at(asked, TOPIC, 1, wanted, known)  # type: ignore[arg-type]
    return asyncio.run(work), asked.times


def test_only_a_time_is_looked_up() -> None:
    assert begin(WantedPlace(OffsetType.RESUME_OR_EARLIEST), 15) == (Start(15), [])
    at_time = WantedPlace(OffsetType.EXACT_TS_NS, ts_ns=6_000_001)
    assert begin(at_time) == (Start(13), [7])
    assert begin(at_time._replace(ts_ns=9_000_000)) == (Start(20), [9])


def test_a_place_that_cannot_be_is_refused_before_the_broker_is_asked() -> None:
    with pytest.raises(ValueError, match="no offset type 4"):
        begin(WantedPlace(4))
