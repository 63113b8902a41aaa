"""The differences between a table and the manifest."""

from smq.model.segments import SealedPartition, Segment
from smq.sealer.lake.plan import Change, NewFile, Range, changes, ends, range_of, raw_records

PLACES = [SealedPartition("kafka", "orders", partition, partition + 1) for partition in (0, 1)]


def line(  # noqa: PLR0913  (A segment has many sides.)
    partition: int, base: int, end: int, *, attempt: int = 1, records: int = -1, kind: str = ""
) -> Segment:
    suffix = "batches" if kind == "raw" else "parquet"
    path = PLACES[partition].key(base, end, attempt, suffix)
    count = end - base if records < 0 else records
    return Segment(
        partition + 1, base, end, kind or "parquet", path, 100, 0, count, 0, 0, attempt, 0
    )


def held(*segments: Segment) -> dict[str, int]:
    return {each.path: each.record_count for each in segments}


def test_the_name_of_a_file_says_its_offsets() -> None:
    assert range_of(line(1, 5, 9).path) == Range(1, 5, 9)
    for other in (line(0, 0, 1, kind="raw").path, "topics/kafka/orders/part-0.parquet", "x"):
        assert range_of(other) is None


def test_equal_sides_need_no_commit() -> None:
    one, two = line(0, 0, 10), line(1, 0, 4)
    assert changes({0: [one], 1: [two]}, held(one, two)) == ([], False)


def test_new_files_are_added_oldest_first_so_many_at_a_time() -> None:
    lines = {0: [line(0, 0, 10), line(0, 10, 20)], 1: [line(1, 0, 4)]}
    [change], has_more = changes(lines, {}, added_max=2)
    assert [new.segment for new in change.added] == lines[0]
    assert (change.removed, change.ends, has_more) == ([], {0: 20, 1: 0}, True)
    [rest], has_more = changes(lines, held(*lines[0]), added_max=2)
    assert (rest.added, rest.ends, has_more) == ([NewFile(1, lines[1][0])], {0: 20, 1: 4}, False)


def test_a_merge_rearranges_and_a_compaction_changes() -> None:
    parts = [line(0, 0, 10), line(0, 10, 20)]
    merged = line(0, 0, 20, attempt=2)
    [change], _ = changes({0: [merged], 1: []}, held(*parts))
    assert change == Change(
        sorted(each.path for each in parts), [NewFile(0, merged)], False, {0: 20, 1: 0}
    )
    compacted = line(0, 0, 20, attempt=2, records=7)
    [change], _ = changes({0: [compacted], 1: []}, held(*parts))
    assert change.rows_differ
    assert len(change.removed) == 2


def test_expired_files_go_behind_merged_ones_and_before_new_ones() -> None:
    gone, a, b, new = line(0, 0, 5), line(1, 0, 1), line(1, 1, 2), line(0, 5, 8)
    merged = line(1, 0, 2, attempt=9)
    planned, _ = changes({0: [new], 1: [merged]}, held(gone, a, b))
    assert [(len(each.removed), len(each.added)) for each in planned] == [(2, 1), (1, 0), (0, 1)]
    assert [each.ends[0] for each in planned] == [5, 5, 8]


def test_a_file_of_another_partition_is_not_replaced() -> None:
    other, new = line(1, 0, 10), line(0, 0, 10)
    planned, _ = changes({0: [new], 1: []}, held(other))
    assert [(len(each.removed), len(each.added)) for each in planned] == [(1, 0), (0, 1)]


def test_a_raw_segment_is_passed_and_counted() -> None:
    lines = {0: [line(0, 0, 5), line(0, 5, 7, kind="raw"), line(0, 7, 9)]}
    assert ends(lines, {lines[0][0].path}) == {0: 7}
    assert ends(lines, set()) == {0: 0}
    assert raw_records(lines) == 2
    assert len(changes(lines, {})[0][0].added) == 2
