"""Sessions that read partitions in the logs' memory: who is rung, and what a change costs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shm.kernels.session import client as kernels
from smq.app.shard.door.session_table import SessionTable
from smq.app.shard.door.watchers import Watchers
from tests.app.door_bench import Attached, DoorBench, Make, produced
from tests.app.one_at_a_time import OneAtATime
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


def watching(bench: DoorBench, numbers: list[int]) -> Attached:
    program = bench.attach()
    program.session.watch(numbers)
    program.ring()
    bench.turn(3)
    assert kernels.wake_client(program.memory, program.side)  # It may have moved before we said so.
    assert kernels.fall_asleep_client(program.memory, program.side)
    return program


def test_a_program_is_rung_when_what_it_watches_moves_and_only_then(make: Make) -> None:
    bench = make(topic("one"), topic("two", range(2, 3)))
    reader, writer = watching(bench, [1]), bench.attach()
    writer.put(produced(1, name="two"))
    writer.wait(1)
    assert reader.bells() == 0
    writer.put(produced(2, name="one"))
    writer.wait(2)
    assert reader.bells() == 1
    assert kernels.wake_client(reader.memory, reader.side)


def test_a_program_that_watches_too_much_for_a_list_is_rung_for_everything(make: Make) -> None:
    bench = make(topic("one"))
    reader, writer = watching(bench, list(range(10_000, 20_000))), bench.attach()
    writer.put(produced(1))
    writer.wait(1)
    assert reader.bells() == 1


def test_a_changed_catalog_wakes_who_watches(make: Make) -> None:
    bench = make(topic("one"))
    reader, other = watching(bench, [1]), bench.attach()
    bench.turn(3)
    assert kernels.fall_asleep_client(other.memory, other.side)
    bench.publish(bench.shard.catalog)
    bench.turn(1)
    assert (reader.bells(), other.bells()) == (1, 0)


def test_another_list_costs_the_partitions_in_which_it_differs(make: Make) -> None:
    bench = make(topic("one", range(1, 101)))
    reader = watching(bench, list(range(1, 100)))
    watchers, words = bench.sessions.watchers, OneAtATime()
    watchers.invariants()
    watchers._words = words  # type: ignore[assignment]
    reader.session.watch([*range(2, 99), 100])  # Without 1 and 99, and with 100.
    reader.ring()
    bench.turn(3)
    assert words.touched == 3
    bench.publish(bench.shard.catalog)  # Nothing that is watched has come or gone.
    bench.turn(1)
    assert words.touched == 3


def test_a_session_that_watches_no_longer_or_is_gone_is_not_rung(make: Make) -> None:
    bench = make(topic("one"))
    former, gone, writer = watching(bench, [1]), watching(bench, [1]), bench.attach()
    former.session.watch([])
    former.ring()
    gone.socket.close()
    bench.turn(3)
    assert former.bells() == 1  # For the new list.
    kernels.wake_client(former.memory, former.side)
    kernels.fall_asleep_client(former.memory, former.side)
    writer.put(produced(1))
    writer.wait(1)
    assert former.bells() == 0
    assert not bench.sessions.watchers


# --- what the kernel knows of it ------------------------------------------------------------------


class FakeLog:
    """A log that has only slots."""

    def __init__(self, slots: dict[int, int]) -> None:
        self.partitions = self
        self.slots = slots


class Two:
    """Two sessions that a kernel serves."""

    def __init__(self, bench: DoorBench, slots: dict[int, int], slot_count: int = 4) -> None:
        self.table, self.log = SessionTable(slot_count), FakeLog(slots)
        log: Any = self.log
        self.watchers = Watchers({0: log}, self.table)
        self.first, self.second = bench.unlisted(2)
        self.table.add(self.first)
        self.table.add(self.second)

    @property
    def words(self) -> list[int]:
        self.watchers.invariants()
        return [int(word) for word in self.table.arrays[1]]


def test_a_sessions_watched_partitions_are_bits_in_the_table(make: Make) -> None:
    two = Two(make(topic("one")), {100: 0, 101: 1, 103: 3})
    two.watchers.watch(two.first, {101, 103})
    two.watchers.watch(two.second, {103})
    assert two.words == [0, 0b01, 0, 0b11]
    two.watchers.watch(two.second, None)
    assert (two.words, two.table.watch_all) == ([0, 1, 0, 1], 0b10)
    two.watchers.forget(two.first)
    two.table.remove(two.first)
    two.watchers.watch(two.second, {100})
    assert (two.words, two.table.watch_all) == ([0b10, 0, 0, 0], 0)
    two.watchers.forget(two.second)
    assert two.words == [0, 0, 0, 0]


def test_partitions_that_come_go_or_take_anothers_slot_are_followed(make: Make) -> None:
    two = Two(make(topic("one")), {101: 1})
    two.watchers.watch(two.first, {101, 102})
    two.watchers.watch(two.second, {102})
    assert two.words == [0, 0b01, 0, 0]
    for slots, words in [
        ({101: 1, 102: 3}, [0, 0b01, 0, 0b11]),
        ({102: 3}, [0, 0, 0, 0b11]),
        ({102: 3, 109: 1}, [0, 0, 0, 0b11]),
        ({101: 3, 102: 1}, [0, 0b11, 0, 0b01]),
        ({}, [0, 0, 0, 0]),
        ({101: 0}, [0b01, 0, 0, 0]),
    ]:
        two.log.slots = slots
        two.watchers.catalog_changed()
        assert two.words == words
    two.watchers.forget(two.first)
    two.watchers.forget(two.second)


def test_a_change_touches_the_words_that_it_names_and_no_others(make: Make) -> None:
    two = Two(make(topic("one")), {number: number for number in range(10)}, 131_072)
    words = OneAtATime()
    two.watchers._words = words  # type: ignore[assignment]
    two.watchers.watch(two.first, set(range(10)))
    two.watchers.watch(two.second, {3})
    two.watchers.watch(two.first, set(range(10)) - {3})
    assert words.touched == 12
    two.log.slots = {number: number for number in range(8)}
    two.watchers.catalog_changed()
    assert words.touched == 14
    two.watchers.forget(two.first)
    assert words.touched == 14 + 7
    assert {slot: word for slot, word in words.items() if word} == {3: 0b10}
    two.watchers.forget(two.second)
