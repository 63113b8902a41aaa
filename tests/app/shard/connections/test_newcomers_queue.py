from collections.abc import Iterator
from itertools import count
from operator import attrgetter

import pytest

from smq.app.process.clock import monotonic_ns, replaced
from smq.app.shard.connections import tls_socket
from smq.app.shard.connections.newcomers_queue import NewcomersQueue
from smq.app.shard.connections.tls_socket import SharedTurn
from tests.app.fake_peers import TidyLoop


class FakeConnection:
    """Has some steps to do; each turn does one. Its name begins with its address."""

    def __init__(self, bench: "Bench", name: str, steps: int = 1) -> None:
        self._bench, self._name, self._steps = bench, name, steps
        self.address = name[0]
        self.closed = self.is_paused = False
        self.working = 0
        bench.opened.append(self)

    @property
    def is_full(self) -> bool:
        return self.working > 0

    def pause_if_full(self) -> None:
        self.is_paused |= self.is_full

    def readable(self) -> None:
        assert not self.is_paused
        self._bench.queue.run(self, FakeConnection._step)

    def resume(self) -> None:
        assert not self.is_full
        self.is_paused = False
        self.readable()

    def _step(self) -> None:
        self._bench.done.append(self._name)
        self._steps -= 1
        if self._steps:
            self._bench.queue.wait(self)

    def close(self) -> None:
        self.closed = True
        self._bench.queue.forget(self)


class Bench:
    """A loop with a queue."""

    def __init__(self) -> None:
        self.loop = TidyLoop()
        self.queue = NewcomersQueue(self.loop, SharedTurn(), attrgetter("address"))
        self.loop.turn_starts.append(self.queue.shared.begin_turn)
        self.done: list[str] = []
        self.opened: list[FakeConnection] = []

    def turn(self) -> list[str]:
        """What is done in a turn."""
        self.done.clear()
        self.loop.run_once(0.01)
        self.queue.invariants()
        return self.done


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


@pytest.fixture
def is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn's time is spent with the first step."""
    monkeypatch.setattr(tls_socket, "NEWCOMERS_NS", 1)


def test_a_newcomer_is_looked_at_at_once_while_there_is_time(bench: Bench) -> None:
    for name in "abc":
        FakeConnection(bench, name).readable()
    assert bench.done == ["a", "b", "c"]
    assert len(bench.queue) == 0


@pytest.mark.usefixtures("is_strict")
def test_newcomers_wait_in_order_when_the_time_is_spent(bench: Bench) -> None:
    for name in "abcd":
        FakeConnection(bench, name).readable()
    assert bench.done == ["a"]
    assert [each.is_paused for each in bench.opened] == [False, True, True, True]
    bench.loop.run_once(0)  # It may be due in this turn or in the next.
    found = [*bench.done[1:]]
    while len(bench.queue):
        some = bench.turn()
        assert len(some) <= 1
        found += some
    assert found == ["b", "c", "d"]


@pytest.mark.usefixtures("is_strict")
def test_a_turn_ends_while_newcomers_wait_and_no_time_passes(bench: Bench) -> None:
    bench.queue.shared.now_ns = count().__next__
    now_ns = monotonic_ns()
    with replaced(lambda: 0, lambda: now_ns):
        for name in "abc":
            FakeConnection(bench, name).readable()
        bench.loop.run_once(0)
    assert (bench.done, len(bench.queue)) == (["a"], 2)
    with replaced(lambda: 0, lambda: now_ns + 1):
        assert bench.turn() == ["b"]


@pytest.mark.usefixtures("is_strict")
def test_a_later_newcomer_waits_behind_those_that_wait(bench: Bench) -> None:
    for name in "ab":
        FakeConnection(bench, name).readable()
    bench.queue.shared.begin_turn()
    FakeConnection(bench, "c").readable()
    assert bench.done == ["a"]
    found = list[str]()
    while len(bench.queue):
        found += bench.turn()
    assert found == ["b", "c"]


@pytest.mark.usefixtures("is_strict")
def test_addresses_take_turns_from_one_turn_of_the_loop_to_the_next(bench: Bench) -> None:
    """What comes from one address again and again takes the whole time of its turns."""
    for i in range(20):
        FakeConnection(bench, f"a{i}", 2).readable()
    FakeConnection(bench, "b", 3).readable()
    while len(bench.queue):
        bench.loop.run_once(0.01)
        bench.queue.invariants()
    assert [bench.done.index("b"), bench.done.count("b"), len(bench.done)] == [2, 3, 43]
    assert bench.done[:7] == ["a0", "a0", "b", "a1", "b", "a2", "b"]


def test_a_newcomer_with_much_to_say_goes_on_behind_the_others(bench: Bench) -> None:
    for name, steps in (("a", 3), ("b", 1), ("c", 2)):
        FakeConnection(bench, name, steps).readable()
    assert bench.done == ["a"]
    assert bench.turn() == ["a", "b", "c"]
    assert bench.turn() == ["a", "c"]
    assert len(bench.queue) == 0


@pytest.mark.usefixtures("is_strict")
def test_a_connection_that_closes_while_it_waits_is_forgotten(bench: Bench) -> None:
    for name in "abc":
        FakeConnection(bench, name).readable()
    bench.opened[1].close()
    found = list[str]()
    while len(bench.queue):
        found += bench.turn()
    assert found == ["c"]
