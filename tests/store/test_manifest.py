"""The manifest: segments in order, committed all or none, with the payloads they name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from smq.coordinator.cleaning import Cleaning
from smq.coordinator.deadlines import ALWAYS_MS
from smq.model.catalog import Topic
from smq.model.errors import PreconditionFailed, StoreError
from smq.model.now import Now
from smq.model.segments import UNDECIDED, Segment
from smq.store.manifest import (
    IDS_MAX,
    REPLACED_KEEP_MS,
    SEALED_END_SQL,
    SEGMENTS_SQL,
    WritableManifest,
    open_manifest,
    walk,
)
from smq.store.store import Store
from tests.store.sql_work import plan, statements, steps

NOW = Now(1, 1)
TOPIC = Topic("flights", UUID(int=7), (1, 2), (0, 1))
FIRST = Segment(1, 0, 100, "parquet", "topics/kafka/flights/a", 10, 99, 100, -1, 2**62, 0, 5)
SECOND = replace(FIRST, base_offset=100, end_offset=150, path="topics/kafka/flights/b", kind="raw")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    store.add_topic(TOPIC, created_ms=0)
    yield store
    store.close()


@pytest.fixture
def manifest(store: Store) -> WritableManifest:
    return store.manifest


def name_and_commit(manifest: WritableManifest, named: Mapping[Segment, Sequence[str]]) -> None:
    for segment, ids in named.items():
        manifest.name_payloads(segment.path, ids)
    manifest.commit_segments([*named])


def cleaned(store: Store) -> None:
    """Forget all that may be forgotten."""
    cleaning = Cleaning(store)
    while cleaning.next_wake_ms() == ALWAYS_MS:
        cleaning.tick(NOW)


def test_a_topic_is_there_until_it_is_deleted(store: Store) -> None:
    manifest = store.manifest
    assert manifest.has_topic("kafka", "flights")
    assert not manifest.has_topic("other", "flights")
    store.delete_topic(TOPIC.id)
    assert not manifest.has_topic("kafka", "flights")


@pytest.mark.parametrize(
    ("namespace", "name"), [("kafka", "../../x"), ("..", "x"), ("kafka", "/x"), ("kafka", "")]
)
def test_a_crafted_name_of_a_topic_is_refused(store: Store, namespace: str, name: str) -> None:
    """Door fault 2: names become paths."""
    topic = Topic(name, UUID(int=9), (90,), (0,), {}, namespace)
    store.add_topic(topic, created_ms=0)
    with pytest.raises(StoreError, match="is no topic's name"):
        store.manifest.topics()


def test_segments_come_in_order_from_an_offset(manifest: WritableManifest) -> None:
    assert manifest.commit_segments([SECOND, FIRST]) == [SECOND, FIRST]
    assert manifest.segments(1) == [FIRST, SECOND]
    assert manifest.segments(1, from_offset=99) == [FIRST, SECOND]
    assert manifest.segments(1, from_offset=100) == [SECOND]
    assert manifest.segments(2) == []


def test_committing_again_changes_nothing_and_names_the_file_that_counts(
    manifest: WritableManifest,
) -> None:
    manifest.commit_segments([FIRST])
    again = replace(FIRST, path="topics/kafka/flights/second-attempt", attempt=1)
    assert manifest.commit_segments([again]) == [FIRST]
    assert manifest.segments(1) == [FIRST]


@pytest.mark.parametrize(("base", "end"), [(0, 99), (0, 101), (99, 200), (50, 60), (10, 300)])
def test_an_overlap_is_refused_with_everything_that_came_along(
    manifest: WritableManifest, base: int, end: int
) -> None:
    manifest.commit_segments([FIRST])
    with pytest.raises(PreconditionFailed, match="overlaps topics/kafka/flights/a"):
        manifest.commit_segments(
            [replace(SECOND, partition_number=2), replace(FIRST, base_offset=base, end_offset=end)]
        )
    assert manifest.segments(1) == [FIRST]
    assert manifest.segments(2) == []


def test_payloads_are_named_as_long_as_a_segment_names_them(store: Store) -> None:
    manifest = store.manifest
    name_and_commit(manifest, {FIRST: ["a", "b", "a"], SECOND: ["b", "c"]})
    assert manifest.named_payloads(["a", "b", "c", "d"]) == {"a", "b", "c"}
    manifest.delete_segments([FIRST.path])
    cleaned(store)
    assert manifest.named_payloads(["a", "b", "c"]) == {"b", "c"}
    store.delete_topic(TOPIC.id)
    cleaned(store)
    assert manifest.named_payloads(["a", "b", "c"]) == set()


def test_committing_again_names_no_other_payloads(store: Store) -> None:
    manifest = store.manifest
    name_and_commit(manifest, {FIRST: ["a"]})
    name_and_commit(manifest, {replace(FIRST, attempt=1, path="another"): ["b"]})
    cleaned(store)
    assert manifest.named_payloads(["a", "b"]) == {"a"}


def test_very_many_payloads_may_be_asked_for(manifest: WritableManifest) -> None:
    named = [str(number) for number in range(2 * IDS_MAX + 1)]
    name_and_commit(manifest, {FIRST: named})
    assert manifest.named_payloads([*named, "x"]) == set(named)
    assert manifest.named_payloads([]) == set()


def test_a_segment_of_a_deleted_topic_is_left_out(store: Store) -> None:
    store.delete_topic(TOPIC.id)
    assert store.manifest.commit_segments([FIRST]) == []
    assert store.manifest.segments(1) == []


def test_deleting_segments_leaves_the_others(manifest: WritableManifest) -> None:
    manifest.commit_segments([FIRST, SECOND])
    manifest.delete_segments([FIRST.path, "topics/none"])
    assert manifest.segments(1) == [SECOND]


def test_an_order_to_delete_that_comes_late_finds_only_its_own_segment(
    manifest: WritableManifest,
) -> None:
    """Data fault 8: by now another segment may begin at the same offset."""
    manifest.commit_segments([FIRST, SECOND])
    manifest.replace_segments([FIRST, SECOND], MERGED, now_ms=1000)
    manifest.delete_segments([FIRST.path])
    assert manifest.segments(1) == [MERGED]


def test_no_line_may_name_a_condemned_file(manifest: WritableManifest) -> None:
    """Data fault 8: its file is gone, or about to go."""
    manifest.commit_segments([FIRST])
    late = replace(THIRD, base_offset=100)
    files = [FIRST.path, late.path, MERGED.path]
    assert manifest.condemn_files(files) == [late.path, MERGED.path]
    assert manifest.condemn_files(files) == [late.path, MERGED.path], "a sweep was killed"
    with pytest.raises(PreconditionFailed, match="its line comes too late"):
        manifest.commit_segments([late])
    with pytest.raises(PreconditionFailed, match="its line comes too late"):
        manifest.replace_segments([FIRST], replace(FIRST, path=MERGED.path), now_ms=1000)
    assert manifest.segments(1) == [FIRST]
    assert manifest.commit_segments([SECOND]) == [SECOND]


def test_the_newest_condemned_files_are_remembered(
    manifest: WritableManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smq.store.manifest.CONDEMNED_MAX", 2)
    for path in ("a", "b", "a", "c"):
        manifest.condemn_files([path])
    rows = manifest._database.rows("SELECT path FROM condemned_files ORDER BY number")
    assert rows == [("a",), ("c",)]


def test_the_log_start_only_rises(manifest: WritableManifest) -> None:
    assert manifest.log_start(1) == 0
    manifest.set_log_start(1, 50)
    manifest.set_log_start(1, 40)
    assert manifest.log_start(1) == 50
    assert manifest.log_start(2) == 0
    assert manifest.log_start(999) == 0


def test_a_reader_in_another_process_sees_what_was_committed(store: Store, tmp_path: Path) -> None:
    store.manifest.commit_segments([FIRST])
    store.commit()
    store.manifest.commit_segments([SECOND])
    with open_manifest(tmp_path / "store.sqlite") as reader:
        assert reader.topics() == [TOPIC]
        assert reader.segments(1) == [FIRST]
        store.commit()
        assert reader.segments(1) == [FIRST, SECOND]


def test_the_manifest_can_be_read_when_the_broker_is_stopped(store: Store, tmp_path: Path) -> None:
    store.manifest.commit_segments([FIRST])
    store.commit()
    store.close()
    with open_manifest(tmp_path / "store.sqlite") as reader:
        assert reader.segments(1) == [FIRST]


# What a question costs: it grows with what it finds, not with what there is.


def line(i: int, number: int = 1, **fields: Any) -> Segment:
    made = replace(
        FIRST,
        partition_number=number,
        base_offset=10 * i,
        end_offset=10 * i + 10,
        path=f"topics/{number}/{i}",
        max_timestamp_ms=i,
    )
    return replace(made, **fields)


@pytest.fixture
def many(manifest: WritableManifest) -> WritableManifest:
    """A partition with 2,000 segments beside one with a few."""
    manifest.commit_segments([line(i) for i in range(2000)])
    manifest.commit_segments([line(i, 2) for i in range(3)])
    return manifest


def test_the_first_segments_from_an_offset_are_found_wherever_it_lies(
    many: WritableManifest,
) -> None:
    for offset, bases in [
        (0, [0, 10]),
        (9, [0, 10]),
        (10_001, [10_000, 10_010]),
        (19_999, [19_990]),
    ]:
        assert [each.base_offset for each in many.segments(1, offset, count_max=2)] == bases
    assert many.segments(1, 20_000) == []
    assert len(many.segments(1)) == 2000
    assert many.segments(1, 0, newest_ms=1998) == [line(1998), line(1999)]


def test_offsets_that_no_segment_has_lead_to_the_next_one(manifest: WritableManifest) -> None:
    manifest.commit_segments([line(5), line(9)])
    for offset, bases in [(0, [50, 90]), (55, [50, 90]), (60, [90]), (89, [90]), (100, [])]:
        assert [each.base_offset for each in manifest.segments(1, offset)] == bases


def test_a_question_for_one_segment_looks_at_one_however_many_there_are(
    many: WritableManifest,
) -> None:
    database = many._database
    for ask in (
        lambda: many.segments(1, 10_005, count_max=1),
        lambda: many.segments(1, 19_995, count_max=1),
        lambda: many.sealed_end(1),
        lambda: many.named_files(["topics/1/1000"]),
    ):
        assert steps(database, ask) < 120


def test_questions_go_by_an_index(many: WritableManifest) -> None:
    for sql, parameters in (
        (SEGMENTS_SQL, (1, 5, 0, 1)),
        (SEALED_END_SQL, (1,)),
        ("SELECT path FROM segments WHERE path IN (?, ?)", ("a", "b")),
        ("SELECT DISTINCT id FROM payload_names WHERE id IN (?, ?)", ("a", "b")),
    ):
        how = plan(many._database, sql, parameters)
        assert "SEARCH" in how
        assert "SCAN segments" not in how
        assert "SCAN payloads" not in how
        assert "TEMP B-TREE FOR ORDER BY" not in how


def test_committing_the_next_segment_costs_the_same_at_any_length(many: WritableManifest) -> None:
    def cost(segment: Segment) -> int:
        return steps(many._database, lambda: many.commit_segments([segment]))

    assert cost(line(2000)) < 1.2 * cost(line(3, 2)) + 100


def test_a_walk_asks_for_pages_as_they_are_wanted(many: WritableManifest) -> None:
    def read(count: int) -> list[Segment]:
        return list(islice(walk(many, 1, 5_000, page=10), count))

    assert read(25) == [line(i) for i in range(500, 525)]
    assert len(statements(many._database, lambda: read(25))) == 3
    assert list(walk(many, 1, 0)) == [line(i) for i in range(2000)]
    assert list(walk(many, 1, 0, newest_ms=1500, page=100)) == [line(i) for i in range(1500, 2000)]
    assert list(walk(many, 9)) == []


def test_named_files_returns_the_files_that_are_segments(many: WritableManifest) -> None:
    assert many.named_files(["topics/2/1", "topics/1/7", "x"]) == {"topics/2/1", "topics/1/7"}
    assert many.named_files([]) == set()
    assert len(many.named_files([f"topics/1/{i}" for i in range(1999, -1, -1)])) == 2000
    many.delete_segments(["topics/1/7"])
    assert many.named_files(["topics/1/7"]) == set()


def test_sizes_and_the_end_of_what_is_sealed(many: WritableManifest) -> None:
    assert (many.stored(1), many.stored(2), many.stored(3)) == ((2000, 20_000), (3, 30), (0, 0))
    assert (many.sealed_bytes(2), many.sealed_end(2), many.sealed_end(3)) == (30, 30, 0)


def test_records_from_an_offset_on_are_those_that_compaction_has_left(
    manifest: WritableManifest,
) -> None:
    compacted = replace(FIRST, record_count=30, min_timestamp_ms=500)
    whole = replace(SECOND, record_count=50, min_timestamp_ms=400)
    name_and_commit(manifest, {compacted: [], whole: []})
    assert manifest.records(1, 0) == (80, 400, 150)
    assert manifest.records(1, 20) == (80, 400, 150)  # At most: which of them are below is unknown.
    assert manifest.records(1, 90) == (60, 400, 150)
    assert manifest.records(1, 130) == (20, 400, 150)
    assert manifest.records(1, 150) == (0, None, 150)
    assert manifest.records(2, 7) == (0, None, 7)


MERGED = replace(FIRST, end_offset=150, path="topics/kafka/flights/c", record_count=150)
THIRD = replace(FIRST, base_offset=150, end_offset=160, path="topics/kafka/flights/d")


def test_one_segment_takes_the_place_of_several_with_their_payloads(store: Store) -> None:
    manifest = store.manifest
    name_and_commit(manifest, {FIRST: ["p", "q"], SECOND: ["q", "r"], THIRD: ["s"]})
    for some in manifest.payloads_of([FIRST.path, SECOND.path]):
        manifest.name_payloads(MERGED.path, some)
    for _ in range(2):  # Repeating it is harmless.
        assert manifest.replace_segments([FIRST, SECOND], MERGED, now_ms=1000)
        assert manifest.segments(1) == [MERGED, THIRD]
        cleaned(store)
        assert manifest.named_payloads(["p", "q", "r", "s"]) == {"p", "q", "r", "s"}
    paths = [FIRST.path, SECOND.path, MERGED.path, THIRD.path]
    assert manifest.named_files(paths) == {MERGED.path, THIRD.path}
    assert manifest.replaced_files(paths, 1000) == {FIRST.path, SECOND.path}
    assert manifest.replaced_files(paths, 1001) == set()
    manifest.delete_segments([MERGED.path])
    cleaned(store)
    assert manifest.named_payloads(["p", "q", "r", "s"]) == {"s"}


def test_missing_segments_are_not_replaced(manifest: WritableManifest) -> None:
    name_and_commit(manifest, {FIRST: ["p"], SECOND: ["q"]})
    another = replace(SECOND, path="topics/kafka/flights/e")
    for old in ([FIRST, another], [FIRST, replace(SECOND, base_offset=120)]):
        with pytest.raises(PreconditionFailed, match="no longer in the manifest"):
            manifest.replace_segments(old, MERGED, now_ms=1000)
    assert manifest.segments(1) == [FIRST, SECOND]
    assert manifest.replaced_files([FIRST.path, SECOND.path], 0) == set()
    assert manifest.named_payloads(["p", "q"]) == {"p", "q"}


def test_segments_of_a_deleted_topic_are_not_replaced(store: Store) -> None:
    store.manifest.commit_segments([FIRST, SECOND])
    store.delete_topic(TOPIC.id)
    assert not store.manifest.replace_segments([FIRST, SECOND], MERGED, now_ms=1000)


def test_replaced_files_are_forgotten_some_time(manifest: WritableManifest) -> None:
    manifest.commit_segments([FIRST, SECOND, THIRD])
    manifest.replace_segments([FIRST, SECOND], MERGED, now_ms=1000)
    whole = replace(MERGED, end_offset=160, path="topics/kafka/flights/f")
    manifest.replace_segments([MERGED, THIRD], whole, now_ms=1001 + REPLACED_KEEP_MS)
    assert manifest.replaced_files([FIRST.path, MERGED.path], 0) == {MERGED.path}


UNDECIDED_ONE = replace(FIRST, base_offset=100, end_offset=150, kind=UNDECIDED, path="u1")
UNDECIDED_TWO = replace(UNDECIDED_ONE, base_offset=150, end_offset=200, path="u2")


def test_undecided_segments_lie_beside_the_others_until_these_have_their_offsets(
    manifest: WritableManifest,
) -> None:
    """Use fault 2."""
    manifest.commit_segments([FIRST])
    for each in (UNDECIDED_ONE, UNDECIDED_TWO, UNDECIDED_ONE):
        assert manifest.commit_undecided(each)
    assert manifest.segments(1) == [FIRST]
    assert manifest.sealed_end(1) == 100
    assert manifest.undecided(1) == [UNDECIDED_ONE, UNDECIDED_TWO]
    assert manifest.undecided(1, 150, 1) == [UNDECIDED_TWO]
    size = FIRST.bytes
    sizes = [manifest.sealed_bytes(1, *ends) for ends in ((100,), (100, 199), (100, 200))]
    assert sizes == [size, 2 * size, 3 * size]
    assert manifest.sealed_bytes(1, 101, 200) == 2 * size, "a part of the first is sealed again"
    stored = [manifest.stored(1, end) for end in (100, 101, 151)]
    assert stored == [(1, size), (2, 2 * size), (3, 3 * size)]
    assert manifest.condemn_files(["u1", "u3"]) == ["u3"]
    manifest.commit_segments([replace(FIRST, base_offset=100, end_offset=160, path="new")])
    manifest.drop_decided(1, 7)
    assert manifest.undecided(1) == [UNDECIDED_TWO]
    assert manifest.replaced_files(["u1", "u2"], 7) == {"u1"}


@pytest.mark.parametrize("base", [50, 99, 120])
def test_an_undecided_segment_takes_no_offsets_of_others(
    manifest: WritableManifest, base: int
) -> None:
    """Use fault 2."""
    manifest.commit_segments([FIRST])
    manifest.commit_undecided(UNDECIDED_ONE)
    with pytest.raises(PreconditionFailed, match="others hold its offsets"):
        manifest.commit_undecided(replace(UNDECIDED_TWO, base_offset=base, path="late"))


def test_a_condemned_undecided_segment_gets_no_line(
    manifest: WritableManifest, store: Store
) -> None:
    """Use fault 2. Neither does one of a deleted topic, whose others go with it."""
    manifest.condemn_files(["u1"])
    with pytest.raises(PreconditionFailed, match="was swept"):
        manifest.commit_undecided(UNDECIDED_ONE)
    assert manifest.commit_undecided(UNDECIDED_TWO)
    store.delete_topic(TOPIC.id)
    assert not manifest.commit_undecided(replace(UNDECIDED_TWO, base_offset=200))
    cleaned(store)
    assert manifest.undecided(1) == []
