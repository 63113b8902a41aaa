"""A copy of the store is of one moment, whatever its owner does meanwhile."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.coordinator.transactions.decisions import created, fenced
from smq.coordinator.transactions.states import DECIDED, TransactionState
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.errors import StoreError
from smq.store.copying import (
    StoreCopy,
    check_store,
    keep_topics,
    partition_numbers,
    renew,
    segment_paths,
    topics_of,
)
from smq.store.store import Store


def store_with(path: Path, *names: str) -> Store:
    store = Store.open(path)
    for number, name in enumerate(names, start=1):
        store.add_topic(Topic(name, UUID(int=number), (number,), (0,), {"a": "b"}), 7)
    store.commit()
    return store


def test_the_copy_is_of_the_moment_when_it_was_held(tmp_path: Path) -> None:
    store = store_with(tmp_path / "a", "t")
    with StoreCopy(tmp_path / "a") as copy:
        committed = threading.Event()

        def commit() -> None:
            later = Store.open(tmp_path / "a")
            later.add_topic(Topic("later", UUID(int=9), (9,), (0,), {}), 7)
            later.commit()
            committed.set()
            later.close()

        with copy.held():
            thread = threading.Thread(target=commit)
            thread.start()
            assert not committed.wait(0.05)
        thread.join()
        assert committed.is_set()
        copy.write(tmp_path / "b")
        with copy.held():
            copy.write(tmp_path / "c")
    assert segment_paths(tmp_path / "b") == set()
    store.close()
    check_store(tmp_path / "b")
    assert topics_of(tmp_path / "b") == {(NAMESPACE_DEFAULT, "t")}
    assert partition_numbers(tmp_path / "c") == {1, 9}


@pytest.mark.slow
def test_the_owners_log_is_used_again_once_the_copy_is_written(tmp_path: Path) -> None:
    """Data fault 25: it grew by 157 MiB while a snapshot copied everything else."""
    store = store_with(tmp_path / "a", "t")
    log = tmp_path / "a-wal"

    def commit(count: int) -> int:
        for number in range(count):
            store.set_configs(Topic("t", UUID(int=1), (1,), (0,), {"a": str(number)}))
            store.commit()
        return log.stat().st_size

    with StoreCopy(tmp_path / "a") as copy:
        with copy.held():
            pass
        copy.write(tmp_path / "b")
        usual = commit(1000)
        assert commit(2000) <= 1.5 * usual
    store.close()
    check_store(tmp_path / "b")


def test_other_topics_are_forgotten_and_counters_go_on_higher(tmp_path: Path) -> None:
    store_with(tmp_path / "a", "t", "secret").close()
    keep_topics(tmp_path / "a", {(NAMESPACE_DEFAULT, "t")})
    renew(tmp_path / "a", {"producer_id": 1000})
    assert b"secret" not in (tmp_path / "a").read_bytes()
    store = Store.open(tmp_path / "a")
    assert [topic.name for topic in store.manifest.topics()] == ["t"]
    assert store.allocate("producer_id", 1) == 1000
    store.close()


def test_a_transactional_id_of_a_copy_has_another_producer(tmp_path: Path) -> None:
    """Data fault 24, its kind: two restores gave an id the same producer, and took each other's
    records for its own; what was open at the cut could be committed in part."""
    store = store_with(tmp_path / "a", "t")
    store.allocate("producer_id", 20)
    states = "Empty", "CompleteCommit", "Ongoing", "PrepareCommit", "PrepareAbort"
    before = {}
    for number, state in enumerate(states, start=3):
        txn = created(state, number, 60_000, 5)
        txn = replace(txn, state=state, epoch=number, last_epoch=number - 1, version=1)
        if state in {"Ongoing", *DECIDED}:
            txn = replace(txn, partitions=frozenset({1}), next_producer_id=17)
        before[state] = txn
        store.transactions.save(txn, None)
    store.commit()
    store.close()
    renew(tmp_path / "a", {"producer_id": 1000})
    store = Store.open(tmp_path / "a")
    after = {each.transactional_id: each for each in store.transactions.all()}
    assert store.allocate("producer_id", 1) == 1025
    store.close()
    fresh = set[int]()
    for state in ("Empty", "CompleteCommit"):
        txn = after[state]
        assert txn == replace(
            created(state, txn.producer_id, 60_000, 5), version=1, state=TransactionState.EMPTY
        )
        fresh.add(txn.producer_id)
    for state in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        expected = before[state]
        if state == "Ongoing":
            expected = fenced(expected, expected.updated_ms)
        next_id = after[state].next_producer_id
        assert after[state] == replace(expected, next_producer_id=next_id)
        fresh.add(next_id)
    assert fresh == set(range(1020, 1025))


def counters(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as store:
        return dict(store.execute("SELECT name, next FROM counters").fetchall())


def set_counter(path: Path, name: str, value: int) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE counters SET next = ? WHERE name = ?", (value, name))
        store.commit()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer_id", 2**62 - 1),
        ("arrival", 2**62 - 1),
        ("coordinator_epoch", 2**31 - 1),
        ("coordinator_epoch", 2**31 - 10**8 - 5),  # What is added takes the room.
        ("partition_number", 2**31 - 1),
    ],
)
def test_a_store_whose_counter_has_no_room_left_is_not_renewed(
    tmp_path: Path, name: str, value: int
) -> None:
    """Its broker gave out the last numbers, and then each start refused it."""
    store_with(tmp_path / "a", "t").close()
    set_counter(tmp_path / "a", name, value)
    check_store(tmp_path / "a")
    before = counters(tmp_path / "a")
    with pytest.raises(StoreError, match=f"its counter '{name}' has no room left"):
        renew(tmp_path / "a", {"producer_id": 1000, "coordinator_epoch": 1000})
    assert counters(tmp_path / "a") == before


def test_a_renewed_store_gives_out_no_number_that_a_partition_has(tmp_path: Path) -> None:
    for names, expected in (("tuv", 4), ("", 1)):
        path = tmp_path / f"of {len(names)}"
        store_with(path, *names).close()
        set_counter(path, "partition_number", 1)
        renew(path, {})
        assert counters(path)["partition_number"] == expected
        set_counter(path, "partition_number", 9)
        renew(path, {})
        assert counters(path)["partition_number"] == 9


def test_a_damaged_or_foreign_store_raises_store_error(tmp_path: Path) -> None:
    store_with(tmp_path / "a", "t").close()
    data = bytearray((tmp_path / "a").read_bytes())
    data[4096 : 4096 + 200] = bytes(200)
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "b").write_bytes(b"no database" * 1000)
    for name in ("a", "b"):
        with pytest.raises(StoreError):
            check_store(tmp_path / name)
    with pytest.raises(StoreError):
        StoreCopy(tmp_path / "nothing")
