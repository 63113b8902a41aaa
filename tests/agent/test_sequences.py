"""Records that a publisher sends again are appended once."""

from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from smq.agent.sequences import PublisherName, Sequences, TooOld

ONE = PublisherName("one", UUID(int=1), 0)


class Log:
    def __init__(self) -> None:
        self.records: list[object] = []

    def append(self) -> object:
        record = object()
        self.records.append(record)
        return record


@given(st.lists(st.integers(0, 20), max_size=60))
def test_each_number_is_sent_once_as_long_as_it_is_known(numbers: list[int]) -> None:
    sequences, log = Sequences[object](kept_max=5), Log()
    sent: dict[int, object] = {}
    for number in numbers:
        try:
            found = sequences.once(ONE, number, log.append)
        except TooOld:
            assert number < max(sent)
        else:
            assert sent.setdefault(number, found) is found
    assert len(log.records) == len(sent)


def test_publishers_topics_and_partitions_have_numbers_of_their_own() -> None:
    sequences, log = Sequences[object](), Log()
    for publisher in (ONE, ONE._replace(name="two"), ONE._replace(partition=1)):
        sequences.once(publisher, 7, log.append)
    assert len(log.records) == 3


def test_a_record_that_was_refused_may_be_sent_again() -> None:
    sequences, log = Sequences[object](), Log()
    first = sequences.once(ONE, 1, log.append)
    sequences.forget(ONE, 1, first)
    second = sequences.once(ONE, 1, log.append)
    assert second is not first
    sequences.forget(ONE, 1, first)  # Told late.
    assert sequences.once(ONE, 1, log.append) is second


def test_the_outcome_of_a_record_takes_its_place() -> None:
    sequences, log = Sequences[object](), Log()
    first, outcome = sequences.once(ONE, 1, log.append), object()
    sequences.settle(ONE, 1, first, outcome)
    sequences.settle(ONE, 1, first, object())
    sequences.settle(ONE._replace(name="other"), 1, first, object())
    assert sequences.once(ONE, 1, log.append) is outcome


def test_a_number_below_all_that_are_known_is_refused() -> None:
    sequences, log = Sequences[object](kept_max=2), Log()
    for number in (1, 2, 3):
        sequences.once(ONE, number, log.append)
    with pytest.raises(TooOld, match="sequence 1 is below the 2 newest of publisher one"):
        sequences.once(ONE, 1, log.append)


def test_the_publisher_that_was_silent_for_longest_is_forgotten() -> None:
    sequences, log = Sequences[object](publishers_max=2), Log()
    names = [ONE._replace(name=name) for name in ("a", "b", "a", "c")]
    for name in names:
        sequences.once(name, 1, log.append)
    assert len(log.records) == 3
    sequences.once(names[0], 1, log.append)
    assert len(log.records) == 3
    sequences.once(names[1], 1, log.append)
    assert len(log.records) == 4
