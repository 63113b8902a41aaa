"""Work is counted alike each time, and grows with the work."""

import sys

import pytest

from smq.testing.steps import lines_run


def loop(count: int) -> int:
    total = 0
    for each in range(count):
        total += each
    return total


def test_twice_the_work_is_about_twice_the_lines() -> None:
    once, twice = lines_run(lambda: loop(1000)), lines_run(lambda: loop(2000))
    assert once == lines_run(lambda: loop(1000))
    assert 1.9 < twice / once < 2.1


def test_lines_run_restores_the_trace_function_after_a_failure() -> None:
    before = sys.gettrace()

    def fail() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        lines_run(fail)
    assert sys.gettrace() is before
