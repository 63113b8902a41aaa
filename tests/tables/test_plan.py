"""Which parts of which segments are read; what cannot be given whole is named."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.segments import Segment
from smq.store.manifest import INT64_MIN
from smq.tables.plan import Ending, Starting, Unreadable, between, find_topic, plan

TOPIC = Topic("orders", UUID(int=1), (7, 8), (0, 0))


class FakeManifest(NamedTuple):
    ranges: dict[int, list[tuple[int, int]]]
    starts: Mapping[int, int] = MappingProxyType({})

    def topics(self) -> list[Topic]:
        return [TOPIC]

    def log_start(self, number: int) -> int:
        return self.starts.get(number, 0)

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]:
        number = partition_number
        found = [
            Segment(number, base, end, "parquet", f"{number}/{base}", 1, 0, 1, 0, 0, 0, 0)
            for base, end in self.ranges.get(number, [])
            if end > from_offset
        ]
        return found if count_max < 0 else found[:count_max]


SEALED = FakeManifest({7: [(0, 10), (10, 20), (20, 30)], 8: [(0, 5)]})


def _planned(
    manifest: FakeManifest, starting: Starting = "earliest", ending: Ending = "latest"
) -> list[tuple[str, int, int, bool]]:
    parts = plan(manifest, TOPIC, starting, ending)
    return [(part.segment.path, part.start, part.end, part.is_cut) for part in parts]


def test_all_of_a_topic_is_its_segments_whole() -> None:
    assert _planned(SEALED) == [
        ("7/0", 0, 10, False),
        ("7/10", 10, 20, False),
        ("7/20", 20, 30, False),
        ("8/0", 0, 5, False),
    ]


def test_segments_are_cut_where_offsets_say_so() -> None:
    assert _planned(SEALED, {0: 12}, {0: 25, 1: 0}) == [
        ("7/10", 12, 20, True),
        ("7/20", 20, 25, True),
    ]
    assert _planned(SEALED, {0: 10, 1: 5}, {0: 20}) == [("7/10", 10, 20, False)]


def test_offsets_deleted_by_retention_are_left_out() -> None:
    manifest = SEALED._replace(starts={7: 15})
    assert _planned(manifest, {1: 5})[0] == ("7/10", 15, 20, True)


def test_nothing_sealed_is_nothing_to_read() -> None:
    assert _planned(FakeManifest({})) == []


@pytest.mark.parametrize(
    ("starting", "ending", "said"),
    [
        ({0: 14}, "latest", "partition 0 of orders: offsets 14 to 14 were deleted by retention"),
        ("earliest", {0: 31}, "offsets up to 31 were asked for, 30 are sealed"),
        ({0: 20}, {0: 19}, "it starts at offset 20, after its end 19"),
        ({2: 0}, "latest", "orders has no partition 2"),
        ("earliest", {-1: 0}, "orders has no partition -1"),
    ],
)
def test_offsets_that_cannot_be_read_are_refused_with_a_reason(
    starting: Starting, ending: Ending, said: str
) -> None:
    with pytest.raises(Unreadable, match=said):
        plan(SEALED._replace(starts={7: 15}), TOPIC, starting, ending)


def test_a_hole_between_segments_is_named() -> None:
    manifest = FakeManifest({7: [(0, 10), (12, 20)]})
    with pytest.raises(Unreadable, match="no segment has offsets 10 to 11"):
        plan(manifest, TOPIC, "earliest", "latest")
    with pytest.raises(Unreadable, match="no segment has offsets 10 to 11"):
        plan(manifest, TOPIC, {0: 5}, {0: 11})
    assert [part.start for part in plan(manifest, TOPIC, {0: 12}, "latest")] == [12]


def test_a_topic_is_found_by_its_name() -> None:
    assert find_topic(SEALED, "orders") is TOPIC
    with pytest.raises(Unreadable, match="there is no topic other"):
        find_topic(SEALED, "other")


def test_a_range_of_one_partition_reads_its_own_segments() -> None:
    found = between(SEALED, TOPIC, 0, 5, 20)
    assert [(part.segment.path, part.start, part.end) for part in found] == [
        ("7/0", 5, 10),
        ("7/10", 10, 20),
    ]
    assert between(SEALED, TOPIC, 1, 3, 3) == []


@pytest.mark.parametrize(("start", "end", "hole"), [(25, 31, "30 to 30"), (30, 40, "30 to 39")])
def test_a_range_beyond_the_segments_is_named(start: int, end: int, hole: str) -> None:
    with pytest.raises(Unreadable, match=f"no segment has offsets {hole}"):
        between(SEALED, TOPIC, 0, start, end)


def test_a_merge_between_two_pages_gives_no_row_twice() -> None:
    merged = FakeManifest({7: [(0, 10), (0, 30)]})  # What the pages before and after it gave.
    assert [(part.start, part.end) for part in between(merged, TOPIC, 0, 0, 30)] == [
        (0, 10),
        (10, 30),
    ]
