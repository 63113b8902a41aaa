"""While a request is finished in steps, its connection's next ones wait, and nobody else does."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shm.kernels.base.words import FLAG_CLOSED, P_FLAGS
from smq.log.files.background import InlineBackground, JobLane
from smq.model.errors import ErrorCode
from smq.shard import unfinished
from smq.shard.markers import end_transaction
from smq.shard.validation import LOOP_BYTES_MAX
from smq.wire.compression import Codec
from smq.wire.markers import Marker
from smq.wire.records import Record, crc_of, write_batch
from tests.app.door_bench import DoorBench, Make
from tests.app.fake_peers import turn_until
from tests.app.shard_client import benches, settle, versions
from tests.shard.shard_bench import NOW, NOW_MS, batch, catalog, produce_request, responses, topic
from tests.shard.transactional_bench import errors_of, transactional_request

COMPACTED = topic("slow", range(1, 4), {"cleanup.policy": "compact"})
OTHER = topic("one", range(4, 5))
PRODUCER = (7, 0)


class HeldLane(InlineBackground):
    """Does the checks of batches when the test says so."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def submit(self, lane: JobLane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if lane is JobLane.CHECKS:
            self.jobs.append((job, done))
        else:
            super().submit(lane, job, done)

    def release(self) -> None:
        """Do the next job."""
        job, done = self.jobs.popleft()
        done(job())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


@pytest.fixture
def bench(make: Make) -> DoorBench:
    return make(COMPACTED, OTHER)


@pytest.fixture
def lane(bench: DoorBench) -> HeldLane:
    held = HeldLane()
    bench.shard.logs[0].background = held
    return held


def slow_batch(**options: Any) -> bytes:
    """A batch for the lane."""
    record = Record(0, NOW_MS, b"key", bytes(LOOP_BYTES_MAX + 1))
    return bytes(write_batch([record], compression=Codec.ZSTD, **options))


def of_transaction(batch: bytes) -> bytes:
    """The same batch, of a transaction."""
    made = bytearray(batch)
    made[22] |= 16
    made[17:21] = crc_of(made).to_bytes(4)
    return bytes(made)


def slow(correlation: int, *partitions: int, acks: int = -1) -> bytes:
    batches = dict.fromkeys(partitions or (0,), slow_batch())
    return produce_request({"slow": batches}, acks, correlation)


def quick(correlation: int) -> bytes:
    return produce_request({"one": {0: batch(b"q")}}, correlation=correlation)


def wait_for_job(bench: DoorBench, lane: HeldLane) -> None:
    turn_until(bench.loop, lambda: bool(lane.jobs))


def finish(bench: DoorBench, lane: HeldLane, jobs: int) -> None:
    for _ in range(jobs):
        wait_for_job(bench, lane)
        lane.release()
    turn_until(bench.loop, lambda: not bench.server._buffers.working_bytes)


def held_bytes(bench: DoorBench) -> int:
    return bench.server._buffers.working_bytes


def end(bench: DoorBench, number: int) -> int:
    led = bench.shard.by_number(number)
    assert led is not None
    return led.offsets().log_end


def test_others_are_served_meanwhile_and_what_follows_is_answered_behind_it(
    bench: DoorBench, lane: HeldLane
) -> None:
    """data fault 11: the shard inflated a request's batches before it looked at anybody else."""
    client, other = bench.client(), bench.client()
    client.send(quick(1) + slow(2, 0, 1) + quick(3) + versions(4))
    wait_for_job(bench, lane)
    other.send(quick(1))
    other.wait(1)
    settle(bench, client)
    assert client.correlations() == [1]
    assert held_bytes(bench) == len(slow(2, 0, 1))
    finish(bench, lane, 2)
    frames = client.wait(4)
    assert client.correlations() == [1, 2, 3, 4]
    [(_, response)] = responses(len(frames[1]).to_bytes(4) + frames[1])
    assert [row.error_code for row in response.responses[0].partition_responses] == [0, 0]
    assert end(bench, 4) == 3


def test_requests_of_two_clients_take_turns_in_the_lane(bench: DoorBench, lane: HeldLane) -> None:
    first, second = bench.client(), bench.client()
    first.send(slow(1, 0, 1, 2))
    wait_for_job(bench, lane)
    second.send(slow(1))
    turn_until(bench.loop, lambda: len(lane.jobs) == 2)
    lane.release()
    lane.release()
    second.wait(1)
    assert first.frames() == []
    finish(bench, lane, 2)
    first.wait(1)


def test_a_large_request_keeps_its_buffer_and_what_came_behind_it(make: Make) -> None:
    bench = make(topic("wide", range(1, 201)), socket_request_max_bytes=16 << 20)
    client = bench.client()
    wide = {i: batch(bytes(30_000)) for i in range(200)}
    client.send(produce_request({"wide": wide}, correlation=1) + versions(2))
    frames = client.wait(2)
    assert client.correlations() == [1, 2]
    [(_, response)] = responses(len(frames[0]).to_bytes(4) + frames[0])
    rows = response.responses[0].partition_responses
    assert [row.error_code for row in rows] == [0] * 200


def test_without_acks_nothing_is_answered_and_the_next_request_is(
    bench: DoorBench, lane: HeldLane
) -> None:
    client = bench.client()
    client.send(slow(1, acks=0) + versions(2))
    finish(bench, lane, 1)
    client.wait(1)
    assert client.correlations() == [2]
    assert end(bench, 1) == 1


def test_a_client_that_is_gone_is_dropped_with_what_its_request_holds(
    bench: DoorBench, lane: HeldLane
) -> None:
    client = bench.client()
    client.send(slow(1, 0, 1))
    wait_for_job(bench, lane)
    for connection in list(bench.server.clients.by_fd.values()):
        connection.close()
    lane.release()
    turn_until(bench.loop, lambda: not held_bytes(bench))
    bench.turn()
    assert not lane.jobs
    assert [end(bench, 1), end(bench, 2)] == [0, 0]


def test_a_stopping_shard_answers_it(bench: DoorBench, lane: HeldLane) -> None:
    client = bench.client()
    client.send(slow(1))
    wait_for_job(bench, lane)
    bench.server.stop()
    finish(bench, lane, 1)
    client.wait_closed()
    assert client.correlations() == [1]


# --- partitions that are closed, as they move ----------------------------------------------------


def set_closed(bench: DoorBench, *, closed: bool = True) -> None:
    """Close or open the partition of the quick requests."""
    led = bench.shard.by_number(4)
    assert led is not None
    flags = int(led.log.partitions.table[led.slot, P_FLAGS]) & ~FLAG_CLOSED
    led.log.partitions.table[led.slot, P_FLAGS] = flags | (FLAG_CLOSED if closed else 0)


def wait_held(bench: DoorBench) -> None:
    turn_until(bench.loop, lambda: bool(bench.server._unfinished._held))


def codes_of(*frames: bytes) -> list[int]:
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    return [
        row.error_code
        for _, response in responses(stream)
        for row in response.responses[0].partition_responses
    ]


def test_a_held_request_takes_no_turns_and_goes_on_with_the_next_catalog(
    bench: DoorBench,
) -> None:
    set_closed(bench)
    client, other = bench.client(), bench.client()
    client.send(quick(1) + quick(2) + versions(3))
    wait_held(bench)
    other.send(versions(1))
    other.wait(1)
    settle(bench, client)
    assert not client.frames()
    assert held_bytes(bench) == len(quick(1))
    assert not bench.server._unfinished._steps
    bench.server.invariants()
    bench.publish(catalog(COMPACTED, OTHER))  # It is closed as before.
    bench.turn()
    wait_held(bench)
    set_closed(bench, closed=False)
    bench.publish(catalog(COMPACTED, OTHER))
    frames = client.wait(3)
    assert client.correlations() == [1, 2, 3]
    assert codes_of(*frames[:2]) == [0, 0]
    assert end(bench, 4) == 2
    assert not held_bytes(bench)


def test_a_held_request_is_refused_when_time_is_up(
    bench: DoorBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "HOLD_MS", 20)
    set_closed(bench)
    client = bench.client()
    client.send(quick(1))
    assert codes_of(*client.wait(1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    bench.server.invariants()


def test_no_request_is_held_once_requests_take_too_much_memory(bench: DoorBench) -> None:
    set_closed(bench)
    bench.server._buffers.bytes_max = len(quick(1))
    first, second = bench.client(), bench.client()
    first.send(quick(1))
    wait_held(bench)
    second.send(quick(2))
    assert codes_of(*second.wait(1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    settle(bench, first)
    assert not first.frames()


def test_a_client_that_is_gone_leaves_no_held_request(bench: DoorBench) -> None:
    set_closed(bench)
    client = bench.client()
    client.send(quick(1))
    wait_held(bench)
    for connection in list(bench.server.clients.by_fd.values()):
        connection.close()
    turn_until(bench.loop, lambda: not held_bytes(bench))
    assert end(bench, 4) == 0


def test_a_stopping_shard_refuses_what_it_holds(bench: DoorBench) -> None:
    set_closed(bench)
    client = bench.client()
    client.send(quick(1))
    wait_held(bench)
    bench.server.stop()
    client.wait_closed()
    assert codes_of(*client.frames()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_attached_program_s_requests_are_held_as_well(bench: DoorBench) -> None:
    set_closed(bench)
    program = bench.attach()
    for each in (quick(1), quick(2)):
        assert program.put(each)
    wait_held(bench)
    assert program.correlations() == []
    set_closed(bench, closed=False)
    bench.publish(catalog(COMPACTED, OTHER))
    assert program.wait(2) == [1, 2]
    assert end(bench, 4) == 2


# --- the local door ------------------------------------------------------------------------------


def test_a_program_s_next_requests_wait_as_well(bench: DoorBench, lane: HeldLane) -> None:
    program = bench.attach()
    for each in (quick(1), slow(2, 0, 1), quick(3)):
        assert program.put(each)
    wait_for_job(bench, lane)
    assert program.wait(1) == [1]
    assert program.put(quick(4))
    settle(bench)
    assert program.correlations() == [1]
    finish(bench, lane, 2)
    assert program.wait(4) == [1, 2, 3, 4]


def test_requests_handed_over_before_a_program_hangs_up_are_appended(
    bench: DoorBench, lane: HeldLane
) -> None:
    program = bench.attach()
    for each in (slow(1), quick(2), slow(3, 1)):
        assert program.put(each)
    wait_for_job(bench, lane)
    program.socket.close()
    settle(bench)
    assert bench.sessions.count() == 1
    finish(bench, lane, 2)
    turn_until(bench.loop, lambda: not bench.sessions.count())
    assert [end(bench, number) for number in (1, 2, 4)] == [1, 1, 1]


# --- transactions --------------------------------------------------------------------------------


def transactional(*partitions: int) -> bytes:
    options = {"producer_id": PRODUCER[0], "producer_epoch": PRODUCER[1], "base_sequence": 0}
    records = of_transaction(slow_batch(**options))
    return transactional_request({"slow": dict.fromkeys(partitions, records)})


def test_a_marker_that_comes_between_two_steps_refuses_the_batches_behind_it(
    bench: DoorBench, lane: HeldLane
) -> None:
    """They would open a transaction that nobody ends."""
    client = bench.client()
    client.send(transactional(0, 1))
    turn_until(bench.loop, lambda: bool(bench.peers.asked_coordinator))
    [(question, answered)] = bench.peers.asked_coordinator
    assert question.numbers == [1, 2]  # type: ignore[attr-defined]
    answered([0, 0])
    wait_for_job(bench, lane)
    lane.release()
    wait_for_job(bench, lane)
    marker = Marker(*PRODUCER, committed=False, coordinator_epoch=0)
    for number in (1, 2):
        end_transaction(bench.shard, number, marker, 1, NOW)
    lane.release()
    [frame] = client.wait(1)
    first, second = errors_of(len(frame).to_bytes(4) + frame)
    assert first == (0, 0)
    assert second[0] == ErrorCode.INVALID_TXN_STATE
    for number in (1, 2):
        led = bench.shard.by_number(number)
        assert led is not None
        assert led.offsets().last_stable == led.offsets().log_end
    assert bench.shard.verifying == {}
