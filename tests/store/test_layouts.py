"""Since when topics have had how many partitions."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.store.database import Database
from smq.store.layouts import Layouts, StoredLayout, open_layouts
from smq.store.migrations import MIGRATIONS
from smq.store.store import Store
from tests.store.test_migrations import made_by

CLICKS = Topic("clicks", UUID(int=1), (1, 2), (0, 0))
MORE = replace(CLICKS, partition_numbers=(1, 2, 3), logs=(0, 0, 0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_each_number_of_partitions_is_a_layout_with_a_time_of_its_own(path: Path) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.add_partitions(MORE, 2, 5000)
    store.commit()
    store.close()
    layouts = open_layouts(path)
    assert layouts.of(CLICKS.id) == [StoredLayout(1000 * 10**6, 2), StoredLayout(5000 * 10**6, 3)]
    assert layouts.of(UUID(int=9)) == []
    layouts.close()


@pytest.mark.parametrize("now_ms", [1000, 10], ids=["the same time", "a clock that was set back"])
def test_a_later_layout_begins_later(path: Path, now_ms: int) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.add_partitions(MORE, 2, now_ms)
    assert store.layouts.of(CLICKS.id)[-1] == StoredLayout(1000 * 10**6 + 1, 3)
    store.close()


def test_layouts_go_with_their_topic(path: Path) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.delete_topic(CLICKS.id)
    store.commit()
    while store.deleted_topics.may_be_some:
        store.deleted_topics.forget_some()
        store.commit()
    assert store.layouts.of(CLICKS.id) == []
    store.close()


def test_a_topic_of_an_earlier_version_has_had_its_partitions_since_it_was_created(
    path: Path,
) -> None:
    earlier = next(at for at, step in enumerate(MIGRATIONS) if "TABLE layouts" in step)
    old = made_by(earlier, path)
    key = CLICKS.id.hex
    old.execute("INSERT INTO topics VALUES (?, 'kafka', 'clicks', 1000)", (key,))
    for number in (1, 2):
        old.execute(
            "INSERT INTO partitions (number, topic_id, partition, log) VALUES (?, ?, ?, 0)",
            (number, key, number - 1),
        )
    old.commit()
    old.close()
    database = Database.open(path)
    assert Layouts(database).of(CLICKS.id) == [StoredLayout(1000 * 10**6, 2)]
    database.close()
