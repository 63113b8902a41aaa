"""The local door in one loop: who may attach, its cost, and which readers are rung."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.kernels.session import client as kernels
from shm.kernels.session.words import SHARD_SLEEP
from smq.app.process.clock import monotonic_ms
from smq.app.shard.sessions import ATTACHING_MAX, HELLO_MS_MAX, INBOX_BYTES_MIN, inbox_bytes
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.model.config import Config
from smq.wire.attach import HELLO_BYTES, VERSION, AttachReply, Hello
from smq.wire.compression import Codec
from tests.app.door_bench import IDENTITY, Attached, DoorBench, Make, produced
from tests.app.fake_peers import turn_until
from tests.app.one_at_a_time import OneAtATime
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic

MiB = 1 << 20


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


# --- attaching ------------------------------------------------------------------------------------


def test_who_says_the_right_thing_gets_memory_and_descriptors(make: Make) -> None:
    bench = make(topic("one"))
    sock, answer, descriptors = bench.greet(IDENTITY.encode())
    assert answer == AttachReply(4)
    assert len(descriptors) == 4
    assert bench.sessions.count() == 1
    sock.close()
    turn_until(bench.loop, lambda: bench.sessions.count() == 0)
    for fd in descriptors:
        os.close(fd)


@pytest.mark.parametrize("hello", [Hello(2, "a-cluster"), Hello(1, "another")])
def test_another_broker_s_program_is_told_so(make: Make, hello: Hello) -> None:
    bench = make()
    _, answer, descriptors = bench.greet(hello.encode())
    assert answer == AttachReply(0, "this is another broker or node")
    assert (descriptors, bench.sessions.count()) == ([], 0)


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n", bytes(HELLO_BYTES), IDENTITY.encode()[:-1], b"\0"]
)
def test_whoever_says_anything_else_gets_no_answer(make: Make, hello: bytes) -> None:
    bench = make()
    _, answer, descriptors = bench.greet(hello)
    assert (answer, descriptors, bench.sessions.count()) == (None, [], 0)
    assert ["not an attach handshake" in notice for notice in bench.sessions.notices] == [True]


def test_whoever_speaks_another_version_gets_no_answer(make: Make) -> None:
    bench = make()
    hello = bytearray(IDENTITY.encode())
    hello[4:6] = (VERSION + 1).to_bytes(2, "little")
    assert bench.greet(bytes(hello))[1:] == (None, [])
    (notice,) = bench.sessions.notices
    versions = f"attach version {VERSION + 1}, this one {VERSION}"
    assert notice.endswith(f"may not attach: the other side speaks {versions}")


def test_who_hangs_up_before_he_says_anything_is_no_news(make: Make) -> None:
    bench = make()
    bench.connect().close()
    turn_until(bench.loop, lambda: not bench.sessions._attaching)
    bench.turn(3)
    assert bench.sessions.notices == []


def test_whoever_says_nothing_is_sent_away(make: Make) -> None:
    bench = make()
    started_ms = monotonic_ms()
    _, answer, _ = bench.greet(b"")
    assert answer is None
    assert monotonic_ms() - started_ms >= HELLO_MS_MAX
    assert ["has said nothing" in notice for notice in bench.sessions.notices] == [True]


def test_only_so_many_are_let_in_and_the_next_one_is_told(make: Make) -> None:
    bench = make(topic("one"), max_sessions=3)
    inside = [bench.attach() for _ in range(3)]
    _, answer, _ = bench.greet(IDENTITY.encode())
    refusal = "3 programs are attached already, as many as max.sessions allows"
    assert answer == AttachReply(0, refusal)
    assert [refusal in notice for notice in bench.sessions.notices] == [True]
    inside[0].socket.close()
    turn_until(bench.loop, lambda: bench.sessions.count() < 3)
    bench.attach()


def test_those_who_say_nothing_do_not_use_up_the_descriptors(make: Make) -> None:
    bench = make(topic("one"))
    for _ in range(ATTACHING_MAX + 10):
        bench.connect()
        bench.turn(1)
    assert len(bench.sessions._attaching) == ATTACHING_MAX
    turn_until(bench.loop, lambda: not bench.sessions._attaching)
    bench.attach()


def test_an_inbox_holds_two_requests_with_the_largest_batch() -> None:
    assert inbox_bytes(Config()) == INBOX_BYTES_MIN
    large = inbox_bytes(Config(message_max_bytes=20 * MiB))
    assert large == 64 * MiB
    compressed = inbox_bytes(Config(message_max_bytes=15 * MiB))
    assert compressed // 2 > BatchWriter(Codec.SNAPPY).room(15 * MiB, 0, 15 * MiB)


# --- watching -------------------------------------------------------------------------------------


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
    table, words = bench.server.sessions, OneAtATime()
    table.invariants()
    table._watchers = words  # type: ignore[assignment]
    reader.session.watch([*range(2, 99), 100])  # Without 1 and 99, and with 100.
    reader.ring()
    bench.turn(3)
    assert words.touched == 3
    bench.publish(bench.shard.catalog)  # Nothing that is watched has come or gone.
    bench.turn(1)
    assert words.touched == 3


def test_who_watches_no_longer_or_is_gone_is_not_rung(make: Make) -> None:
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
    assert bench.sessions._watchers == {}


# --- cost, and the end ---------------------------------------------------------------------------


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


def test_who_comes_while_the_shard_stops_is_not_let_in(make: Make) -> None:
    bench = make(topic("one"))
    sock = bench.connect()
    bench.sessions.stop()
    sock.send(IDENTITY.encode())
    bench.turn(3)
    assert bench.sessions.count() == 0
