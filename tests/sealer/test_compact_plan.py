"""When a partition is compacted, and when tombstones may go."""

import pytest

from smq.model.config import Config
from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.compact_plan import may_drop_tombstones, to_compact

NOW_MS = 1_000_000


def settings(**configs: str) -> TopicSettings:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicSettings.of({"cleanup.policy": "compact"} | named, Config(shards=1))


def segment(
    number: int, size: int = 100, *, compacted_ms: int = 0, kind: str = "parquet", age_ms: int = 100
) -> Segment:
    """The `number`th segment; its youngest record is so old, its oldest ten ms more."""
    newest = NOW_MS - age_ms
    return Segment(
        1, number * 10, number * 10 + 10, kind, f"{number}", size, 0, 10,
        -(10**15), 10**15, 0, newest, compacted_ms, 0, newest - 10, newest,
    )  # fmt: skip


def chosen(segments: list[Segment], **configs: str) -> list[int]:
    return [segments.index(each) for each in to_compact(segments, settings(**configs), NOW_MS)]


@pytest.mark.parametrize(
    ("clean", "dirty", "ratio", "places"),
    [
        ([], [], "0", []),
        ([100], [], "0", []),
        ([], [1], "0.5", [0]),
        ([100], [1], "0", [1]),
        ([100], [99], "0.5", []),
        ([100], [100], "0.5", []),
        ([100], [101], "0.5", [1]),
        ([50, 50], [60, 60], "0.5", [2, 3]),
        ([100], [10_000], "1", []),
    ],
)
def test_it_is_due_when_more_than_a_part_is_not_compacted(
    clean: list[int], dirty: list[int], ratio: str, places: list[int]
) -> None:
    segments = [segment(i, size, compacted_ms=1) for i, size in enumerate(clean)]
    segments += [segment(len(clean) + i, size) for i, size in enumerate(dirty)]
    assert chosen(segments, min_cleanable_dirty_ratio=ratio) == places


def test_a_record_that_is_old_enough_makes_it_due() -> None:
    segments = [segment(0, 1000, compacted_ms=1), segment(1, age_ms=490), segment(2)]
    assert chosen(segments, max_compaction_lag_ms="500") == []
    assert chosen(segments, max_compaction_lag_ms="499") == [1, 2]


def test_young_records_wait_and_what_is_behind_them_too() -> None:
    segments = [segment(0, age_ms=500), segment(1, age_ms=99), segment(2, age_ms=500)]
    assert chosen(segments, min_compaction_lag_ms="100") == [0]
    assert chosen(segments, min_compaction_lag_ms="99") == [0, 1, 2]
    assert chosen(segments[1:], min_compaction_lag_ms="100") == []


def test_young_segments_are_not_due() -> None:
    segments = [segment(0, 100, compacted_ms=1), segment(1, 90), segment(2, 1000, age_ms=1)]
    assert chosen(segments, min_compaction_lag_ms="50") == []


def test_a_raw_segment_is_never_compacted() -> None:
    assert chosen([segment(0, kind="raw"), segment(1, 1000)]) == [1]
    assert chosen([segment(0, kind="raw")]) == []


def test_without_a_lag_no_clock_holds_compaction_up() -> None:
    """Data fault 5, its kind: after the wall clock had been set back by an hour nothing was
    compacted for an hour; Kafka looks at times where the lag is above 0 only."""
    segments = [segment(0, age_ms=-3_600_000), segment(1)]
    assert chosen(segments) == [0, 1]
    assert chosen(segments, min_compaction_lag_ms="1") == []


def test_segments_without_times_count_from_when_they_were_sealed() -> None:
    timeless = segment(0)
    object.__setattr__(timeless, "max_timestamp_ms", -1)
    object.__setattr__(timeless, "min_timestamp_ms", -1)
    assert chosen([timeless], min_compaction_lag_ms="101") == []
    assert chosen([timeless], min_compaction_lag_ms="100") == [0]


def test_tombstones_go_some_time_after_their_segment_was_compacted() -> None:
    segments = [segment(0, compacted_ms=NOW_MS - 50), segment(1)]
    for keep_ms, may in (("49", True), ("50", True), ("51", False)):
        asked = settings(delete_retention_ms=keep_ms)
        assert may_drop_tombstones(segments[0], segments, asked, NOW_MS) == may
    assert not may_drop_tombstones(
        segments[1], segments, settings(delete_retention_ms="0"), NOW_MS
    ), "it was not compacted"


def test_tombstones_stay_behind_what_cannot_be_compacted() -> None:
    raw = segment(1, kind="raw")
    segments = [segment(0, compacted_ms=1), raw, segment(2, compacted_ms=1)]
    asked = settings(delete_retention_ms="0")
    assert may_drop_tombstones(segments[0], segments, asked, NOW_MS)
    assert not may_drop_tombstones(segments[2], segments, asked, NOW_MS)
