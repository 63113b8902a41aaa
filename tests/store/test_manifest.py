"""The manifest: segments in order, committed all or none, with the payloads they name."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.errors import PreconditionFailed
from smq.store.manifest import IDS_MAX, WritableManifest, open_manifest
from smq.store.rows import Segment
from smq.store.store import Store

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


def test_a_topic_is_there_until_it_is_deleted(store: Store) -> None:
    manifest = store.manifest
    assert manifest.has_topic("kafka", "flights")
    assert not manifest.has_topic("other", "flights")
    store.delete_topic(TOPIC.id)
    assert not manifest.has_topic("kafka", "flights")


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
    manifest.commit_segments([FIRST, SECOND], [["a", "b", "a"], ["b", "c"]])
    assert manifest.named_payloads(["a", "b", "c", "d"]) == {"a", "b", "c"}
    manifest.delete_segments(1, [FIRST.base_offset])
    assert manifest.named_payloads(["a", "b", "c"]) == {"b", "c"}
    store.delete_topic(TOPIC.id)
    assert manifest.named_payloads(["a", "b", "c"]) == set()


def test_committing_again_names_no_other_payloads(manifest: WritableManifest) -> None:
    manifest.commit_segments([FIRST], [["a"]])
    manifest.commit_segments([replace(FIRST, attempt=1)], [["b"]])
    assert manifest.named_payloads(["a", "b"]) == {"a"}


def test_very_many_payloads_may_be_asked_for(manifest: WritableManifest) -> None:
    named = [str(number) for number in range(2 * IDS_MAX + 1)]
    manifest.commit_segments([FIRST], [named])
    assert manifest.named_payloads([*named, "x"]) == set(named)
    assert manifest.named_payloads([]) == set()


def test_a_segment_of_a_deleted_topic_is_left_out(store: Store) -> None:
    store.delete_topic(TOPIC.id)
    assert store.manifest.commit_segments([FIRST]) == []
    assert store.manifest.segments(1) == []


def test_deleting_segments_leaves_the_others(manifest: WritableManifest) -> None:
    manifest.commit_segments([FIRST, SECOND])
    manifest.delete_segments(1, [0, 77])
    assert manifest.segments(1) == [SECOND]


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
