"""The sessions of a shard in one loop: their cost, and their end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.session.words import SHARD_SLEEP
from tests.app.door_bench import DoorBench, Make, produced
from tests.app.fake_peers import turn_until
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


def test_sessions_that_did_nothing_cost_nothing(make: Make) -> None:
    bench = make(topic("one"))
    before = list(bench.loop.turn_ends), list(bench.loop.turn_starts)
    quiet = [bench.attach() for _ in range(3)]
    busy = bench.attach()
    busy.put(produced())
    busy.wait(1)
    bench.turn(3)
    assert not bench.sessions._awake
    assert [program.bells() for program in quiet] == [0, 0, 0]
    for program in (*quiet, busy):
        program.socket.close()
    turn_until(bench.loop, lambda: bench.sessions.count() == 0)
    assert (bench.loop.turn_ends, bench.loop.turn_starts) == before
    assert bench.sessions._over is not None
    assert bench.sessions._over.action is None


def test_a_shard_that_spins_is_rung_for_the_first_request_only_until_none_comes(
    make: Make,
) -> None:
    bench = make(topic("one"), session_spin_us=200_000)
    program = bench.attach()
    for count in (1, 2, 3):
        program.put(produced(count))
        assert program.wait(count) == [*range(1, count + 1)]
        bench.turn(5)
        assert program.words[SHARD_SLEEP] & 1 == 0
    turn_until(bench.loop, lambda: program.words[SHARD_SLEEP] & 1 == 1)


def test_a_stopping_shard_answers_and_then_closes(make: Make) -> None:
    bench = make(topic("one"))
    program, idle = bench.attach(), bench.attach()
    program.put(produced(1))
    bench.loop.run_once(0)
    bench.sessions.stop()
    turn_until(bench.loop, lambda: bench.sessions.count() == 0)
    assert program.correlations() == [1]
    assert idle.bells() == -1
