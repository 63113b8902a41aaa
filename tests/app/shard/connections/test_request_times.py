"""How long a request took is counted, and kept if it was long."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from shm.kernels.base.words import TIME_BUCKETS
from shm.kernels.turn.words import TIME_SUMS_AT, TIMES_AT, TURN_WORDS
from shm.timings import NodeTimings
from smq.app.process.clock import monotonic_ns, replaced
from smq.app.shard.connections.request_times import RequestTimes

MS = 1_000_000
FETCH = 1


@pytest.fixture
def times() -> Iterator[RequestTimes]:
    """At 0, and each look at the clock is 60 ms later."""
    ticks = count()
    with replaced(lambda: 5_000 * MS, lambda: 60 * MS * next(ticks)):
        yield RequestTimes(NodeTimings.private(), slow_ms=100)


def test_a_slow_request_says_where_its_time_went(times: RequestTimes) -> None:
    timing = times.begin(3, 12, monotonic_ns(), 40, "127.0.0.1 me")
    timing.handled()
    timing.answered()
    timing.sent()
    (slow,) = times.node.slow()
    assert slow == (3, 12, 5_000, 60_000, 60_000, 60_000, 40, "127.0.0.1 me")
    assert times.node.sums[3] == 180 * MS
    assert times.node.counts[3].sum() == 1


def test_a_long_poll_is_not_counted_as_request_time(times: RequestTimes) -> None:
    timing = times.begin(FETCH, 12, monotonic_ns(), 40, "c")
    timing.handled()
    for _ in range(9):
        monotonic_ns()
    timing.is_patient = True
    timing.answered()
    timing.sent()
    (slow,) = times.node.slow()
    assert slow.waited_us == 600_000
    assert times.node.sums[FETCH] == 120 * MS


def test_a_quick_request_is_only_counted(times: RequestTimes) -> None:
    times.begin(3, 12, monotonic_ns(), 40, "c").sent()
    assert list(times.node.slow()) == []
    assert times.node.counts[3].sum() == 1


def test_the_kernels_request_times_are_added_once() -> None:
    times = RequestTimes(NodeTimings.private(), slow_ms=100)
    turn = np.zeros(TURN_WORDS, np.int64)
    turn[TIMES_AT + 4] = 3
    turn[TIMES_AT + TIME_BUCKETS + 5] = 2
    turn[TIME_SUMS_AT], turn[TIME_SUMS_AT + 1] = 30_000, 50_000
    times.count_turns(turn)
    times.count_turns(turn)
    turn[TIMES_AT + 4] = 4
    times.count_turns(turn)
    assert times.node.counts[0, 4] == 4
    assert times.node.counts[FETCH, 5] == 2
    assert times.node.sums[:2].tolist() == [30_000, 50_000]
