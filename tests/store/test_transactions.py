"""Rows of transactions round-trip, and go with their topics and groups."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from smq.model.catalog import Topic
from smq.store.rows import CommittedOffset, StoredTransaction
from smq.store.store import Store

TOPIC = Topic("t", UUID(int=1), (1, 2, 3), (0, 0, 0))
TXN = StoredTransaction(
    transactional_id="t",
    producer_id=7,
    epoch=3,
    previous_producer_id=6,
    next_producer_id=-1,
    last_epoch=2,
    timeout_ms=60_000,
    state="Ongoing",
    version=2,
    started_ms=11,
    updated_ms=12,
    partitions=frozenset({1, 2}),
    groups=frozenset({"g"}),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    store.add_topic(TOPIC, 0)
    yield store
    store.close()


def saved(store: Store, *transactions: StoredTransaction) -> None:
    before = None
    for txn in transactions:
        store.transactions.save(txn, before)
        before = txn


def test_a_transactional_id_comes_back_as_it_was_saved(store: Store) -> None:
    wider = replace(TXN, partitions=frozenset({1, 2, 3}), groups=frozenset({"g", "h"}), epoch=4)
    wider = replace(wider, written={1: 5, 3: 0}, is_synced=True)
    saved(store, TXN, wider)
    assert store.transactions.all() == [wider]
    [found] = store.transactions.all()
    assert (found.is_synced, found.is_torn) == (True, False)
    assert type(found.is_torn) is bool, "it is sent as such"
    other = replace(TXN, transactional_id="u", partitions=frozenset())
    saved(store, other)
    assert sorted(store.transactions.all(), key=lambda txn: txn.transactional_id) == [wider, other]


def test_a_closed_transaction_has_no_partitions(store: Store) -> None:
    closed = replace(TXN, partitions=frozenset(), groups=frozenset(), state="CompleteCommit")
    saved(store, TXN, closed)
    assert store.transactions.all() == [closed]
    reopened = replace(TXN, partitions=frozenset({2}), groups=frozenset())
    store.transactions.save(reopened, closed)
    assert store.transactions.all() == [reopened]


def test_a_topic_takes_its_rows_along(store: Store) -> None:
    saved(store, TXN)
    store.transactions.put_offsets("t", "g", {2: CommittedOffset(5, -1, "", 20)})
    store.delete_topic(TOPIC.id)
    while store.deleted_topics.may_be_some:
        store.deleted_topics.forget_some()
    assert store.transactions.all() == [replace(TXN, partitions=frozenset())]
    assert not store.has_offsets("g")


def test_a_transactional_id_takes_its_rows_along(store: Store) -> None:
    saved(store, TXN)
    store.transactions.put_offsets("t", "g", {2: CommittedOffset(5, -1, "", 20)})
    store.transactions.delete("t")
    assert store.transactions.all() == []
    assert not store.has_offsets("g")


def test_offsets_are_applied_or_dropped_once(store: Store) -> None:
    saved(store, TXN)
    committed = CommittedOffset(5, 2, "note", 20)
    store.transactions.put_offsets("t", "g", {2: committed})
    assert store.groups_with_offsets() == ["g"]
    assert store.transactions.undecided("g", range(20_000)) == {2}
    store.transactions.apply_offsets("t", 100)
    assert store.committed_offsets("g") == {2: committed}
    assert store.transactions.undecided("g", range(20_000)) == set()
    store.transactions.put_offsets("t", "g", {2: committed._replace(offset=6)})
    store.transactions.drop_offsets("t", 100)
    store.transactions.apply_offsets("t", 100)
    assert store.committed_offsets("g") == {2: committed}


@pytest.mark.parametrize("own_ms", [21, 20, -600_000])
def test_a_later_commit_of_the_group_itself_stays(store: Store, own_ms: int) -> None:
    """Data fault 1: the times said which came later, though clocks are set back."""
    saved(store, TXN)
    store.transactions.put_offsets("t", "g", {2: CommittedOffset(5, -1, "", 20)})
    own = CommittedOffset(9, -1, "", own_ms, 99)
    store.commit_offsets("g", {2: own})
    store.transactions.apply_offsets("t", 100)
    assert store.committed_offsets("g") == {2: own}


@pytest.mark.parametrize("own_ms", [19, 20, 600_000])
def test_offsets_of_a_transaction_replace_those_that_came_before_them(
    store: Store, own_ms: int
) -> None:
    """Data fault 1: after a step back of the clock EndTxn said yes, and the offsets stayed."""
    saved(store, TXN)
    store.commit_offsets("g", {2: CommittedOffset(5, -1, "", own_ms)})
    later = CommittedOffset(9, -1, "", 20)
    store.transactions.put_offsets("t", "g", {2: later})
    store.transactions.apply_offsets("t", 100)
    assert store.committed_offsets("g") == {2: later}


def test_of_two_transactions_the_later_offsets_stay_whichever_ends_last(store: Store) -> None:
    """Data fault 1, as Kafka's record offsets say it."""
    saved(store, TXN)
    saved(store, replace(TXN, transactional_id="u", partitions=frozenset()))
    store.transactions.put_offsets("t", "g", {2: CommittedOffset(5, -1, "", 20)})
    later = CommittedOffset(9, -1, "", 20)
    store.transactions.put_offsets("u", "g", {2: later})
    store.transactions.apply_offsets("u", 100)
    store.transactions.apply_offsets("t", 100)
    assert store.committed_offsets("g") == {2: later}


def test_undecided_costs_a_look_up_for_each_partition(store: Store) -> None:
    """Data fault 13, its kind: all that open transactions hold of a partition was read, 50 ms of
    the coordinator with 500 of them."""
    for number in range(300):
        saved(store, replace(TXN, transactional_id=f"t{number}", producer_id=100 + number))
        store.transactions.put_offsets(f"t{number}", "g", {2: CommittedOffset(5, -1, "", 20)})
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.transactions._database._connection.set_progress_handler(count, 1)
    assert store.transactions.undecided("g", [1, 2, 3]) == {2}
    store.transactions._database._connection.set_progress_handler(None, 1)
    assert 0 < steps < 300


def test_pending_offsets_are_forgotten_some_at_a_time(store: Store) -> None:
    for number in range(5):
        saved(store, replace(TXN, transactional_id=f"t{number}", producer_id=100 + number))
        for group_id in ("g", "h"):
            offsets = {place: CommittedOffset(5, -1, "", 20) for place in (1, 2)}
            store.transactions.put_offsets(f"t{number}", group_id, offsets)
    has_more = [store.transactions.forget_offsets("g", [2, 3], 2) for _ in range(3)]
    assert has_more == [True, True, False]
    assert store.transactions.undecided("g", [1, 2]) == {1}
    assert store.transactions.undecided("h", [1, 2]) == {1, 2}
