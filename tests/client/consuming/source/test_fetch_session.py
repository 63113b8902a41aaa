"""A client's requests to a broker that remembers the earlier ones."""

from uuid import UUID

import pytest

from smq.client.consuming.source.fetch_session import EPOCH_MAX, FetchSession, Spot
from smq.client.names import TopicPartition
from smq.model.errors import ErrorCode
from smq.wire.generated.fetch import FetchRequest, FetchResponse

OLD, NEW = UUID(int=1), UUID(int=2)


def spots(*offsets: int, topic_id: UUID = OLD) -> dict[TopicPartition, Spot]:
    return {TopicPartition("a", i): (offset, topic_id) for i, offset in enumerate(offsets)}


def said(request: FetchRequest) -> tuple[int, int, dict[int, int], list[int]]:
    """Session and epoch; the offsets that are asked for, and the partitions that are forgotten."""
    asked = {p.partition: p.fetch_offset for t in request.topics for p in t.partitions}
    gone = [index for topic in request.forgotten_topics_data for index in topic.partitions]
    return request.session_id, request.session_epoch, asked, gone


@pytest.fixture
def session() -> FetchSession:
    session = FetchSession(1000)
    assert said(session.request(spots(5, 6))) == (0, 0, {0: 5, 1: 6}, [])
    assert session.answered(FetchResponse(session_id=7))
    return session


def test_only_what_has_changed_is_said(session: FetchSession) -> None:
    assert said(session.request(spots(5, 6))) == (7, 1, {}, [])
    assert session.answered(FetchResponse(session_id=7))
    assert said(session.request(spots(5, 9, 3))) == (7, 2, {1: 9, 2: 3}, [])
    assert session.answered(FetchResponse(session_id=7))
    assert said(session.request(spots(5))) == (7, 3, {}, [1, 2])


def test_a_topic_that_was_created_again_is_another(session: FetchSession) -> None:
    request = session.request(spots(5) | spots(0, 0, topic_id=NEW))
    assert said(request) == (7, 1, {0: 0, 1: 0}, [0, 1])
    assert [topic.topic_id for topic in request.topics] == [NEW]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [OLD]


@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_refused_session_is_begun_again_and_names_the_old_one(
    session: FetchSession, code: int
) -> None:
    session.request(spots(5, 6))
    assert not session.answered(FetchResponse(error_code=ErrorCode(code)))
    assert said(session.request(spots(5, 6))) == (7, 0, {0: 5, 1: 6}, [])


def test_without_a_session_everything_is_said_each_time(session: FetchSession) -> None:
    session.request(spots(5, 6))
    assert session.answered(FetchResponse(session_id=0))
    assert said(session.request(spots(5, 6))) == (0, 0, {0: 5, 1: 6}, [])


def test_after_the_last_epoch_comes_the_first(session: FetchSession) -> None:
    session._epoch = EPOCH_MAX
    assert said(session.request(spots(5, 6)))[:2] == (7, EPOCH_MAX)
    session.answered(FetchResponse(session_id=7))
    assert said(session.request(spots(5, 6)))[:2] == (7, 1)
