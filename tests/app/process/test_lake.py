"""How far tables are behind their topics."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from smq.app.process.lake import table_facts
from smq.front.metrics.facts import TableFacts
from smq.model.catalog import Topic
from smq.model.segments import Segment
from smq.sealer.lake.state import TableState, write_state
from smq.store.store import Store

NOW_MS = 1_000_000
ORDERS = Topic("orders", UUID(int=1), (1,), (0,), {"smq.table": "delta"}, "kafka")
STATE = TableState(
    namespace="kafka", topic="orders", format="delta", topic_id=UUID(int=1).hex, files=1,
    location="there", ends={"0": 10}, raw_records=2, synced_ms=5,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    store.add_topic(ORDERS, 0)
    for base in (0, 10, 20):
        path = f"topics/kafka/orders/partition=0/{base}"
        line = Segment(1, base, base + 10, "parquet", path, 1, 0, 10, 0, 0, 1, NOW_MS - 5000 + base)
        store.manifest.commit_segments([line])
    yield store
    store.close()


def facts(directory: Path, store: Store) -> list[TableFacts]:
    return [*table_facts(directory, store.manifest, [ORDERS], NOW_MS)]


def test_a_table_that_was_never_published_lacks_all_that_is_sealed(
    tmp_path: Path, store: Store
) -> None:
    [table] = facts(tmp_path, store)
    assert (table.topic, table.format, table.records_behind) == ("orders", "delta", 30)
    assert (table.behind_s, table.synced_ms) == (5.0, 0)


def test_a_table_lacks_what_is_behind_its_end(tmp_path: Path, store: Store) -> None:
    write_state(tmp_path, STATE)
    [table] = facts(tmp_path, store)
    assert table == TableFacts("orders", "delta", "there", 1, 20, 4.99, 2, 5)
    store.manifest.set_log_start(1, 30)
    [table] = facts(tmp_path, store)
    assert (table.records_behind, table.behind_s) == (0, 0.0)


def test_a_table_of_a_topic_that_is_gone_says_so(tmp_path: Path, store: Store) -> None:
    write_state(tmp_path, STATE)
    [table] = table_facts(tmp_path, store.manifest, [], NOW_MS)
    assert "it will be dropped" in table.error
