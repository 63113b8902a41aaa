"""Producers are slowed so that the remaining space lasts."""

from pathlib import Path

import pytest

from shm.kernels.base.words import WORD_SPACE_END
from smq.log.log import Log
from smq.shard.throttle import LEFT_LASTS_MS, SLOW_BELOW, THROTTLE_MS_MAX, Throttle
from tests.shard.shard_bench import NOW_MS, new_log

MiB = 1 << 20
BYTES_MAX = 1024 * MiB


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path, bytes_max=BYTES_MAX)


def leave(log: Log, left: int) -> None:
    log.words[WORD_SPACE_END] = log.tail + left


def test_the_throttle_is_off_while_enough_is_free(log: Log) -> None:
    throttle = Throttle([log])
    for left in (BYTES_MAX, int(BYTES_MAX * SLOW_BELOW)):
        leave(log, left)
        throttle.watch()
        assert not throttle.is_on
    leave(log, int(BYTES_MAX * SLOW_BELOW) - 1)
    throttle.watch()
    assert throttle.is_on


def test_the_throttle_makes_the_remaining_space_last(log: Log) -> None:
    throttle, now_ms = Throttle([log]), NOW_MS
    left = start = 256 * MiB
    while left > start // 8:
        leave(log, left)
        left -= MiB
        delay_ms = throttle.charge(MiB, now_ms)
        assert delay_ms < THROTTLE_MS_MAX
        now_ms += delay_ms
    assert now_ms - NOW_MS >= 2 * LEFT_LASTS_MS  # Halved three times, e-folded twice.


def test_the_delays_of_connections_add_up_to_at_most_the_maximum(log: Log) -> None:
    throttle = Throttle([log])
    leave(log, 500 * MiB)
    delays = [throttle.charge(10 * MiB, NOW_MS) for _ in range(20)]
    assert delays[:3] == [100, 200, 300]
    assert delays[-1] == THROTTLE_MS_MAX
    assert throttle.charge(10 * MiB, NOW_MS + 5000) == 100


def test_a_full_log_slows_for_as_long_as_may_be(log: Log) -> None:
    throttle = Throttle([log])
    leave(log, 0)
    assert throttle.delay_ms(1000, NOW_MS) == THROTTLE_MS_MAX
    leave(log, -64)
    assert throttle.delay_ms(1000, NOW_MS) == THROTTLE_MS_MAX


def test_the_log_with_the_least_space_decides(log: Log, tmp_path: Path) -> None:
    other = new_log(tmp_path, 1, bytes_max=BYTES_MAX)
    throttle = Throttle([other, log])
    leave(log, 20 * MiB)
    throttle.watch()
    assert throttle.is_on
    assert throttle.delay_ms(MiB, NOW_MS) == 250
