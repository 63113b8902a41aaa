"""The sealer's view of a shard, from answers that carry only changes."""

from smq.sealer.watched import Watched
from smq.wire.internal.messages import Partitions, PartitionState, ShardFacts


def row(number: int, *, stable_end: int = 9, sealed_end: int = 5) -> PartitionState:
    return PartitionState(number, 0, 0, sealed_end, stable_end, 10, 7)


def answer(
    *rows: PartitionState,
    since: int = 1,
    version: int = 2,
    more: bool = False,
    gone: tuple[int, ...] = (),
) -> ShardFacts:
    return ShardFacts(3, since, version, more, [*gone], [*rows], wal_bytes=40, wal_bytes_max=100)


def to_seal(watched: Watched) -> list[int]:
    watched.invariants()
    return sorted(state.number for state in watched.state(answer()).partitions)


def test_the_first_question_is_for_everything_and_the_next_for_what_is_new() -> None:
    watched = Watched({})
    assert watched.question() == Partitions(life=0, since=0)
    assert watched.take(answer(row(1), since=0, version=8))
    assert watched.question() == Partitions(life=3, since=8)
    state = watched.state(answer())
    assert state.partitions == (row(1),)
    assert (state.wal_bytes, state.wal_bytes_max) == (40, 100)


def test_a_partition_missing_in_an_answer_is_unchanged() -> None:
    states: dict[int, PartitionState] = {}
    watched = Watched(states)
    watched.take(answer(row(1), row(2), row(3), since=0))
    assert watched.take_before() == {}
    watched.take(answer(row(2, stable_end=20), row(3, sealed_end=9)))
    assert to_seal(watched) == [1, 2]
    assert states == {
        1: row(1),
        2: row(2, stable_end=20),
        3: row(3, sealed_end=9),
    }
    before = watched.take_before()
    assert before == {2: row(2), 3: row(3)}
    assert watched.take_before() == {}


def test_how_it_was_is_how_it_was_before_the_first_of_several_answers() -> None:
    watched = Watched({})
    watched.take(answer(row(1), since=0))
    watched.take_before()
    assert not watched.take(answer(row(1, stable_end=10), more=True))
    assert watched.take(answer(row(1, stable_end=11)))
    assert watched.take_before() == {1: row(1)}


def test_a_deleted_partition_is_forgotten() -> None:
    states: dict[int, PartitionState] = {}
    watched, other = Watched(states), Watched(states)
    watched.take(answer(row(1), row(2), since=0))
    other.take(answer(row(3), since=0))
    watched.take(answer(gone=(2, 3, 4)))
    assert to_seal(watched) == [1]
    assert sorted(states) == [1, 3]


def test_partitions_missing_in_a_full_answer_are_forgotten_at_its_end() -> None:
    states: dict[int, PartitionState] = {}
    watched = Watched(states)
    watched.take(answer(row(1), row(2), row(3), since=0))
    assert not watched.take(answer(row(3), since=0, more=True))
    assert to_seal(watched) == [1, 2, 3]
    assert not watched.take(answer(row(4), gone=(1,), more=True))
    assert watched.take(answer(row(5)))
    assert to_seal(watched) == [3, 4, 5] == sorted(states)
    assert watched.take_before()[3] == row(3)
