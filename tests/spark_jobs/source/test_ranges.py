"""What a batch covers, and how it is shared among tasks."""

import logging

import pytest
from hypothesis import given, strategies as st

from smq.client.names import TopicPartition
from smq.model.segments import Segment
from smq.tables.plan import SegmentPart, Unreadable
from spark_jobs.source import ranges
from spark_jobs.source.options import BatchAdmission, WrongOption
from spark_jobs.source.ranges import (
    Edges,
    admitted,
    clamped,
    from_json,
    losses,
    must_wait,
    named_offsets,
    native_bytes,
    tasks,
    to_json,
)
from spark_jobs.source.topics import Piece

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
EDGES = Edges({A: 10, B: 0}, {A: 100, B: 50})


def piece(
    partition: int, start: int, end: int, size: int | None = None, kind: str = "parquet"
) -> Piece:
    if size is None:
        return Piece("t", None, partition, start, end)
    segment = Segment(partition, start, end, kind, "x", size, 0, end - start, 0, 0, 0, 0)
    return Piece("t", SegmentPart(partition, segment, start, end), partition, start, end)


def test_only_the_bytes_of_parquet_files_are_native() -> None:
    half = piece(0, 0, 10, 100)._replace(end=5)
    assert native_bytes([half, piece(0, 10, 20, 100, "raw"), piece(0, 20, 30)]) == 50


def test_named_offsets_are_of_all_partitions() -> None:
    assert named_offsets("startingOffsets", {A: -2, B: -1}, EDGES) == {A: 10, B: 50}
    with pytest.raises(WrongOption, match="Specified: t-0 Assigned: t-0, t-1"):
        named_offsets("startingOffsets", {A: 1}, EDGES)


def test_existing_offsets_are_read() -> None:
    found = clamped({A: 10, B: 7}, {A: 100, B: 7}, EDGES, losses(fails=True))
    assert found == {A: (10, 100)}


@pytest.mark.parametrize(
    ("start", "end", "kept", "said"),
    [
        (5, 20, (10, 20), "t-0's offset was changed from 5 to 10, some data may have been missed"),
        (60, 40, None, "t-0's offset was changed from 60 to 40"),
        (90, 120, (90, 100), "t-0 ends at offset 100, before 120"),
    ],
)
def test_missing_offsets_fail_or_are_logged(
    start: int,
    end: int,
    kept: tuple[int, int] | None,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(Unreadable, match=f"{said}.*set the option failOnDataLoss to false"):
        clamped({A: start}, {A: end}, EDGES, losses(fails=True))
    with caplog.at_level(logging.WARNING):
        found = clamped({A: start}, {A: end}, EDGES, losses(fails=False))
    assert found.get(A) == kept
    assert said in caplog.text


def test_admission_is_in_proportion_and_starves_no_partition() -> None:
    ends = {A: 1000, B: 10}
    assert admitted({A: 0, B: 0}, ends, 101) == {A: 100, B: 1}
    assert admitted({A: 0, B: 0}, ends, 2000) == ends
    assert admitted({A: 0, B: 9}, ends, 10) == {A: 9, B: 10}


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), min_size=1, max_size=5),
    st.integers(1, 2**40),
)
def test_admission_makes_progress_within_its_bound(
    partitions: list[tuple[int, int]], limit: int
) -> None:
    names = [TopicPartition("t", each) for each in range(len(partitions))]
    starts = {name: min(pair) for name, pair in zip(names, partitions, strict=True)}
    ends = {name: max(pair) for name, pair in zip(names, partitions, strict=True)}
    found = admitted(starts, ends, limit)
    assert all(starts[name] <= found[name] <= ends[name] for name in names)
    assert all(found[name] > starts[name] for name in names if ends[name] > starts[name])
    assert sum(found[name] - starts[name] for name in names) <= limit + len(names)


def test_few_records_wait_until_the_delay() -> None:
    admission = BatchAdmission(None, 100, 5000)
    assert must_wait({A: 0}, {A: 99}, admission, 10)
    assert not must_wait({A: 0}, {A: 100}, admission, 10)
    assert not must_wait({A: 0}, {A: 99}, admission, 5000)
    assert not must_wait({A: 0}, {A: 99}, admission, None)
    assert not must_wait({A: 0}, {A: 1}, BatchAdmission(5, None, 5000), 10)


def test_many_small_segments_share_a_task() -> None:
    small = [piece(0, 10 * each, 10 * each + 10, 1000) for each in range(5000)]
    assert len(tasks(small, None, None)) == 1
    assert 4 <= len(tasks(small, 4, None)) <= 6


def test_large_segments_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "TASK_BYTES", 100)
    assert [len(each) for each in tasks([piece(0, 0, 10, 500)], None, None)] == [1] * 5


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(1, 500), st.integers(1, 10**9) | st.none()),
        max_size=8,
    ),
    st.integers(1, 20) | st.none(),
    st.integers(1, 300) | st.none(),
)
def test_tasks_have_each_record_once(
    given_: list[tuple[int, int, int | None]], least: int | None, most: int | None
) -> None:
    pieces = [
        piece(number, start, start + count, size)
        for number, (start, count, size) in enumerate(given_)
    ]
    found = tasks(pieces, least, most)
    covered: dict[int, int] = {each.partition: each.start for each in pieces}
    for each in (each for task in found for each in task):
        assert covered[each.partition] == each.start < each.end
        covered[each.partition] = each.end
    assert covered == {each.partition: each.end for each in pieces}
    if most is not None:
        assert all(sum(each.end - each.start for each in task) <= most for task in found)


def test_offsets_have_one_text() -> None:
    ten = TopicPartition("t", 10)
    found = to_json({ten: 1, B: 2, A: 3, TopicPartition("a", 0): 4})
    assert [(topic, list(each)) for topic, each in found.items()] == [
        ("a", ["0"]),
        ("t", ["0", "1", "10"]),
    ]
    assert from_json(found)[ten] == 1
