"""Which small segments become one: few files are left, and no record is written often."""

from dataclasses import replace
from random import Random

import pytest

from smq.model.config import Config
from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.merge_plan import MERGED_BYTES_MAX, RETENTION_SHARE, SMALL_BYTES, to_merge

MINUTE_MS, DAY_MS = 60_000, 24 * 3600 * 1000
OVERHEAD_BYTES = 2500  # Of a file of Parquet, whatever it holds.


def settings(**configs: str) -> TopicSettings:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return TopicSettings.of({"retention.ms": "-1"} | named, Config(shards=1))


def segment(number: int, size: int = 1000, kind: str = "parquet") -> Segment:
    """A minute's records, the `number`th."""
    first_ms = number * MINUTE_MS
    return Segment(
        1, number * 10, number * 10 + 10, kind, f"{number}", size, 0, 10,
        -(10**15), 10**15, 0, first_ms + MINUTE_MS, 0, 0, first_ms, first_ms + MINUTE_MS - 1,
    )  # fmt: skip


def of_sizes(*sizes: int) -> list[Segment]:
    return [segment(number, size) for number, size in enumerate(sizes)]


def chosen(segments: list[Segment], **configs: str) -> list[int]:
    """The places of those that are merged."""
    return [segments.index(each) for each in to_merge(segments, settings(**configs))]


@pytest.mark.parametrize(
    ("sizes", "places"),
    [
        ((), []),
        ((1,), []),
        ((1, 1, 1), []),
        ((1, 1, 1, 1), [0, 1, 2, 3]),
        ((100, 1, 1, 1, 1), [1, 2, 3, 4]),
        ((8, 1, 1, 1, 1), [0, 1, 2, 3, 4]),
        ((9, 1, 1, 1, 1), [1, 2, 3, 4]),
        ((1, 1, 1, 100), [0, 1, 2, 3]),
        ((SMALL_BYTES, 1, 1, 1, 1), [1, 2, 3, 4]),
        ((1, 1, SMALL_BYTES, 1), [0, 1]),
        ((SMALL_BYTES,) * 9, []),
        ((1, SMALL_BYTES) * 5, []),
    ],
)
def test_small_neighbours_of_about_one_size_are_merged(
    sizes: tuple[int, ...], places: list[int]
) -> None:
    assert chosen(of_sizes(*sizes)) == places


def test_a_merged_file_is_no_larger_than_one_that_is_sealed_at_once() -> None:
    segments = of_sizes(*[SMALL_BYTES - 1] * 5)
    assert chosen(segments) == [0, 1]
    assert sum(each.bytes for each in to_merge(segments, settings())) <= MERGED_BYTES_MAX


def test_a_merged_file_spans_no_more_offsets_than_a_batch() -> None:
    """Data fault 18: segments that aborted transactions left empty were merged without end."""
    wide = [replace(segment(0), base_offset=i << 29, end_offset=(i + 1) << 29) for i in range(9)]
    assert chosen(wide) == [0, 1, 2, 3]


def test_a_merged_file_is_no_larger_and_spans_no_more_time_than_a_segment_of_the_topic() -> None:
    segments = of_sizes(*[400_000] * 8)
    assert chosen(segments, segment_bytes="1048576") == [0, 1]
    assert chosen(segments, segment_ms=str(3 * MINUTE_MS)) == [0, 1, 2]
    assert chosen(segments) == list(range(8))


def test_each_kind_is_merged_with_its_own() -> None:
    kinds = ["raw", "raw", "parquet", "raw", "raw", "raw", "raw"]
    segments = [segment(number, kind=kind) for number, kind in enumerate(kinds)]
    assert chosen(segments) == [0, 1]
    assert chosen(segments[2:]) == [1, 2, 3, 4]


def test_segments_that_are_not_adjacent_are_not_merged() -> None:
    segments = [segment(0), segment(1), segment(5), segment(6), segment(7)]
    assert chosen(segments) == [0, 1]


def test_retention_is_held_up_by_a_part_of_it_only() -> None:
    segments = of_sizes(*[1000] * 100)
    limit_ms = 40 * MINUTE_MS
    found = to_merge(segments, settings(retention_ms=str(limit_ms)))
    assert len(found) > 1
    assert found[-1].newest_ms - found[0].oldest_ms <= limit_ms // RETENTION_SHARE
    found = to_merge(segments, settings(retention_bytes="40000"))
    assert sum(each.bytes for each in found) == 40_000 // RETENTION_SHARE


def test_records_without_a_time_count_from_when_they_were_sealed() -> None:
    segments = [replace(each, min_timestamp_ms=-1, max_timestamp_ms=-1) for each in of_sizes(1, 1)]
    segments.append(replace(segment(30 * 24 * 60), base_offset=20))
    assert chosen(segments) == [0, 1]


def merged(found: list[Segment]) -> Segment:
    return replace(
        found[0],
        end_offset=found[-1].end_offset,
        max_timestamp_ms=found[-1].max_timestamp_ms,
        committed_ms=found[-1].committed_ms,
        bytes=sum(each.bytes - OVERHEAD_BYTES for each in found) + OVERHEAD_BYTES,
    )


@pytest.mark.parametrize("size", [100, 10_000, 200_000])
@pytest.mark.parametrize("retention_ms", [-1, 7 * DAY_MS])
def test_a_thousand_trickling_partitions_have_ten_thousand_files_after_a_week(
    size: int, retention_ms: int
) -> None:
    """A file each ten minutes, and a look each five. Five partitions stand for 200 each."""
    wanted, files = settings(retention_ms=str(retention_ms)), 0
    for seed in range(5):
        random, segments, sealed, written = Random(seed), list[Segment](), 0, 0
        for number in range(int(random.random() * 10), 7 * 24 * 60, 10):
            new = segment(number, OVERHEAD_BYTES + int(size * (0.5 + random.random())))
            new = replace(new, end_offset=new.base_offset + 100)
            segments.append(new)
            sealed += new.bytes
            while found := to_merge(segments, wanted):
                at = segments.index(found[0])
                segments[at : at + len(found)] = [merged(found)]
                written += segments[at].bytes
        files += 200 * len(segments)
        assert segments[0].base_offset < 100
        assert written <= 6 * sealed
    assert files <= 10_000
