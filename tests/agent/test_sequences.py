"""Records that a publisher sends again are appended once."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from smq.agent.sequences import MORE, PUBLISHER_COST, PublisherName, Sequences, TooOld

ONE = PublisherName("User:a", "one", UUID(int=1), 0)


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


def test_users_publishers_and_partitions_have_numbers_of_their_own() -> None:
    sequences, log = Sequences[object](), Log()
    for rest in ({}, {"name": "two"}, {"partition": 1}, {"owner": "User:b"}):
        sequences.once(ONE._replace(**rest), 7, log.append)
    assert len(log.records) == 4


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


def test_more_numbers_are_kept_than_said_and_the_lowest_go_together() -> None:
    sequences, log = Sequences[object](kept_max=8 * MORE), Log()
    for number in range(9 * MORE):
        sequences.once(ONE, number, log.append)
    sequences.once(ONE, 0, log.append)
    sequences.once(ONE, 9 * MORE, log.append)
    sequences.invariants()
    sequences.once(ONE, MORE + 1, log.append)
    assert len(log.records) == 9 * MORE + 1
    with pytest.raises(TooOld):
        sequences.once(ONE, MORE, log.append)


def test_the_publisher_that_was_silent_for_longest_is_forgotten() -> None:
    sequences, log = Sequences[object](all_max=2 * PUBLISHER_COST + 3), Log()
    names = [ONE._replace(name=name) for name in ("a", "b", "a", "c")]
    for name in names:
        sequences.once(name, 1, log.append)
        sequences.invariants()
    assert len(log.records) == 3
    sequences.once(names[0], 1, log.append)
    assert len(log.records) == 3
    sequences.once(names[1], 1, log.append)
    assert len(log.records) == 4


def test_a_user_of_many_names_pushes_out_his_own_publishers() -> None:
    sequences, log = Sequences[object](all_max=1000), Log()
    others = [ONE._replace(owner=f"User:{number}") for number in range(20)]
    for other in others:
        for number in range(10):
            sequences.once(other, number, log.append)
    for name in map(str, range(1000)):
        sequences.once(ONE._replace(name=name), 1, log.append)
        sequences.invariants()
    count = len(log.records)
    for other in others:
        for number in range(10):
            sequences.once(other, number, log.append)
    sequences.once(ONE._replace(name="999"), 1, log.append)
    assert len(log.records) == count


def test_room_is_made_without_looking_at_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences, log = Sequences[object](all_max=9000), Log()
    looked: list[str] = []
    cost_of = sequences._cost_of

    def counted(owner: str) -> int:
        looked.append(owner)
        return cost_of(owner)

    monkeypatch.setattr(sequences, "_cost_of", counted)
    for number in range(1100):
        sequences.once(ONE._replace(owner=f"User:{number}"), 1, log.append)
    sequences.invariants()
    assert 0 < len(looked) < 1000


def test_publishers_of_refused_records_alone_are_bounded_too() -> None:
    sequences, log = Sequences[object](all_max=100), Log()

    def refuse() -> object:
        raise LookupError

    for name in map(str, range(50)):
        with pytest.raises(LookupError):
            sequences.once(ONE._replace(name=name), 1, refuse)
        sequences.invariants()
    sequences.once(ONE, 1, log.append)
    sequences.forget(ONE, 1, log.records[0])
    sequences.invariants()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 9)), max_size=80
    )
)
def test_room_is_bounded_for_all_users(sent: list[tuple[str, str, int]]) -> None:
    sequences, log = Sequences[object](kept_max=4, all_max=40), Log()
    for owner, name, number in sent:
        publisher = ONE._replace(owner=owner, name=name)
        with suppress(TooOld):
            found = sequences.once(publisher, number, log.append)
            assert sequences.once(publisher, number, log.append) is found
        sequences.invariants()
