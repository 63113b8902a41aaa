"""The sessions a kernel serves: which these are, and what each of them watches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.turn.sessions import S_FD, S_MEMORY_BYTES, SESSION_WORDS, SESSIONS_MAX
from smq.app.shard.session import Session
from smq.app.shard.session_table import SessionTable
from tests.app.door_bench import DoorBench
from tests.app.one_at_a_time import OneAtATime
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DoorBench]:
    with benches(tmp_path, DoorBench) as make:
        yield make(topic("one", range(1, 4)))


def sessions(bench: DoorBench, count: int) -> list[Session]:
    """So many attached programs, whom another table does not know yet."""
    for _ in range(count):
        bench.attach()
    found = sorted(bench.sessions._sessions, key=lambda session: session.fd)
    for session in found:
        bench.server.sessions.remove(session)
    return found


def test_each_has_a_row_until_it_is_removed(bench: DoorBench) -> None:
    table, (first, second) = SessionTable(4), sessions(bench, 2)
    table.add(first)
    table.add(second)
    assert (first.row, second.row) == (0, 1)
    row = table.arrays[0][SESSION_WORDS:]
    assert (row[S_FD], row[S_MEMORY_BYTES]) == (second.fd, len(second.memory.memory))
    assert table.at(second.fd) is second
    assert table.of(0b10) == [second]
    table.awake = 0b11
    table.remove(first)
    assert (first.row, table.awake, list(table.all())) == (-1, 0b10, [second])
    table.add(first)
    assert first.row == 0


def test_what_it_watches_is_a_bit_at_each_partition(bench: DoorBench) -> None:
    table, (first, second) = SessionTable(4), sessions(bench, 2)
    table.add(first)
    table.add(second)
    table.watch(first, 101, 1)
    table.watch(first, 103, 3)
    table.watch(second, 103, 3)
    assert table.arrays[1].tolist() == [0, 0b01, 0, 0b11]
    table.unwatch(second, 103)
    table.watch_everything(second, wanted=True)
    assert (table.arrays[1].tolist(), table.watch_all) == ([0, 1, 0, 1], 0b10)
    table.remove(first)
    table.watch_everything(second, wanted=False)
    table.watch(second, 100, 0)
    assert (table.arrays[1].tolist(), table.watch_all) == ([0b10, 0, 0, 0], 0)
    table.invariants()
    table.remove(second)
    assert not table.arrays[1].any()
    table.invariants()


def test_partitions_that_come_go_or_take_anothers_slot_are_followed(bench: DoorBench) -> None:
    table, (first, second) = SessionTable(4), sessions(bench, 2)
    table.add(first)
    table.add(second)
    table.watch(first, 101, 1)
    table.watch(first, 102, None)
    table.watch(second, 102, None)
    assert table.arrays[1].tolist() == [0, 0b01, 0, 0]
    for places, words in [
        ({101: 1, 102: 3}, [0, 0b01, 0, 0b11]),
        ({102: 3}, [0, 0, 0, 0b11]),
        ({102: 3, 109: 1}, [0, 0, 0, 0b11]),
        ({101: 3, 102: 1}, [0, 0b11, 0, 0b01]),
        ({}, [0, 0, 0, 0]),
        ({101: 0}, [0b01, 0, 0, 0]),
    ]:
        table.place(places.get)
        assert table.arrays[1].tolist() == words
        table.invariants()


def test_a_change_touches_the_words_that_it_names_and_no_others(bench: DoorBench) -> None:
    table, (first, second) = SessionTable(131_072), sessions(bench, 2)
    table.add(first)
    table.add(second)
    words = OneAtATime()
    table._watchers = words  # type: ignore[assignment]
    for number in range(10):
        table.watch(first, number, number)
    table.watch(second, 3, 3)
    table.unwatch(first, 3)
    assert words.touched == 12
    table.place({number: number for number in range(8)}.get)
    assert words.touched == 14
    table.remove(first)
    assert words.touched == 14 + 7
    assert {slot: word for slot, word in words.items() if word} == {3: 0b10}


def test_who_comes_when_all_rows_are_taken_is_served_by_the_loop(bench: DoorBench) -> None:
    programs = [bench.attach() for _ in range(SESSIONS_MAX)]
    watching = [bench.sessions.is_watching]
    late = bench.attach()
    late.session.watch([1])
    late.ring()
    bench.turn(3)
    watching.append(bench.sessions.is_watching)
    assert watching == [False, True]  # Of the late one the kernel does not know.
    assert {session.row for session in bench.sessions._sessions} == {*range(-1, SESSIONS_MAX)}
    assert len(programs) == SESSIONS_MAX
