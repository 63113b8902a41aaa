"""A plan is one array; its tables never overlap."""

import pytest

from shm.kernels.base import words
from shm.kernels.log.plan import new_plan, request_at, row_at, topic_at


@pytest.mark.parametrize(("requests", "topics", "rows"), [(1, 1, 1), (3, 5, 7), (512, 1024, 4096)])
def test_a_plan_has_room_for_what_was_asked_and_not_a_word_more(
    requests: int, topics: int, rows: int
) -> None:
    plan = new_plan(requests, topics, rows)
    capacities = plan[
        [words.HEAD_REQUEST_CAPACITY, words.HEAD_TOPIC_CAPACITY, words.HEAD_ROW_CAPACITY]
    ]
    assert capacities.tolist() == [requests, topics, rows]
    taken = [range(words.HEAD_WORDS)]
    taken += [range(at, at + words.REQUEST_WORDS) for at in map(request_at, range(requests))]
    taken += [
        range(at, at + words.TOPIC_WORDS) for at in (topic_at(plan, i) for i in range(topics))
    ]
    taken += [range(at, at + words.ROW_WORDS) for at in (row_at(plan, i) for i in range(rows))]
    assert [word for each in taken for word in each] == list(range(len(plan)))


def test_the_last_word_of_each_table_is_inside_it() -> None:
    assert words.REQUEST_TRANSACTIONAL < words.REQUEST_WORDS
    assert words.TOPIC_ROW_COUNT < words.TOPIC_WORDS
    assert words.ROW_TRANSACTIONAL < words.ROW_WORDS


def test_places_are_the_same_interpreted() -> None:
    plan = new_plan(2, 3, 4)
    for at in (topic_at, row_at):
        assert at(plan, 2) == at.py_func(plan, 2)  # type: ignore[attr-defined]
