"""Programs at the local door served by a kernel: the same results as by the loop."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.session import client as kernels
from tests.app.door_bench import DoorBench, Make, hwm, produced
from tests.app.fake_peers import turn_until
from tests.app.quick import DISK, Quick, awaited
from tests.app.shard_client import benches, fetch, fetched, versions
from tests.shard.shard_bench import batch, catalog, produce_request, topic

pytestmark = pytest.mark.usefixtures("always_quick")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


def test_a_program_is_served_by_the_kernel_and_who_watches_is_rung_first(make: Make) -> None:
    bench = make(topic("one"))
    quick, writer, reader = Quick(bench), bench.attach(), bench.attach()
    reader.session.watch([1])
    reader.ring()
    bench.turn(3)
    for number in range(1, 20):
        kernels.wake_client(reader.memory, reader.side)
        reader.bells()
        assert kernels.fall_asleep_client(reader.memory, reader.side)
        before = quick.taken
        writer.put(produced(number))
        assert writer.wait(number)[-1] == number
        assert quick.taken > before
        assert reader.bells() == 1
    assert hwm(bench) == 19


def test_a_fetch_that_waits_is_answered_with_what_a_program_sends(make: Make) -> None:
    bench = make(topic("one"))
    consumer, writer = bench.client(), bench.attach()
    bench.turn(3)
    consumer.send(fetch("one", wait_ms=60_000))
    turn_until(bench.loop, lambda: awaited(bench) == 1)
    writer.put(produced(1, value=b"through memory"))
    assert b"through memory" in bytes(fetched(consumer.wait(1)[0]).records)
    assert writer.wait(1) == [1]


def test_a_program_that_watches_is_rung_for_what_a_kafka_client_sends(make: Make) -> None:
    bench = make(topic("one"))
    client, reader = bench.client(), bench.attach()
    reader.session.watch([1])
    reader.ring()
    bench.turn(3)
    kernels.wake_client(reader.memory, reader.side)
    reader.bells()
    assert kernels.fall_asleep_client(reader.memory, reader.side)
    client.send(produced())
    client.wait(1)
    assert reader.bells() == 1


def test_a_partition_that_comes_later_is_watched_too(make: Make) -> None:
    bench = make(topic("one"))
    client, reader = bench.client(), bench.attach()
    reader.session.watch([2])
    reader.ring()
    bench.turn(3)
    bench.publish(catalog(topic("one"), topic("two", range(2, 3))))
    bench.turn(3)
    kernels.wake_client(reader.memory, reader.side)
    reader.bells()
    assert kernels.fall_asleep_client(reader.memory, reader.side)
    client.send(produce_request({"two": {0: batch(b"v")}}))
    client.wait(1)
    assert reader.bells() == 1


Program = list[tuple[int, list[bytes]]]
requests_put = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(
            st.sampled_from([
                produced(1), produced(2, acks=0), produced(3, acks=7), produced(4, name="none"),
                produced(5, value=b"v" * 20_000), produced(6, name="safe"), versions(7),
            ]),
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


def served(bench: DoorBench, script: Program) -> list[tuple[bytes, bool]]:
    """What each of two programs gets, and whether it is dropped."""
    programs = [bench.attach() for _ in range(2)]
    for who, sent in script:
        with suppress(OSError):  # It may have been dropped for what it said.
            for each in sent:
                programs[who].put(each)
        bench.turn(1)
    for _ in range(5):
        bench.turn()
        for program in programs:
            program.take()
    return [(program.received, program.bells() == -1) for program in programs]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(script=requests_put)
def test_turns_of_the_kernel_and_of_the_loop_give_programs_the_same_results(
    tmp_path_factory: pytest.TempPathFactory, script: Program
) -> None:
    topics = [topic("one"), topic("safe", range(2, 3), DISK)]
    with benches(tmp_path_factory.mktemp("pair"), DoorBench) as make:
        quick, sleeping, slow = make(*topics), make(*topics), make(*topics)
        sleeping.let_kernel_sleep()
        Quick(slow, is_allowed=False)
        slow.server.take_awake = lambda: False  # type: ignore[method-assign]
        expected = served(slow, script), hwm(slow)
        for each in (quick, sleeping):
            assert (served(each, script), hwm(each)) == expected
            each.shard.invariants()
