"""Programs with the SDK in a simulation: their waits, and that defects are found."""

import select
import threading
from collections.abc import Iterator

import pytest

from smq.client.consuming.group.commits import Committing
from smq.client.consuming.source.source import Partition, Taken
from smq.client.consuming.source.wire_source import WireSource
from smq.client.producing import metadata_thread
from smq.client.producing.delivery.delivery_state import Delivery
from smq.client.producing.delivery.parcel import Parcel
from smq.testing.simulation.clock import MS
from smq.testing.simulation.run import Outcome, Workplace, simulate, workplace
from smq.testing.simulation.sdk import system
from smq.testing.simulation.sdk.fibers import Program
from smq.testing.simulation.world import World
from smq.wire.generated.fetch import PartitionData

SEEDS = range(1, 41)


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    with workplace() as place:
        yield place


@pytest.fixture
def program(place: Workplace) -> Iterator[Program]:
    with system.installed():
        world = World(1, place.fresh())
        yield Program(world, "test")
        world.close()


def go_on(program: Program, ms: float) -> None:
    """Let a program take turns for so long."""
    clock = program.world.clock
    end_ns = clock.now_ns + int(ms * MS)
    while clock.now_ns <= end_ns:
        if program.is_ready(clock.now_ns):
            program.turn()
        else:
            clock.now_ns = min(program.next_due_ns() or end_ns + 1, end_ns + 1)


def first_failure(place: Workplace) -> Outcome | None:
    return next((found for seed in SEEDS if (found := simulate(seed, place)).why), None)


def test_a_thread_waits_until_it_is_ready_or_its_time_is_over(program: Program) -> None:
    seen: list[object] = []
    box: list[int] = []
    program.spawn(lambda: seen.append(("ready", program.wait(lambda: bool(box), 5))))
    program.spawn(lambda: seen.append(("late", program.wait(lambda: False, 0.01))))
    go_on(program, 5)
    assert seen == []
    go_on(program, 10)
    assert seen == [("late", False)]
    program.spawn(lambda: box.append(1))
    go_on(program, 1)
    assert seen == [("late", False), ("ready", True)]


def test_the_simulation_raises_the_exception_of_a_thread(program: Program) -> None:
    def fails() -> None:
        raise ValueError("no")

    program.spawn(fails)
    with pytest.raises(ValueError, match="no"):
        go_on(program, 1)


def test_locks_events_threads_and_descriptors_are_the_programs(program: Program) -> None:
    told: list[str] = []
    lock, event = system.RLock(), system.Event()

    def holds() -> None:
        with lock, lock:
            program.wait(lambda: False, 0.01)
            told.append("let go")

    def wants() -> None:
        if lock.acquire(blocking=False):
            told.append("got what another holds")
        with lock:
            told.append("got it")
        event.set()

    def waits() -> None:
        if event.wait():
            told.append("told")

    def joins() -> None:
        other = system.Thread(target=waits)
        other.start()
        other.join()
        fd = system.STAND_INS["os"][1].eventfd(0)
        poll = system.Poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(10) == []
        system.STAND_INS["os"][1].eventfd_write(fd, 1)
        assert poll.poll() == [(fd, select.POLLIN)]
        told.append("polled")

    program.spawn(holds)
    go_on(program, 1)
    program.spawn(wants)
    program.spawn(joins)
    go_on(program, 100)
    assert told == ["let go", "got it", "told", "polled"]


def test_the_system_is_given_back() -> None:
    with system.installed():
        assert vars(metadata_thread)["threading"] is not threading
    assert vars(metadata_thread)["threading"] is threading


@pytest.mark.slow
def test_a_consumer_that_leaves_out_a_batch_is_found(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = WireSource._take

    def forgetful(self: WireSource, partition: Partition, data: PartitionData) -> list[Taken]:
        taken = take(self, partition, data)
        if taken and taken[0].ends[0][1] % 3 == 0:
            partition.position = taken[0].ends[0][1]
            return []
        return taken

    monkeypatch.setattr(WireSource, "_take", forgetful)
    found = first_failure(place)
    assert found is not None
    assert "gives offset" in found.why or "has read" in found.why or "begins" in found.why


@pytest.mark.slow
def test_a_commit_that_is_acknowledged_and_not_sent_is_found(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Committing, "_commit", lambda _self, _request: None)
    found = first_failure(place)
    assert found is not None
    assert "committed was" in found.why


@pytest.mark.slow
def test_a_result_that_names_another_offset_is_found(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = Parcel.delivery

    def wrong(self: Parcel, row: int) -> Delivery:
        told = delivery(self, row)
        return told._replace(offset=told.offset + 1)

    monkeypatch.setattr(Parcel, "delivery", wrong)
    found = first_failure(place)
    assert found is not None
    assert "Broken" in found.why
