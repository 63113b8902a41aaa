"""The plain twin of rights in kernels."""

from shm.kernels.twin.bitmaps import is_allowed, may_append, may_read


def test_partitions_of_all_logs_count_by_their_place_and_none_that_is_led_elsewhere() -> None:
    assert is_allowed({5}, 5)
    assert is_allowed({5}, 3 << 32 | 5)
    assert not is_allowed({5}, 6)
    assert not is_allowed({2**32 - 1}, -1)


def test_requests_are_taken_whole_or_not_at_all() -> None:
    assert may_append({1, 2}, [1, 2, 1])
    assert not may_append({1, 2}, [1, 3])
    assert may_read({1}, [])
