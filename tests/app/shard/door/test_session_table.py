"""The sessions a kernel serves: which these are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.turn.sessions import S_FD, S_MEMORY_BYTES, SESSION_WORDS, SESSIONS_MAX
from smq.app.shard.door.session_table import SessionTable
from tests.app.door_bench import DoorBench
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DoorBench]:
    with benches(tmp_path, DoorBench) as make:
        yield make(topic("one", range(1, 4)))


def test_each_has_a_row_until_it_is_removed(bench: DoorBench) -> None:
    table, (first, second) = SessionTable(4), bench.unlisted(2)
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


def test_a_session_beyond_the_tables_rows_is_served_by_the_loop(bench: DoorBench) -> None:
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
