"""How busy a shard is."""

from smq.app.sealer.shard_load import KNOWN_MS, ShardLoad


def seen(*reports: tuple[int, int]) -> list[bool]:
    """Whether the load is high after each report: the processor's time, and when."""
    load, found = ShardLoad(), list[bool]()
    for cpu_ms, now_ms in reports:
        load.see(cpu_ms, now_ms)
        found.append(load.is_high(now_ms))
    return found


def test_a_shard_that_uses_half_a_core_is_busy() -> None:
    first = 70_000, 1_000_000  # Nothing is known of the time before.
    assert seen(first, (70_249, 1_000_500)) == [False, False]
    assert seen(first, (70_250, 1_000_500)) == [False, True]


def test_a_tenth_of_a_second_says_little() -> None:
    reports = (70_000, 1_000_000), (70_300, 1_000_500), (70_301, 1_000_600), (70_400, 1_001_000)
    assert seen(*reports) == [False, True, True, False]


def test_a_shard_that_was_started_again_has_used_less() -> None:
    assert seen((70_000, 1_000_000), (100, 1_000_500), (600, 1_001_000)) == [False, False, True]


def test_a_shard_that_has_stopped_is_not_busy() -> None:
    load = ShardLoad()
    load.see(70_000, 1_000_000)
    load.see(70_500, 1_000_500)
    assert load.is_high(1_000_500 + KNOWN_MS - 1)
    assert not load.is_high(1_000_500 + KNOWN_MS)
