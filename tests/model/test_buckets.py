"""In the long run no client uses more than a rate plus one burst."""

import pytest
from hypothesis import given, strategies as st

from smq.model import buckets as module
from smq.model.buckets import BUCKETS_MAX, FORGOTTEN_AT_ONCE, WAIT_MS_MAX, Bucket, Buckets


def test_a_burst_is_free_and_a_debt_is_waited_for() -> None:
    buckets = Buckets()
    assert buckets.use("a", 1000.0, 1000, 0) == 0
    assert buckets.use("a", 1000.0, 500, 0) == 501
    assert buckets.use("b", 1000.0, 1000, 0) == 0
    assert buckets.use("a", 1000.0, 0, 400) == 101
    assert buckets.use("a", 1000.0, 0, 501) == 0


def test_a_bucket_limits_the_wait() -> None:
    buckets = Buckets()
    assert buckets.use("a", 1.0, 1_000_000_000, 0) == WAIT_MS_MAX
    assert buckets.use("none", 0.0, 1, 0) == WAIT_MS_MAX


def test_a_rate_may_change_and_a_clock_may_go_back() -> None:
    buckets = Buckets()
    buckets.use("a", 1000.0, 2000, 5000)
    assert buckets.use("a", 10_000.0, 0, 4000) == 101


def test_buckets_are_bounded() -> None:
    buckets = Buckets()
    for number in range(BUCKETS_MAX + 5):
        buckets.use(number, 1.0, 1, 0)
        assert len(buckets._buckets) <= BUCKETS_MAX
    assert len(buckets._buckets) > BUCKETS_MAX - FORGOTTEN_AT_ONCE


def test_a_debt_is_not_forgotten_while_others_have_none() -> None:
    """A throttled user chose ten thousand names of clients, and owed nothing any more."""
    buckets = Buckets()
    buckets.use("owes", 1.0, 1000, 0)
    buckets.use("paid", 1000.0, 1001, 0)
    for number in range(2 * BUCKETS_MAX):
        buckets.use(number, 1.0, 1, 10)
    assert buckets.use("owes", 1.0, 0, 10) == WAIT_MS_MAX
    assert "paid" not in buckets._buckets


@pytest.mark.parametrize("rate", [1.0, 0.0])
def test_a_debt_is_not_forgotten_for_names_that_owe_more(rate: float) -> None:
    """A throttled user made some names that owed, and then ten thousand that did not."""
    buckets = Buckets()
    for number in range(100):
        buckets.use(f"owes more {number}", rate, 10_000, 0)
    buckets.use("owes", 1.0, 1000, 1)
    for number in range(2 * BUCKETS_MAX):
        buckets.use(number, 1.0, 1, 2)
    assert buckets.use("owes", 1.0, 0, 2) == WAIT_MS_MAX


def test_of_debts_those_that_end_first_are_forgotten() -> None:
    buckets = Buckets()
    for number in range(BUCKETS_MAX + 1):
        buckets.use(number, 10.0, 100 + (number * 7) % BUCKETS_MAX, 0)
    forgotten = {number for number in range(BUCKETS_MAX) if number not in buckets._buckets}
    assert {(number * 7) % BUCKETS_MAX for number in forgotten} == {*range(FORGOTTEN_AT_ONCE)}


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_a_client_that_waits_as_asked_stays_within_the_rate(amounts: list[int]) -> None:
    bucket, now_ms, used = Bucket(1000.0, 1000.0, 0), 0, 0
    for amount in amounts:
        wait_ms = bucket.use(amount, now_ms, 1.0)
        assert wait_ms < module.WAIT_MS_MAX
        used += amount
        now_ms += wait_ms
        assert used <= 1000 * now_ms / 1000 + 1000
