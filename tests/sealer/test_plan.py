"""Sealing and deletion: tables of cases, and invariants for all."""

from functools import partial

import pytest
from hypothesis import given, strategies as st

from smq.model.segments import Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.plan import Retention, ShardState, Size, due, is_overdue, retain, retain_unsealed
from smq.wire.internal.messages import PartitionState, UnsealedPart, UnsealedParts


def _settings(
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    seal_bytes: int = 1000,
    seal_ms: int = 60_000,
) -> TopicSettings:
    return TopicSettings(
        durability="os",
        message_bytes_max=1000,
        log_append_time=False,
        timestamp_after_max_ms=0,
        timestamp_before_max_ms=0,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        seal_bytes=seal_bytes,
        seal_ms=seal_ms,
        reference_orphan_ms=60_000,
    )


def _partition(number: int, *, unsealed_bytes: int = 10, oldest_ms: int = 0) -> PartitionState:
    return PartitionState(number, 0, 0, 5, 9, unsealed_bytes, oldest_ms)


def _state(*partitions: PartitionState, wal_bytes: int = 0) -> ShardState:
    return ShardState(partitions, wal_bytes, 100)


def _due(
    state: ShardState, now_ms: int, settings: TopicSettings, *, pressure: bool = False
) -> list[int]:
    return [each.number for each in due(state, lambda _: settings, now_ms, pressure=pressure)]


def test_a_partition_is_sealed_when_it_is_full_or_old() -> None:
    state = _state(_partition(1, unsealed_bytes=999), _partition(2, unsealed_bytes=1000))
    assert _due(state, 59_999, _settings()) == [2]
    assert _due(state, 60_000, _settings()) == [1, 2]


def test_a_partition_that_still_grows_waits_for_its_time_or_for_want_of_space() -> None:
    full, settings = _partition(2, unsealed_bytes=1000), _settings()
    state, shorter = _state(full), full._replace(stable_end=full.stable_end - 1)
    assert due(state, lambda _: settings, 40, before={2: full}) == [full]
    assert due(state, lambda _: settings, 40, before={2: shorter}) == []
    assert due(state, lambda _: settings, 40, before={2: shorter}, pressure=True) == [full]
    assert due(state, lambda _: settings, 10**9, before={2: shorter}) == [full]


def test_records_sealed_undecided_are_due_once_they_are_decided() -> None:
    """Use fault 2: a quiet topic's table got it `seal.ms` later, however much it was."""
    undecided = _partition(1)._replace(undecided_end=9, high_watermark=20)
    assert _due(_state(undecided), 1, _settings()) == [1]
    assert _due(_state(undecided._replace(undecided_end=10)), 1, _settings()) == []
    assert _due(_state(undecided._replace(undecided_end=5)), 1, _settings()) == []


def test_records_are_sealed_before_retention_deletes_them() -> None:
    assert _due(_state(_partition(1)), 500, _settings(retention_ms=500)) == [1]
    assert _due(_state(_partition(1)), 499, _settings(retention_ms=500)) == []


def test_a_log_that_wants_space_has_all_its_partitions_sealed_the_oldest_first() -> None:
    partitions = [_partition(1, oldest_ms=30), _partition(2, oldest_ms=10)]
    assert _due(_state(*partitions, wal_bytes=49), 40, _settings()) == []
    assert _due(_state(*partitions, wal_bytes=50), 40, _settings()) == [2, 1]
    assert _due(_state(*partitions), 40, _settings(), pressure=True) == [2, 1]


def test_nothing_is_sealed_of_a_partition_without_stable_records_or_without_a_topic() -> None:
    sealed = _partition(1)._replace(stable_end=5)
    assert _due(_state(sealed), 10**9, _settings(), pressure=True) == []
    assert due(_state(_partition(2)), lambda _: None, 10**9, pressure=True) == []


FUTURE_MS = 10**15  # Of a record: nobody has checked it.


def _segments(*sizes_and_times: tuple[int, int]) -> list[Segment]:
    made = []
    for i, (size, time) in enumerate(sizes_and_times):
        base, newest_ms = 10 * i, time if time >= 0 else 777
        facts = 1, base, base + 10, "parquet", f"s{i}", size, 0, 10, 0, FUTURE_MS, 0, 777
        made.append(Segment(*facts, newest_ms=newest_ms))
    return made


def _kept(retention: Retention) -> tuple[int, list[str]]:
    return retention.log_start, [segment.path for segment in retention.deleted]


def _retain(
    segments: list[Segment],
    settings: TopicSettings,
    now_ms: int,
    unsealed_bytes: int = 0,
    sealed_end: int = 1000,
    **rest: int,
) -> Retention:
    """As the sealer does it: the size of all is known, the segments come one by one."""
    sealed = [segment.bytes for segment in segments if segment.end_offset <= sealed_end]
    size = Size(sealed_end, sum(sealed) + unsealed_bytes)
    return retain(iter(segments), settings, now_ms, size=size, **rest)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (_settings(), (0, [])),
        (_settings(retention_ms=500), (10, ["s0"])),
        (_settings(retention_ms=499), (20, ["s0", "s1"])),
        (_settings(retention_ms=0), (20, ["s0", "s1"])),
        (_settings(retention_bytes=0), (30, ["s0", "s1", "s2"])),
        (_settings(retention_bytes=70), (10, ["s0"])),
        (_settings(retention_bytes=71), (0, [])),
        (_settings(retention_bytes=40), (20, ["s0", "s1"])),
        (_settings(retention_bytes=0, retention_ms=0), (30, ["s0", "s1", "s2"])),
    ],
)
def test_segments_are_deleted_from_the_oldest_on(
    settings: TopicSettings, expected: tuple[int, list[str]]
) -> None:
    segments = _segments((30, 100), (30, 500), (40, 1000))
    assert _kept(_retain(segments, settings, 1000)) == expected


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    segments = _segments((1, 5000), (1, 1))
    assert _kept(_retain(segments, _settings(retention_ms=100), 1000)) == (0, [])


def test_records_without_a_time_go_by_when_they_were_sealed() -> None:
    segments = _segments((1, -1))
    assert _kept(_retain(segments, _settings(retention_ms=100), 877)) == (0, [])
    assert _kept(_retain(segments, _settings(retention_ms=100), 878)) == (10, ["s0"])


def test_unsealed_bytes_count_and_are_not_deleted() -> None:
    segments = _segments((30, 0))
    settings = _settings(retention_bytes=50)
    assert _kept(_retain(segments, settings, 0, unsealed_bytes=49)) == (0, [])
    assert _kept(_retain(segments, settings, 0, unsealed_bytes=50)) == (10, ["s0"])


def test_bytes_sealed_since_the_last_answer_of_the_log_count_once() -> None:
    """Data fault 10: 60 bytes were unsealed; by now the second segment has them, as 40."""
    segments = _segments((40, 0), (40, 0))
    asked = partial(_retain, segments, now_ms=0, unsealed_bytes=60, sealed_end=10)
    assert _kept(asked(_settings(retention_bytes=61))) == (0, [])
    assert _kept(asked(_settings(retention_bytes=60))) == (10, ["s0"])
    assert _kept(asked(_settings(retention_bytes=0))) == (10, ["s0"]), "the other stays for now"


def test_a_segment_merged_across_the_sealed_end_stays_until_the_log_answers_again() -> None:
    """Data fault 10: a part of the merged segment counts as unsealed."""
    segments = _segments((80, 0))
    settings = _settings(retention_bytes=0)
    assert _kept(_retain(segments, settings, 0, unsealed_bytes=60, sealed_end=5)) == (0, [])
    assert _kept(_retain(segments, settings, 0, unsealed_bytes=60, sealed_end=10)) == (10, ["s0"])


def test_segments_below_the_log_start_are_deleted() -> None:
    segments = _segments((1, 9), (1, 9))
    assert _kept(_retain(segments, _settings(), 0, log_start=15)) == (15, ["s0"])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 1000)), max_size=8),
    st.integers(-1, 1000),
    st.integers(-1, 200),
    st.integers(0, 100),
)
def test_retention_deletes_a_prefix_and_the_log_starts_after_it(
    sizes_and_times: list[tuple[int, int]], retention_ms: int, retention_bytes: int, log_start: int
) -> None:
    segments = _segments(*sizes_and_times)
    settings = _settings(retention_ms=retention_ms, retention_bytes=retention_bytes)
    start, deleted, all_go, has_more = _retain(segments, settings, 1000, log_start=log_start)
    assert (all_go, has_more) == (deleted == segments, False)
    assert deleted == segments[: len(deleted)]
    assert start == max([log_start, *(segment.end_offset for segment in deleted)])
    assert all(segment.end_offset > log_start for segment in segments[len(deleted) :])


def test_nothing_is_looked_at_behind_the_first_that_stays() -> None:
    segments = iter(_segments((1, 0), (1, 0), (1, 1000), (1, 1000), (1, 1000)))
    assert _kept(retain(segments, _settings(retention_ms=100), 1000, size=Size(0, 0))) == (
        20,
        ["s0", "s1"],
    )
    assert [segment.path for segment in segments] == ["s3", "s4"]


def test_so_many_go_at_once_and_the_others_the_next_time() -> None:
    segments, settings = _segments(*[(1, 0)] * 5), _settings(retention_ms=100)
    looks = []
    while True:
        retention = _retain(segments, settings, 1000, count_max=2)
        looks.append(len(retention.deleted))
        segments = segments[len(retention.deleted) :]
        if not retention.has_more:
            break
    assert looks == [2, 2, 1]
    assert retention.all_go


PARTS = [
    UnsealedPart(10, 100, 30),
    UnsealedPart(20, 500, 30),
    UnsealedPart(25, -1, 10),
    UnsealedPart(40, 1000, 40),
]


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        (_settings(), 0),
        (_settings(retention_ms=899), 10),
        (_settings(retention_ms=900), 0),
        (_settings(retention_ms=0), 20),  # Records without a time are in the way.
        (_settings(retention_bytes=80), 10),
        (_settings(retention_bytes=0, retention_ms=0), 40),
    ],
)
def test_unsealable_records_are_deleted_by_the_rules_of_retention(
    settings: TopicSettings, end: int
) -> None:
    assert retain_unsealed(UnsealedParts(0, 110, PARTS, 0, 40), settings, 1000) == end


def test_undecided_records_are_not_deleted_unsealed() -> None:
    """Use fault 2: it counts, as in Kafka, and stays until it is decided."""
    settings = _settings(retention_bytes=0)
    starts = [
        retain_unsealed(UnsealedParts(0, 110, PARTS, 0, end), settings, 1000) for end in (0, 24, 40)
    ]
    assert starts == [0, 20, 40]


def test_unsealed_records_are_looked_at_when_they_should_have_been_sealed_by_now() -> None:
    state = PartitionState(1, 0, 0, 0, 5, unsealed_bytes=50, oldest_ms=100)
    assert is_overdue(state, _settings(retention_ms=100), 201)
    assert not is_overdue(state, _settings(retention_ms=100), 200)
    assert is_overdue(state, _settings(retention_bytes=49), 0)
    assert not is_overdue(state, _settings(retention_bytes=50), 0)
    assert not is_overdue(state._replace(unsealed_bytes=0), _settings(retention_ms=1), 10**9)
