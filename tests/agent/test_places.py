"""Where the partitions of a session start, and where a seek leads."""

from smq.agent.places import SessionStarts, sought
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


def test_a_seek_names_a_time_or_an_offset_and_without_a_type_of_its_own_an_offset() -> None:
    assert sought(T.EXACT_TS_NS, 7) == WantedPlace(T.EXACT_TS_NS, ts_ns=7)
    for kind in (T.RESUME_OR_EARLIEST, T.RESUME_OR_LATEST, T.EXACT_OFFSET):
        assert sought(kind, 7) == WantedPlace(T.EXACT_OFFSET, 7)
    for other in (T.RESET_TO_EARLIEST, T.RESET_TO_LATEST, T.RESET_TO_OFFSET, 3):
        assert sought(other, 7) == WantedPlace(other, 7)
