"""Answers to publishers: true, in order, bounded whatever is read."""

from hypothesis import given, strategies as st

from smq.agent import answers as module
from smq.agent.answers import (
    APART_MS,
    LATE_MS,
    LATEST_MS,
    UNREAD_MAX,
    Answers,
    PublishAnswer,
)


def appended(offset: int, partition: int = 0, tag: int | None = None) -> PublishAnswer:
    tag = 1000 + offset if tag is None else tag
    return PublishAnswer(tag, base_offset=offset, last_offset=offset, count=1, partition=partition)


def refused(tag: int) -> PublishAnswer:
    return PublishAnswer(tag=tag, error="it does not fit", error_code=42)


def taken(answers: Answers, now_ms: int = 10**9) -> list[PublishAnswer]:
    found = []
    while (answer := answers.take(now_ms)) is not None:
        found.append(answer)
    return found


def test_each_record_has_an_answer_with_an_interval_of_one_or_less() -> None:
    for interval in (-5, 0, 1):
        answers = Answers(interval)
        for offset in range(3):
            answers.add(appended(offset), 0)
        assert taken(answers, 0) == [appended(0), appended(1), appended(2)]


def test_an_answer_covers_at_most_the_interval() -> None:
    answers = Answers(4)
    for offset in range(10):
        answers.add(appended(offset), 0)
    first, second = taken(answers, 0)
    assert (first.base_offset, first.last_offset, first.tag, first.count) == (0, 3, 1003, 4)
    assert (second.base_offset, second.last_offset) == (4, 7)
    assert answers.due_ms() == LATE_MS
    [third] = taken(answers, LATE_MS)
    assert (third.base_offset, third.last_offset) == (8, 9)


def test_no_answer_is_later_than_its_first_record_allows() -> None:
    answers = Answers(100)
    for now_ms in range(5, 5 + LATE_MS):
        answers.add(appended(now_ms), now_ms)
        assert answers.take(now_ms) is None
    found = answers.take(5 + LATE_MS)
    assert found is not None
    assert found.count == LATE_MS


def test_answers_of_many_partitions_leave_once_nothing_has_come_for_a_while() -> None:
    answers = Answers(100)
    for partition in range(16):
        answers.add(appended(0, partition), 3)
    assert answers.take(2 + LATE_MS) is None
    assert len(taken(answers, 3 + LATE_MS)) == 16


def test_answers_of_many_partitions_are_apart_and_not_late_without_bound() -> None:
    for partitions, late_ms in ((1, LATE_MS), (16, 16 * APART_MS), (1000, LATEST_MS)):
        answers = Answers(10**6)
        for now_ms in range(late_ms):
            for partition in range(partitions):
                answers.add(appended(now_ms, partition), now_ms)
            assert answers.take(now_ms) is None
        assert len(taken(answers, late_ms)) == partitions


def test_a_mark_is_answered_at_once_with_what_came_before_it() -> None:
    answers = Answers(100)
    answers.add(appended(0), 0)
    answers.add(PublishAnswer(tag=77), 0)
    assert taken(answers, 0) == [appended(0), PublishAnswer(tag=77)]


def test_a_refused_record_has_its_own_answer_between_those_of_its_neighbours() -> None:
    answers = Answers(100)
    answers.add(appended(0), 0)
    answers.add(refused(5), 0)
    answers.add(appended(1), 0)
    assert [each.error_code for each in taken(answers)] == [0, 42, 0]


def test_unread_answers_become_one() -> None:
    answers = Answers(1)
    for offset in range(10 * UNREAD_MAX):
        answers.add(appended(offset), 0)
    assert len(answers) == UNREAD_MAX
    assert answers.merged == 9 * UNREAD_MAX
    *_, last = taken(answers)
    assert (last.base_offset, last.last_offset) == (UNREAD_MAX - 1, 10 * UNREAD_MAX - 1)


def test_unread_refusals_are_counted_by_the_newest_answer() -> None:
    answers = Answers(1)
    for tag in range(UNREAD_MAX + 5):
        answers.add(refused(tag), 0)
    *_, last = taken(answers)
    assert (last.error, last.merged_errors) == ("it does not fit", 5)


def test_an_unread_refusal_keeps_its_record_when_others_come_behind_it() -> None:
    answers = Answers(1)
    for offset in range(UNREAD_MAX - 1):
        answers.add(appended(offset), 0)
    answers.add(refused(5), 0)
    for offset in range(UNREAD_MAX, UNREAD_MAX + 3):
        answers.add(appended(offset), 0)
        answers.invariants()
    answers.add(refused(6), 0)
    *_, refusal, last = taken(answers)
    assert (refusal.tag, refusal.error, refusal.last_offset) == (5, "it does not fit", -1)
    assert (last.base_offset, last.last_offset, last.error) == (UNREAD_MAX, UNREAD_MAX + 2, "")
    assert last.merged_errors == 1


def test_keys_over_many_partitions_have_an_answer_for_each_partition() -> None:
    answers = Answers(100)
    for number in range(40):
        answers.add(appended(number // 4, number % 4, tag=number + 1), 0)
        answers.invariants()
    assert answers.take(LATE_MS - 1) is None
    found = taken(answers, LATE_MS)
    assert [each.tag for each in found] == [37, 38, 39, 40]
    assert [each.partition for each in found] == [0, 1, 2, 3]
    assert {(each.base_offset, each.last_offset, each.count) for each in found} == {(0, 9, 10)}


def test_a_mark_takes_no_offset_from_the_answer_that_takes_it_up() -> None:
    bound, module.UNREAD_MAX = module.UNREAD_MAX, 1
    try:
        answers = Answers(1)
        answers.add(appended(7, partition=3), 0)
        answers.add(PublishAnswer(tag=9999), 0)
        [found] = taken(answers)
    finally:
        module.UNREAD_MAX = bound
    assert (found.tag, found.partition, found.base_offset, found.last_offset) == (9999, 3, 7, 7)


class Reader:
    """Reads some answers now and then, and compares them with what was added."""

    def __init__(self, interval: int) -> None:
        self.answers = Answers(interval)
        self.added: list[int] = []
        self.told = 0

    def read(self, count: int, now_ms: int) -> None:
        for _ in range(count):
            answer = self.answers.take(now_ms)
            if answer is None:
                return
            covered = self.added[self.told : self.told + answer.count]
            assert answer.base_offset == covered[0]
            assert answer.last_offset == covered[-1]
            self.told += answer.count


@given(
    st.integers(-1, 7),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5), st.integers(0, 30)), max_size=20),
)
def test_every_record_is_answered_once_and_in_order(
    interval: int, turns: list[tuple[int, int, int]]
) -> None:
    reader, now_ms = Reader(interval), 0
    bound, module.UNREAD_MAX = module.UNREAD_MAX, 4
    try:
        for added, read, later_ms in turns:
            for _ in range(added):
                offset = 3 * len(reader.added)  # With gaps, as of transactions.
                reader.added.append(offset)
                reader.answers.add(appended(offset), now_ms)
                reader.answers.invariants()
            now_ms += later_ms
            reader.read(read, now_ms)
        reader.answers.flush()
        reader.read(len(reader.added) + 1, now_ms)
    finally:
        module.UNREAD_MAX = bound
    assert reader.told == len(reader.added)


@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(-1, 3), st.booleans(), st.integers(0, 30)), max_size=60),
)
def test_each_offset_of_each_partition_is_answered_once_and_numbers_rise(
    interval: int, turns: list[tuple[int, bool, int]]
) -> None:
    answers, now_ms = Answers(interval), 0
    ends, found = [0] * 4, list[PublishAnswer]()
    for number, (partition, reads, later_ms) in enumerate(turns, start=1):
        if partition < 0:
            answers.add(refused(number), now_ms)
        else:
            answers.add(appended(ends[partition], partition, tag=number), now_ms)
            ends[partition] += 1
        answers.invariants()
        now_ms += later_ms
        found += taken(answers, now_ms) if reads else []
    answers.flush()
    found += taken(answers, now_ms)
    tags = [each.tag for each in found]
    assert tags == sorted({*tags})
    for partition, end in enumerate(ends):
        mine = [each for each in found if each.count and each.partition == partition]
        offsets = [at for each in mine for at in range(each.base_offset, each.last_offset + 1)]
        assert offsets == [*range(end)]
