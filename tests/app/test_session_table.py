"""The sessions a kernel serves: which these are, and what each of them watches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.turn_sessions import S_FD, S_MEMORY_BYTES, SESSION_WORDS, SESSIONS_MAX
from smq.app.session import Session
from smq.app.session_table import SessionTable
from tests.app.door_bench import DoorBench
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
    table.watch(first, [1, 3])
    table.watch(second, [3])
    assert table.arrays[1].tolist() == [0, 0b01, 0, 0b11]
    table.watch(second, None)
    assert (table.arrays[1].tolist(), table.watch_all) == ([0, 1, 0, 1], 0b10)
    table.remove(first)
    table.watch(second, [0])
    assert (table.arrays[1].tolist(), table.watch_all) == ([0b10, 0, 0, 0], 0)


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
