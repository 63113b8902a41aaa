"""Deadlines of many keys: each fires in time, and a check costs only the due ones."""

from hypothesis import given, strategies as st

from smq.coordinator.deadlines import NEVER_MS, Deadlines


def test_each_key_comes_up_once_when_its_deadline_has_passed() -> None:
    deadlines = Deadlines()
    deadlines.set("late", 30)
    deadlines.set("early", 10)
    assert deadlines.next_ms() == 10
    assert deadlines.take_due(9) == []
    assert deadlines.take_due(30) == ["early", "late"]
    assert deadlines.take_due(99) == []
    assert (len(deadlines), deadlines.next_ms()) == (0, NEVER_MS)


def test_a_deadline_that_moved_or_was_cleared_does_not_come_up_at_its_old_time() -> None:
    deadlines = Deadlines()
    for key in "abc":
        deadlines.set(key, 10)
    deadlines.set("a", 20)
    deadlines.clear("b")
    deadlines.clear("stranger")
    assert deadlines.take_due(10) == ["c"]
    deadlines.set("a", 15)
    assert deadlines.take_due(15) == ["a"]
    assert "a" not in deadlines


def test_a_deadline_that_only_moves_later_is_filed_once_until_its_time_comes() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 1_000)
    for deadline_ms in range(1_001, 5_000):
        deadlines.set("a", deadline_ms)
    assert deadlines.steps == 1
    assert deadlines.take_due(1_000) == []
    assert deadlines.steps == 3
    assert deadlines.next_ms() == 4_999


def test_keys_that_come_and_go_leave_no_entries_behind() -> None:
    deadlines = Deadlines()
    for i in range(10_000):
        deadlines.set(f"k{i}", 1_000_000 + i)
        deadlines.clear(f"k{i}")
        deadlines.invariants()
    assert len(deadlines._heap) <= 64
    assert deadlines.steps <= 2 * 10_000


KEYS = st.sampled_from("abcde")
TIMES = st.integers(0, 50)
STEPS = st.lists(
    st.tuples(st.just("set"), KEYS, TIMES)
    | st.tuples(st.just("clear"), KEYS, TIMES)
    | st.tuples(st.just("due"), KEYS, TIMES),
    max_size=60,
)


@given(STEPS)
def test_it_does_what_a_plain_dict_does(steps: list[tuple[str, str, int]]) -> None:
    deadlines, plain = Deadlines(), dict[str, int]()
    for what, key, time_ms in steps:
        if what == "set":
            deadlines.set(key, time_ms)
            plain[key] = time_ms
        elif what == "clear":
            deadlines.clear(key)
            plain.pop(key, None)
        else:
            due = {each for each, due_ms in plain.items() if due_ms <= time_ms}
            assert set(deadlines.take_due(time_ms)) == due
            plain = {each: due_ms for each, due_ms in plain.items() if each not in due}
        deadlines.invariants()
        assert len(deadlines) == len(plain)
