"""A node counts how long its requests took, and keeps the last slow ones; others read them."""

import os

import pytest

from shm.timings import (
    APIS,
    BUCKETS,
    ERROR_SLOTS,
    SLOW,
    Errors,
    NodeTimings,
    RpcTimings,
    SlowRequest,
    Timings,
)


def a_slow_one(number: int, client: str = "c") -> SlowRequest:
    return SlowRequest(1, 12, 1_700_000_000_000, number, 2, 3, 4, client)


def test_another_process_reads_a_nodes_timings_and_cannot_write() -> None:
    ours = Timings.create(range(1, 3))
    theirs = Timings.attach(ours.fd)
    ours.node(2).count(3, 5_000)
    ours.node(2).add_slow(a_slow_one(1, "ünï"))
    first, second = theirs.nodes()
    assert first.counts.sum() == 0
    assert second.counts[3, 3] == 1  # 5 us: less than 2 ** 3.
    assert second.sums[3] == 5_000
    assert list(second.slow()) == [a_slow_one(1, "ünï")]
    with pytest.raises(ValueError, match="read-only"):
        theirs.node(1).count(0, 1)
    os.close(ours.fd)


def test_another_process_reads_the_agents_calls() -> None:
    ours = Timings.create(range(1, 3))
    theirs = Timings.attach(ours.fd).rpcs()
    mine = ours.rpcs()
    mine.begin(7)
    mine.begin(7)
    mine.end(7, 5, 1000)
    assert (theirs.begun[7], theirs.totals[7, 5], theirs.sums[7]) == (1, 1, 1000)
    assert theirs.totals.sum() == 1
    assert Timings.attach(ours.fd).errors().sum() == 0
    mine.ends[:] = 5, 6
    mine.count_unknown_ack()
    for _ in range(3):
        mine.count_passed_batch()
    mine.restart()
    assert theirs.begun.sum() == 0
    assert (theirs.ends.tolist(), theirs.unknown_acks.tolist()) == ([5, 6], [1])
    assert theirs.passed_batches.tolist() == [3]
    assert RpcTimings.private().totals.shape == theirs.totals.shape
    os.close(ours.fd)


def test_the_first_node_may_have_any_id() -> None:
    ours = Timings.create(range(2))
    ours.node(0).count(3, 5_000)
    theirs = Timings.attach(ours.fd)
    assert theirs.node_ids == range(2)
    assert [node.counts.sum() for node in theirs.nodes()] == [1, 0]
    with pytest.raises(ValueError, match="2 is not in range"):
        theirs.node(2)
    os.close(ours.fd)


def test_buckets_are_powers_of_two_of_microseconds_and_the_last_takes_all_others() -> None:
    node = NodeTimings.private()
    for took_ns in (0, 999, 1_000, 1_999, 2_000, 10**15):
        node.count(0, took_ns)
    assert node.counts[0].tolist() == [2, 2, 1, *[0] * (BUCKETS - 4), 1]
    node.count(APIS, 1)
    node.count(-1, 1)
    assert node.counts.sum() == 6


def test_the_last_slow_requests_are_kept_and_the_newest_comes_first() -> None:
    node = NodeTimings.private()
    for number in range(SLOW + 5):
        node.add_slow(a_slow_one(number))
    kept = [each.handled_us for each in node.slow()]
    assert kept == list(range(SLOW + 4, 4, -1))
    assert node.slow_count == SLOW + 5


def test_a_row_that_is_being_written_is_left_out() -> None:
    node = NodeTimings.private()
    node.add_slow(a_slow_one(1))
    node.add_slow(a_slow_one(2))
    node._rows[0, 0] = 0
    assert [each.handled_us for each in node.slow()] == [2]


def test_a_long_name_is_cut() -> None:
    node = NodeTimings.private()
    node.add_slow(a_slow_one(1, "x" * 100))
    assert [each.client for each in node.slow()] == ["x" * 64]


def test_something_else_is_not_taken_for_timings() -> None:
    fd = os.memfd_create("other")
    with pytest.raises(ValueError, match="no timings"):
        Timings.attach(fd)
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="of this version"):
        Timings.attach(fd)
    os.close(fd)


def test_errors_of_nodes_and_of_the_coordinator_add_up() -> None:
    ours = Timings.create(range(1, 3))
    ours.node(1).errors.add(1, {3: 2, -1: 1})
    ours.node(2).errors.add(1, {3: 5})
    ours.coordinator_errors().add(12, {25: 1})
    found = Timings.attach(ours.fd).errors()
    assert (found[1, 4], found[1, 0], found[12, 26], found.sum()) == (7, 1, 1, 9)
    assert all(node.slow_count == node.counts.sum() == 0 for node in ours.nodes())
    os.close(ours.fd)


def test_codes_that_have_no_slot_share_the_last_one() -> None:
    errors = Errors.private()
    errors.add(0, {ERROR_SLOTS - 3: 1, ERROR_SLOTS - 2: 10, 32767: 100, -2: 1000})
    assert errors.table[0, -2:].tolist() == [1, 1110]
    assert errors.table.sum() == 1111
