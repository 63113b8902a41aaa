"""A broker that sends nothing of what it says it has is given up on."""

import pytest

from smq.client.consuming.silence import Silence
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.stepped_clock import SteppedClock

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_it_is_over_when_nothing_has_moved_for_long() -> None:
    """Of the kind of door fault 12: `smq copy`, `consume` and `export` waited for ever."""
    clock = SteppedClock()
    silence = Silence(clock, 5)
    for place in (1, 2, 3):  # It moves, if slowly.
        silence.check({A: (place, 9), B: (0, 4)})
        clock.step(4)
    for _ in range(4):
        clock.step(1)
        silence.check({A: (3, 9), B: (0, 4)})
    clock.step(1)
    with pytest.raises(BrokerError, match="a-0 ends at offset 9, but has sent nothing") as raised:
        silence.check({A: (3, 9), B: (0, 4)})
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_an_empty_check_never_runs_out_of_time() -> None:
    clock = SteppedClock()
    silence = Silence(clock, 5)
    clock.step(9)
    silence.check({})


def test_a_reader_that_was_busy_asks_again() -> None:
    """Of the kind of door fault 12: one empty answer after a destination had taken a minute ended a
    copy."""
    clock = SteppedClock()
    silence = Silence(clock, 5)
    for _ in range(4):  # It has asked three times since it learned of the end.
        silence.check({A: (3, 9)})
        clock.step(60)
    silence.check({A: (4, 9)})
    clock.step(60)
    for _ in range(4):
        silence.check({A: (4, 9)})
        clock.step(1)
    with pytest.raises(BrokerError):
        silence.check({A: (4, 9)})
