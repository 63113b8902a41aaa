"""One session in the shard: served like a connection, and able to harm only itself."""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from shm.kernels.session import client as kernels, words
from shm.kernels.session.shard import put_answers
from smq.app.process.clock import monotonic_ms
from smq.app.shard.connections.connection import Slot
from smq.app.shard.door import session as session_module
from smq.app.shard.door.attaching import INBOX_BYTES_MIN
from smq.app.shard.door.session import BELLS_IN_VAIN_MAX, PUT_BYTES
from tests.app.door_bench import DoorBench, Make, hwm, produced
from tests.app.fake_peers import turn_until
from tests.app.shard_client import benches, versions
from tests.shard.shard_bench import HeldSyncer, batch, produce_request, responses, topic

MiB = 1 << 20


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


# --- serving --------------------------------------------------------------------------------------


def test_requests_are_answered_as_on_a_socket(make: Make) -> None:
    bench = make(topic("one"))
    program, client = bench.attach(), bench.client()
    asked = [produced(1), produced(2, name="none"), produced(3, acks=7)]
    for each in asked:
        assert program.put(each)
        client.send(each)
    assert program.wait(3) == [1, 2, 3]
    client.wait(3)
    through_memory, through_socket = responses(program.received), responses(client.received)
    codes = [answer.responses[0].partition_responses[0].error_code for _, answer in through_memory]
    assert codes == [0, 3, 21]
    for _, answer in (through_memory[0], through_socket[0]):
        answer.responses[0].partition_responses[0].base_offset = 0
    assert through_memory == through_socket
    assert hwm(bench) == 2


@pytest.mark.slow
def test_much_at_once_goes_through_in_order(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    for number in range(500):
        while not program.put(produced(number, value=b"v" * 20_000)):
            bench.loop.run_once(0)
            program.take()
    assert program.wait(500) == list(range(500))
    assert hwm(bench) == 500


def test_requests_of_one_who_left_at_once_still_count(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    for number in range(100):
        program.put(produced(number, acks=0))
    program.socket.close()
    turn_until(bench.loop, lambda: bench.sessions.count() == 0)
    assert hwm(bench) == 100


def test_an_ack_waits_for_the_topic_s_level(make: Make) -> None:
    bench = make(topic("one", configs={"smq.durability": "disk"}))
    log = bench.shard.logs[0]
    log.syncs.syncer = held = HeldSyncer(log.memory)
    program = bench.attach()
    program.put(produced(1))
    bench.turn(5)
    assert program.correlations() == []
    held.release()
    assert program.wait(1) == [1]


def test_a_sleeping_program_is_rung_once_for_its_answers(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.put(produced(1))
    program.wait(1)
    assert program.bells() == 0
    assert kernels.fall_asleep_client(program.memory, program.side)
    program.put(produced(2))
    program.put(produced(3))
    bench.turn(5)
    assert program.bells() == 1


# --- harm -----------------------------------------------------------------------------------------


def assert_serves(bench: DoorBench) -> None:
    """Others see nothing."""
    other = bench.attach()
    other.put(produced(77))
    assert other.wait(1) == [77]
    other.socket.close()


@pytest.mark.parametrize("tail", [-8, 1, 4, INBOX_BYTES_MIN + 8, 2**63 - 8, -(2**63)])
def test_an_impossible_tail_ends_the_session(make: Make, tail: int) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.words[words.INBOX_TAIL] = tail
    program.ring()
    program.wait_dropped("its inbox ends where it cannot end")
    assert_serves(bench)


@pytest.mark.parametrize(
    ("word", "value", "why"),
    [
        (words.INBOX_TAIL, -8, "ends where it cannot end"),
        (words.INBOX_TAIL, 8, "impossible size"),
        (words.ANSWERS_HEAD, 1, "never given"),
        (words.ANSWERS_HEAD, -(2**63), "never given"),
    ],
)
def test_garbage_without_a_bell_is_found_within_a_second(
    make: Make, word: int, value: int, why: str
) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    bench.turn(3)
    started_ms = monotonic_ms()
    program.words[word] = value
    program.wait_dropped(why)
    assert monotonic_ms() - started_ms < 1000
    assert_serves(bench)


def test_a_request_whose_bell_was_lost_is_answered_within_a_second(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    bench.turn(3)
    program.ring = lambda count=1: None  # type: ignore[method-assign]
    program.put(produced(5))
    assert program.wait(1) == [5]


@pytest.mark.parametrize("size", [-2, 0, 7, INBOX_BYTES_MIN, 2**31 - 1, -(2**31)])
def test_a_request_of_impossible_size_ends_the_session(make: Make, size: int) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.put(size.to_bytes(4, signed=True) + bytes(100))
    program.wait_dropped("a request has an impossible size")
    assert_serves(bench)


def test_a_request_longer_than_what_was_written_ends_the_session(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.put((1000).to_bytes(4) + bytes(100))
    program.wait_dropped("longer than what it says was written")
    assert_serves(bench)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (versions(), "no Produce of a version that we know"),
        ((40).to_bytes(4) + bytes(2) + (99).to_bytes(2) + bytes(36), "no Produce of a version"),
        (produced()[:-20].replace(produced()[:4], (len(produced()) - 24).to_bytes(4)), "malformed"),
    ],
)
def test_a_request_that_is_no_produce_request_ends_the_session(
    make: Make, body: bytes, why: str
) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.put(body)
    program.wait_dropped(why)
    assert_serves(bench)


def test_a_failed_produce_with_acks_0_ends_the_session(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.put(produced(acks=0, name="none"))
    program.wait_dropped("wants no answer has failed")


def test_a_control_batch_is_refused(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    records = bytearray(batch(b"x"))
    records[21:23] = (0x20).to_bytes(2)
    program.put(produce_request({"one": {0: bytes(records)}}))
    program.wait(1)
    ((_, answer),) = responses(program.received)
    assert answer.responses[0].partition_responses[0].error_code != 0
    assert hwm(bench) == 0


def test_answers_that_were_never_given_cannot_be_taken(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.words[words.ANSWERS_HEAD] = 1 << 40
    program.put(produced())
    program.wait_dropped("answers that were never given")
    assert_serves(bench)


@pytest.mark.slow
def test_a_program_that_reads_no_answers_is_served_no_more_until_it_does(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    asked = 0
    for _ in range(2000):
        while program.put(produced(asked, value=b"")):
            asked += 1
        bench.loop.run_once(0)
    taken = hwm(bench)
    assert taken < asked
    assert_serves(bench)
    (session,) = [each for each in bench.sessions._sessions if each.slots or each.is_full]
    assert len(session.slots) < 10_000
    assert program.wait(asked) == list(range(asked))


def test_bells_for_room_are_not_in_vain(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    (session,) = bench.sessions._sessions
    while not session._is_blocked:
        program.put(produced(1, value=b""))
        bench.loop.run_once(0)
    session.side[words.BELLS_IN_VAIN] = BELLS_IN_VAIN_MAX
    program.take()
    assert session.side[words.BELLS_IN_VAIN] == 0
    assert_serves(bench)


def test_flushing_a_session_costs_linear_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    (session,) = bench.sessions._sessions
    answers = [(3996).to_bytes(4) + number.to_bytes(4) + bytes(3992) for number in range(1000)]
    offered: list[int] = []

    def counted(memory: np.ndarray, side: np.ndarray, data: np.ndarray) -> int:
        offered.append(len(data))
        return int(put_answers(memory, side, data))

    monkeypatch.setattr(session_module, "put_answers", counted)
    session.slots += [Slot([answer], is_open=True) for answer in answers]
    session.flush()
    assert program.wait(1000) == list(range(1000))
    assert max(offered) <= PUT_BYTES
    assert sum(offered) <= 2 * sum(map(len, answers))
    assert not session.is_full


def test_bells_without_requests_end_the_session(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    try:
        while program.bells() != -1:
            program.ring(100)
            bench.loop.run_once(0)
    except (BlockingIOError, ConnectionError):
        pass
    program.wait_dropped("keeps ringing the bell")
    assert_serves(bench)


def test_a_flood_of_bells_does_not_keep_others_waiting(make: Make) -> None:
    bench = make(topic("one"))
    program, client = bench.attach(), bench.client()
    for number in range(20):
        program.ring(100)
        client.send(produced(number))
        bench.turn(2)
        client.pull()
    assert client.correlations() == list(range(20))


def test_a_program_that_reads_no_bells_does_not_block_the_shard(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    program.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    flags = fcntl.fcntl(program.socket, fcntl.F_GETFL)
    fcntl.fcntl(program.socket, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
    for number in range(3000):  # Asleep anew each time, so that it is rung for each answer.
        program.words[words.CLIENT_SLEEP] = 2 * number + 1
        program.put(produced(number))
        bench.loop.run_once(0)
    assert len(program.correlations()) == 3000
    assert_serves(bench)


def copies_of(fd: int) -> int:
    """How many of our descriptors are this one's file."""
    wanted, found = os.fstat(fd), 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # The one that lists them is gone.
            found += os.path.samestat(os.fstat(int(each.name)), wanted)
    return found


def test_descriptors_that_a_program_sends_are_not_kept(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    with tempfile.TemporaryFile() as sent:
        for _ in range(20):
            socket.send_fds(program.socket, [b"\0"], [sent.fileno()] * 10)
            bench.turn(2)
        assert copies_of(sent.fileno()) == 1
    assert_serves(bench)


def test_requests_are_taken_no_faster_than_space_allows(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    bench.shard.throttle.is_on = True
    bench.shard.throttle.delay_ms = lambda *_: 200  # type: ignore[method-assign]
    program.put(produced(1))
    assert program.wait(1) == [1]
    program.put(produced(2))
    bench.turn(3)
    assert program.correlations() == [1]
    assert program.wait(2) == [1, 2]


def test_a_shorter_wait_does_not_end_a_longer_one(make: Make) -> None:
    bench = make(topic("one"))
    program = bench.attach()
    [session] = list(bench.sessions._sessions)
    session.throttle(60_000)
    session.throttle(5)
    bench.server.note(session)
    program.put(produced(1))
    bench.turn(10)
    assert session.is_full
    assert program.correlations() == []
