"""The store: commits persist, and rows go with their topic."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.store.rows import CommittedOffset, GroupChange, StoredGroup, StoredMember
from smq.store.store import Store
from tests.store.sql_work import rows_written, steps

DAY_MS = 86_400_000
TOPIC = Topic("flights", UUID(int=7), (1, 2), (0, 1), {"retention.ms": "1000"})
MEMBER = StoredMember(
    "c-1", "i-1", "c", "/10.0.0.1", 10_000, 60_000, b"\x00a", (("range", b"\xff"), ("rr", b""))
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


def reopened(store: Store, path: Path) -> Store:
    store.close()
    return Store.open(path)


def test_committed_rows_are_present_after_the_process_is_gone(store: Store, path: Path) -> None:
    store.add_topic(TOPIC, created_ms=5)
    store.commit()
    store.delete_topic(TOPIC.id)  # Never committed.
    other = reopened(store, path)
    assert other.manifest.topics() == [TOPIC]
    other.close()


def test_a_rollback_forgets_everything_since_the_commit(store: Store) -> None:
    store.add_topic(TOPIC, created_ms=5)
    store.rollback()
    assert store.manifest.topics() == []


def test_a_topic_takes_its_offsets_configs_and_segments_along(store: Store) -> None:
    store.add_topic(TOPIC, created_ms=5)
    store.commit_offsets("g", {1: CommittedOffset(10, -1, "", 1)})
    store.delete_topic(TOPIC.id)
    while store.deleted_topics.may_be_some:
        store.deleted_topics.forget_some()
    assert store.committed_offsets("g") == {}
    store.add_topic(TOPIC, created_ms=6)
    assert store.manifest.topics() == [TOPIC]


def test_many_offsets_replace_those_before(store: Store) -> None:
    numbers = tuple(range(1, 122))
    store.add_topic(Topic("t", UUID(int=9), numbers, tuple(0 for _ in numbers)), created_ms=5)
    store.commit_offsets("h", {7: CommittedOffset(1, -1, "", 1)})
    for offset, some in ((10, numbers), (11, numbers[20:])):
        told = CommittedOffset(offset, offset, "m", 2, None if offset == 10 else 3)
        store.commit_offsets("g", dict.fromkeys(some, told))
    store.commit_offsets("g", {})
    found = store.committed_offsets("g")
    assert [found[number].offset for number in numbers] == [10] * 20 + [11] * 101
    assert {each.expire_ms for each in found.values()} == {None, 3}
    assert store.committed_offsets("h") == {7: CommittedOffset(1, -1, "", 1)}


def test_numbers_are_given_once_also_across_restarts(store: Store, path: Path) -> None:
    assert store.allocate("partition_number", 3) == 1
    assert store.allocate("partition_number", 1) == 4
    assert store.allocate("producer_id", 1000) == 0
    store.commit()
    other = reopened(store, path)
    assert other.allocate("partition_number", 1) == 5
    assert other.allocate("producer_id", 1000) == 1000
    other.close()


def saved(*members: StoredMember, **fields: Any) -> GroupChange:
    """A group of which all these members are new or changed."""
    change = GroupChange("g", "consumer", 3, "range", "c-1", not members, members)
    return replace(change, **fields)


def test_a_group_comes_back_as_it_was_saved(store: Store, path: Path) -> None:
    second = replace(MEMBER, member_id="c-2", instance_id=None, place=7)
    store.save_group(saved(MEMBER, second), now_ms=1)
    store.commit()
    other = reopened(store, path)
    assert other.groups() == [StoredGroup("g", "consumer", 3, "range", "c-1", (MEMBER, second))]
    other.close()


def test_a_save_changes_what_was_kept_and_leaves_the_rest(store: Store) -> None:
    one, two, three = (replace(MEMBER, member_id=f"c-{i}", place=i) for i in range(3))
    store.save_group(saved(one, two, three), now_ms=1)
    other = replace(two, protocols=(("rr", b"new"),))
    moved = replace(three, assignment=b"less")
    change = saved(other, moved, gone=(0,), generation=4)
    store.save_group(change, now_ms=2)
    assert store.groups() == [StoredGroup("g", "consumer", 4, "range", "c-1", (other, moved))]
    empty = saved(gone=(1, 2), protocol_name=None, leader=None)
    store.save_group(empty, now_ms=3)
    assert store.groups() == [StoredGroup("g", "consumer", 3, None, None, ())]


def test_a_save_writes_the_rows_that_change_and_no_others(store: Store) -> None:
    members = [replace(MEMBER, member_id=f"c-{i}", place=i) for i in range(100)]
    store.save_group(saved(*members), now_ms=1)
    database = store.manifest._database
    assigned = replace(members[42], assignment=b"more")
    # The group and the member; the group and the member that has gone.
    assert rows_written(database, lambda: store.save_group(saved(assigned), now_ms=2)) == 2
    gone = saved(gone=(7,), is_empty=False)
    assert rows_written(database, lambda: store.save_group(gone, now_ms=3)) == 2


def test_deleting_a_group_deletes_its_offsets(store: Store) -> None:
    store.add_topic(TOPIC, created_ms=5)
    store.save_group(saved(), now_ms=1)
    store.commit_offsets("g", {1: CommittedOffset(10, 2, "note", 1)})
    store.delete_group("g")
    assert store.groups() == []
    assert store.groups_with_offsets() == []


def test_a_later_commit_wins(store: Store) -> None:
    store.add_topic(TOPIC, created_ms=5)
    store.commit_offsets("g", {1: CommittedOffset(10, 2, "note", 1)})
    store.commit_offsets("g", {1: CommittedOffset(9, -1, "", 2), 2: CommittedOffset(4, -1, "", 2)})
    assert store.committed_offsets("g") == {
        1: CommittedOffset(9, -1, "", 2),
        2: CommittedOffset(4, -1, "", 2),
    }
    assert store.groups_with_offsets() == ["g"]


@pytest.mark.parametrize(
    ("empty_since_ms", "expire_ms", "now_ms", "left"),
    [
        (None, None, 60 * DAY_MS - 1, 1),
        (None, None, 60 * DAY_MS, 0),
        (DAY_MS, None, 61 * DAY_MS - 1, 1),
        (DAY_MS, None, 61 * DAY_MS, 0),
        (DAY_MS, 5, 5, 0),
    ],
)
def test_offsets_expire_by_commit_emptiness_or_the_clients_own_word(
    store: Store, empty_since_ms: int | None, expire_ms: int | None, now_ms: int, left: int
) -> None:
    store.add_topic(TOPIC, created_ms=0)
    store.commit_offsets("g", {1: CommittedOffset(10, -1, "", 0, expire_ms)})
    if empty_since_ms is not None:
        store.save_group(saved(), now_ms=empty_since_ms)
    store.expire_offsets("g", now_ms, retention_ms=60 * DAY_MS, after=-1, rows_max=10)
    assert len(store.committed_offsets("g")) == left
    assert store.has_offsets("g") == bool(left)


def test_offsets_that_are_kept_do_not_expire(store: Store) -> None:
    store.add_topic(TOPIC, created_ms=0)
    store.commit_offsets("g", {number: CommittedOffset(1, -1, "", 0) for number in (1, 2)})
    looked_at = store.expire_offsets("g", 9, 5, after=-1, rows_max=10, kept={2})
    assert looked_at == [1, 2]
    assert store.committed_offsets("g").keys() == {2}


def test_offsets_expire_so_many_at_a_time(store: Store) -> None:
    numbers = tuple(range(1, 11))
    store.add_topic(replace(TOPIC, partition_numbers=numbers, logs=(0,) * 10), created_ms=0)
    store.commit_offsets("f", {number: CommittedOffset(1, -1, "", 0) for number in numbers})
    kept = {3, 10}
    store.commit_offsets(
        "g", {each: CommittedOffset(1, -1, "", 9 if each in kept else 0) for each in numbers}
    )
    looks, after = [], -1
    while looked_at := store.expire_offsets("g", 5, 5, after=after, rows_max=4):
        looks.append(looked_at)
        after = looked_at[-1]
    assert looks == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert store.committed_offsets("g").keys() == kept
    assert len(store.committed_offsets("f")) == 10


def test_some_of_a_groups_offsets_are_read_without_the_others(store: Store) -> None:
    numbers = tuple(range(1, 2001))
    store.add_topic(replace(TOPIC, partition_numbers=numbers, logs=(0,) * 2000), created_ms=0)
    store.commit_offsets("g", {number: CommittedOffset(number, -1, "", 0) for number in numbers})
    some = store.committed_offsets_of("g", [7, 1999, 5000])
    assert {number: each.offset for number, each in some.items()} == {7: 7, 1999: 1999}
    assert store.committed_offsets_of("g", numbers) == store.committed_offsets("g")
    assert store.committed_offsets_of("other", [7]) == store.committed_offsets_of("g", []) == {}
    database = store.manifest._database
    assert steps(database, lambda: store.committed_offsets_of("g", [7, 1999])) < 100


def test_a_step_of_expiry_costs_the_rows_it_looks_at(store: Store) -> None:
    numbers = tuple(range(1, 2001))
    store.add_topic(replace(TOPIC, partition_numbers=numbers, logs=(0,) * 2000), created_ms=0)
    store.commit_offsets("g", {number: CommittedOffset(1, -1, "", 0) for number in numbers})

    def step() -> None:
        assert len(store.expire_offsets("g", 0, 5, after=1000, rows_max=10)) == 10

    database = store.manifest._database
    assert steps(database, step) < 500
    assert steps(database, lambda: store.has_offsets("g")) < 50
