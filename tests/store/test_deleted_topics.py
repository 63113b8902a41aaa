"""Deleted topics: gone at once, forgotten in portions, finished after a kill."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.segments import Segment
from smq.store.copying import partition_numbers, topics_of
from smq.store.deleted_topics import ROWS_A_STEP
from smq.store.overview import Overview
from smq.store.rows import CommittedOffset
from smq.store.store import Store
from tests.store.sql_work import rows_written

PARTITIONS, GROUPS, SEGMENTS = 120, 3, 4
WIDE = Topic("wide", UUID(int=7), tuple(range(1, PARTITIONS + 1)), (0,) * PARTITIONS, {"a": "b"})
OTHER = Topic("other", UUID(int=8), (500,), (0,))
TABLES = ("configs", "committed_offsets", "segments", "partitions", "topics", "payload_names")
ROWS_MAX = 4 * ROWS_A_STEP  # Rows, those of indices, partitions, and files that are marked.


def line(number: int, base: int) -> Segment:
    path = f"{number}-{base}"
    return Segment(number, base, base + 1, "raw", path, 1, 1, 1, 1, 1, 0, 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    for topic in (WIDE, OTHER):
        store.add_topic(topic, created_ms=0)
        for group in range(GROUPS):
            offsets = dict.fromkeys(topic.partition_numbers, CommittedOffset(1, -1, "", 0))
            store.commit_offsets(f"g{group}", offsets)
        for number in topic.partition_numbers:
            store.manifest.name_payloads(f"{number}-0", [f"p{number}"])
            store.manifest.commit_segments([line(number, base) for base in range(SEGMENTS)])
    store.commit()
    yield store
    store.close()


def counts(store: Store) -> dict[str, int]:
    database = store.manifest._database
    return {name: database.rows(f"SELECT count(*) FROM {name}")[0][0] for name in TABLES}


def forget(store: Store) -> None:
    while store.deleted_topics.may_be_some:
        store.deleted_topics.forget_some()
    while store.manifest.names.may_have_gone:
        store.manifest.names.forget_some()


def test_a_deletion_is_one_row_and_the_rest_goes_in_portions(store: Store, tmp_path: Path) -> None:
    """data fault 13: a million names of payloads, or as many offsets, were deleted in one step of
    more than a second."""
    database = store.manifest._database
    assert rows_written(database, lambda: store.delete_topic(WIDE.id)) <= 5
    assert [each.name for each in store.manifest.topics()] == ["other"]
    assert not store.manifest.has_topic("kafka", "wide")
    assert store.manifest.commit_segments([line(1, 99)]) == []
    store.commit()
    assert topics_of(tmp_path / "store.sqlite") == {("kafka", "other")}
    assert partition_numbers(tmp_path / "store.sqlite") == {500}
    assert Overview(database).references("p1") == []
    steps = 0
    while store.deleted_topics.may_be_some:
        assert rows_written(database, store.deleted_topics.forget_some) <= ROWS_MAX
        steps += 1
    assert steps > PARTITIONS * (GROUPS + SEGMENTS) // ROWS_A_STEP
    forget(store)
    assert counts(store) == {
        "configs": 0,
        "committed_offsets": GROUPS,
        "segments": SEGMENTS,
        "partitions": 1,
        "topics": 1,
        "payload_names": 1,
    }


def test_a_half_forgotten_topic_is_finished_after_a_restart(store: Store, tmp_path: Path) -> None:
    """data fault 13: a kill between two portions, and one before a portion is committed."""
    store.delete_topic(WIDE.id)
    store.deleted_topics.forget_some()
    store.commit()
    store.deleted_topics.forget_some()
    store.close()
    store = Store.open(tmp_path / "store.sqlite")
    assert counts(store)["partitions"] == PARTITIONS + 1
    assert [each.name for each in store.manifest.topics()] == ["other"]
    forget(store)
    assert counts(store)["partitions"] == 1
    assert counts(store)["committed_offsets"] == GROUPS
    store.close()


def test_a_topic_of_the_same_name_is_made_while_the_other_is_forgotten(store: Store) -> None:
    store.delete_topic(WIDE.id)
    again = Topic("wide", UUID(int=9), (600,), (0,))
    store.add_topic(again, created_ms=0)
    store.deleted_topics.forget_some()
    store.delete_topic(again.id)
    third = Topic("wide", UUID(int=10), (601,), (0,))
    store.add_topic(third, created_ms=0)
    forget(store)
    assert store.manifest.topics() == [OTHER, third]


def test_a_rollback_looks_for_deleted_topics_again(store: Store) -> None:
    store.delete_topic(OTHER.id)
    store.commit()
    forget(store)
    store.rollback()
    assert store.deleted_topics.may_be_some
    forget(store)
    assert [each.name for each in store.manifest.topics()] == ["wide"]
