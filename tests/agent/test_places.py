"""Where the partitions of a session start."""

from smq.agent.places import SessionStarts
from smq.agent.proto import mq_schema_pb2
from smq.model.offset_types import OffsetType as T, WantedPlace


def test_offset_types_have_seaweedmqs_names_and_numbers() -> None:
    assert {each.name: each.value for each in T} == dict(mq_schema_pb2.OffsetType.items())


def test_a_session_starts_where_it_says_at_the_first_assignment_alone() -> None:
    exact, otherwise = WantedPlace(T.EXACT_OFFSET, 5), WantedPlace(T.RESET_TO_LATEST)
    starts = SessionStarts({0: exact}, otherwise)
    resume = WantedPlace(T.RESUME_OR_EARLIEST)
    assert starts.take(0, taken_over=False) == exact
    assert starts.take(0, taken_over=False) == resume
    assert starts.take(1, taken_over=False) == otherwise
    assert starts.take(2, taken_over=True) == resume
