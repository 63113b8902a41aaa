"""The leaderships of partitions in the store."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Leadership, Moved, Topic
from smq.store.copying import log_count_of
from smq.store.database import Database
from smq.store.migrations import MIGRATIONS
from smq.store.store import Store
from tests.store.test_migrations import made_by

CLICKS = Topic("clicks", UUID(int=1), (1, 2), (0, 0))
MOVING = Moved(7, 3, 1, (Leadership(0, 0, 0, None),))
THERE = Moved(9, None, 1, (Leadership(7, 0, 0, 100), Leadership(9, 3, 100, None)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def test_a_move_is_there_after_a_restart(path: Path) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.leaderships.save(2, MOVING)
    store.commit()
    store.close()
    store = Store.open(path)
    assert store.manifest.topics() == [replace(CLICKS, moves={1: MOVING})]
    store.leaderships.save(2, THERE)
    assert store.manifest.topics() == [replace(CLICKS, logs=(0, 3), moves={1: THERE})]
    store.rollback()
    assert store.manifest.topics() == [replace(CLICKS, moves={1: MOVING})]
    store.close()


def test_a_target_and_a_former_log_need_a_log(path: Path) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.leaderships.save(2, MOVING)
    store.commit()
    assert log_count_of(path) == 4
    store.leaderships.save(2, THERE)
    ended = (Leadership(7, 0, 0, 100), Leadership(9, 3, 100, 100))
    store.leaderships.save(2, Moved(12, None, 2, (*ended, Leadership(12, 0, 100, None))))
    store.commit()
    assert log_count_of(path) == 4
    store.close()


def test_leaderships_go_with_their_topic(path: Path) -> None:
    store = Store.open(path)
    store.add_topic(CLICKS, 1000)
    store.leaderships.save(2, THERE)
    store.delete_topic(CLICKS.id)
    store.commit()
    while store.deleted_topics.may_be_some:
        store.deleted_topics.forget_some()
        store.commit()
    store.close()
    database = Database.open(path)
    assert database.rows("SELECT * FROM leaderships") == []
    database.close()


def test_partitions_of_an_earlier_version_have_never_moved(path: Path) -> None:
    before = next(i for i, step in enumerate(MIGRATIONS) if "TABLE leaderships" in step)
    old = made_by(before, path)
    old.execute("INSERT INTO topics VALUES (?, 'kafka', 'clicks', 0)", (CLICKS.id.hex,))
    for number, index in ((1, 0), (2, 1)):
        old.execute("INSERT INTO partitions VALUES (?, ?, ?, 0, 0)", (number, CLICKS.id.hex, index))
    old.commit()
    old.close()
    store = Store.open(path)
    assert store.manifest.topics() == [CLICKS]
    store.close()
