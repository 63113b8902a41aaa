"""The streams that are open now."""

from uuid import UUID

from smq.agent.layouts import RingRange
from smq.app.agent.live import Live, LivePublisher

A, B = UUID(int=1), UUID(int=2)
WHOLE = RingRange(2520, 0, 2520, 0)


def publisher(topic: UUID) -> LivePublisher:
    rest = {"name": "p", "client_id": "c", "connected_ns": 1, "seen_ns": 1}
    return LivePublisher(topic=topic, partition=WHOLE, **rest)  # type: ignore[arg-type]


def test_the_streams_of_a_topic_are_listed_in_their_order_until_they_end() -> None:
    live = Live[LivePublisher]()
    one, other, two = (live.begin(publisher(topic)) for topic in (A, B, A))
    assert [*live.of(A)] == [one, two]
    live.end(one)
    live.end(one)
    assert [*live.of(A)] == [two]
    assert [*live.of(B)] == [other]
