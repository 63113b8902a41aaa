"""Topics as any process reads them from the store."""

from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.model.errors import StoreError
from smq.store.database import Database
from smq.store.store import Store
from smq.store.stored_topics import stored_topics
from tests.store.test_leaderships import THERE

CLICKS = Topic("clicks", UUID(int=1), (1, 2), (0, 3), {"retention.ms": "5"}, moves={1: THERE})
VIEWS = Topic("views", UUID(int=2), (3,), (1,))


def test_topics_come_in_order_with_all_that_they_have(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    for topic in (VIEWS, CLICKS):
        store.add_topic(topic, 1000)
    store.leaderships.save(2, THERE)
    store.commit()
    store.close()
    database = Database.open_read_only(path)
    assert stored_topics(database) == [CLICKS, VIEWS]
    database.close()


def test_a_name_that_no_topic_has_raises_store_error(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "store.sqlite")
    database.change("INSERT INTO topics VALUES (?, 'kafka', '../t', 0)", (CLICKS.id.hex,))
    with pytest.raises(StoreError, match=r"'\.\./t' is no topic's name"):
        stored_topics(database)
    database.close()
