"""From EndTxn to the last marker, with shards that answer, fail, or are not there."""

import pytest

from smq.coordinator.transactions import endings
from smq.coordinator.transactions.decisions import End, ProducerEpoch
from smq.coordinator.transactions.endings import RETRY_MS
from smq.coordinator.transactions.orders import MarkerOrder, SyncOrder
from smq.model.errors import BrokerError, ErrorCode
from smq.store.rows import CommittedOffset
from tests.coordinator.transactions.transactions_driver import TransactionsDriver


def ordered(driver: TransactionsDriver) -> list[MarkerOrder]:
    return [each for each in driver.take_orders() if isinstance(each, MarkerOrder)]


def syncs(driver: TransactionsDriver) -> list[SyncOrder]:
    return [each for each in driver.take_orders() if isinstance(each, SyncOrder)]


def test_each_node_gets_the_markers_of_its_partitions(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 3)
    driver.end(producer, ticket="ticket")
    orders = {each.node: each for each in ordered(driver)}
    assert {node: set(each.numbers) for node, each in orders.items()} == {1: {2}, 2: {1, 3}}
    assert all((each.epoch, each.commits) == (1, True) for each in orders.values())
    assert driver.answers == [("ticket", (ErrorCode.NONE, ProducerEpoch(producer.id, 1)))]
    driver.transactions.endings.marked(orders[1], frozenset({2}), driver.now)
    assert driver.state == "PrepareCommit"
    assert driver.transactions.take_completed() == []
    driver.transactions.endings.marked(orders[2], frozenset({1, 3}), driver.now)
    driver.turn()
    assert driver.state == "CompleteCommit"
    assert driver.transactions.take_completed() == ["t"]
    assert len(driver.answers) == 1


def test_markers_that_were_not_written_come_again(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.end(producer)
    [order] = ordered(driver)
    driver.transactions.endings.marked(order, frozenset({1}), driver.now)
    assert ordered(driver) == []
    driver.wait(RETRY_MS)
    [again] = ordered(driver)
    assert again.numbers == {3}
    driver.transactions.endings.marked(again, frozenset(), driver.now)
    driver.wait(RETRY_MS)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_a_partition_that_was_deleted_needs_no_marker(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.end(producer)
    [order] = ordered(driver)
    driver.gone |= {1, 3}
    driver.transactions.endings.marked(order, frozenset(), driver.now)
    driver.wait(RETRY_MS)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))
    assert driver.state == "CompleteCommit"


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_outlives_the_coordinator_and_its_markers_are_sent_again(
    driver: TransactionsDriver, commits: bool
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2)
    driver.offset(producer, 4, 17)
    driver.end(producer, commits=commits)
    before = ordered(driver)
    driver.restart()
    driver.wait(0)
    after = ordered(driver)
    assert {each.numbers for each in after} == {each.numbers for each in before}
    assert all(each.commits is commits for each in after)
    assert after[0].coordinator_epoch > before[0].coordinator_epoch
    for order in after:
        driver.transactions.endings.marked(order, order.numbers, driver.now)
    driver.turn()
    assert driver.state == ("CompleteCommit" if commits else "CompleteAbort")
    driver.restart()
    driver.wait(0)
    assert ordered(driver) == []
    offsets = driver.store.committed_offsets("g")
    assert [each.offset for each in offsets.values()] == ([17] if commits else [])


def test_an_end_that_the_store_did_not_commit_is_undone_by_a_restart(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.offset(producer, 4, 17)
    driver.turn()
    driver.end(producer)
    driver.restart()
    assert driver.state == "Ongoing"
    assert driver.store.committed_offsets("g") == {}
    assert driver.commit(producer) == (producer.id, producer.epoch + 1)
    assert driver.store.committed_offsets("g")[4].offset == 17


def test_a_doubled_answer_of_a_shard_does_not_touch_the_next_transaction(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1)
    driver.end(producer)
    [order] = ordered(driver)
    driver.transactions.endings.marked(order, order.numbers, driver.now)
    answer = driver.turn()
    assert answer is not None
    driver.add(answer.producer, 1)
    driver.end(answer.producer)
    driver.transactions.endings.marked(order, order.numbers, driver.now)
    assert driver.state == "PrepareCommit"


def test_disk_topics_are_synced_before_a_commit_is_decided(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.end(producer)
    asked = syncs(driver)
    assert {each.node: set(each.numbers) for each in asked} == {1: {2}, 2: {1, 5}}
    assert driver.state == "Ongoing"
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.end(producer)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.add(producer, 3)
    with pytest.raises(BrokerError, match="CONCURRENT_TRANSACTIONS"):
        driver.begin()
    for order in asked:
        driver.transactions.endings.synced(order, frozenset(), driver.now)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_an_abort_syncs_nothing(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 5)
    driver.commit(producer, commits=False)
    assert driver.syncs == []


def test_a_commit_whose_sync_failed_is_not_decided_and_may_be_repeated(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.end(producer)
    first, second = syncs(driver)
    driver.transactions.endings.not_synced(first, driver.now)
    driver.take_orders()
    assert driver.answers[-1][1].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.state == "Ongoing"
    driver.end(producer)
    driver.take_orders()
    driver.transactions.endings.synced(second, frozenset(), driver.now)  # Late: of the first try.
    driver.transactions.endings.synced(first, frozenset(), driver.now)
    assert driver.state == "Ongoing"


def test_a_sync_that_fails_for_a_deleted_partition_is_ordered_without_it(
    driver: TransactionsDriver,
) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.end(producer)
    orders = {each.node: each for each in syncs(driver)}
    driver.gone.add(1)
    driver.transactions.endings.not_synced(orders[2], driver.now)
    assert syncs(driver) == []  # Node 1 has not answered yet.
    driver.transactions.endings.synced(orders[1], frozenset({2}), driver.now)
    [again] = syncs(driver)
    assert (again.node, again.numbers) == (2, frozenset({5}))
    driver.transactions.endings.synced(again, frozenset(), driver.now)
    driver.turn()
    assert driver.answers[-1][1].error is ErrorCode.TRANSACTION_ABORTABLE, "node 1 has lost some"


def test_a_transaction_times_out_while_it_waits_for_a_sync(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 5)
    driver.end(producer)
    [order] = syncs(driver)
    driver.wait(60_000)
    driver.transactions.endings.synced(order, frozenset(), driver.now)
    driver.turn()
    assert [answer.error for _, answer in driver.answers] == [ErrorCode.PRODUCER_FENCED]
    assert driver.state == "CompleteAbort"


def lost(driver: TransactionsDriver, *numbers: int) -> None:
    """Each node syncs; that of these partitions says that they may have lost records."""
    for order in syncs(driver):
        there = order.numbers & frozenset(numbers)
        driver.transactions.endings.synced(order, there, driver.now)


@pytest.mark.parametrize("bumps", [True, False])
def test_a_commit_of_which_a_log_has_lost_records_aborts(
    driver: TransactionsDriver, *, bumps: bool
) -> None:
    """Data fault 21: half of a transaction over a `disk` and an `os` topic was committed."""
    producer = driver.begin()
    driver.add(producer, 1, 2, 5)
    driver.offset(producer, 5, 17)
    driver.end(producer, bumps=bumps, ticket="commit")
    lost(driver, 2)
    assert driver.turn() == (ErrorCode.TRANSACTION_ABORTABLE, (-1, -1))
    assert driver.state == "CompleteAbort"
    assert driver.store.committed_offsets("g") == {}
    assert {each.commits for each in driver.markers} == {False}
    driver.restart()
    with pytest.raises(BrokerError, match="TRANSACTION_ABORTABLE"):
        driver.end(producer, bumps=bumps)  # The answer was lost.
    driver.end(producer, commits=False, bumps=bumps)
    now = (producer.id, producer.epoch + bumps)
    assert driver.turn() == (ErrorCode.NONE, now), "as the client is told to do"
    again = ProducerEpoch(*now)
    driver.add(again, 5)
    assert driver.commit(again).id == producer.id


def test_a_sync_order_names_the_generations_of_the_first_records(
    driver: TransactionsDriver,
) -> None:
    """Data fault 21: a partition that was added and never written is no reason to abort."""
    producer = driver.begin()
    transactions = driver.transactions
    driver.add(producer, 1, 5)
    driver.add(producer, 3)
    txn = transactions.verify("t", producer)
    transactions.note_written(txn, frozenset({3}), 7, driver.now)
    txn = transactions.verify("t", producer)
    transactions.note_written(txn, frozenset({1, 2}), 8, driver.now)
    transactions.note_written(transactions.verify("t", producer), frozenset({1}), 9, driver.now)
    driver.take_orders()
    driver.restart()
    driver.end(producer)
    [order] = syncs(driver)
    assert order.numbers == {1, 3, 5}
    assert order.written == {1: 8, 3: 7}
    driver.transactions.endings.synced(order, frozenset(), driver.now)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))
    assert driver.transactions.verify("t", ProducerEpoch(producer.id, 1)).written == {}


def test_a_note_of_first_records_outlives_the_power_if_the_transaction_must(
    driver: TransactionsDriver,
) -> None:
    """Data fault 21: what the power takes with the records would let half be committed."""
    producer = driver.begin()
    driver.add(producer, 1, 2)
    driver.store.commit()
    for number, may_lose in ((1, True), (2, False)):
        txn = driver.transactions.verify("t", producer)
        driver.transactions.note_written(txn, frozenset({number}), 8, driver.now)
        driver.store.commit()
        assert driver.store.may_lose is may_lose
        driver.add(producer, 5)
        driver.store.commit()


def test_after_a_restart_all_that_has_joined_may_have_records_if_notes_of_them_may_be_lost(
    driver: TransactionsDriver,
) -> None:
    """Data fault 21: a power loss may have taken the note, and the transaction grows."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.turn()
    driver.restart()
    driver.add(producer, 5)
    driver.end(producer)
    [order] = syncs(driver)
    assert order.written == {1: 0}


def test_notes_are_durable_once_a_topic_may_have_become_disk(driver: TransactionsDriver) -> None:
    """Data fault 21, its kind: syncs followed a change of configs, and notes did not."""
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.store.commit()
    driver.became_disk.add(1)
    driver.config_changes += 1
    txn = driver.transactions.verify("t", producer)
    driver.transactions.note_written(txn, frozenset({3}), 8, driver.now)
    driver.store.commit()
    assert not driver.store.may_lose
    driver.restart()
    driver.end(producer)
    [order] = syncs(driver)
    assert order.written == {3: 8}


def test_notes_that_were_not_synced_do_not_count_after_a_restart(
    driver: TransactionsDriver,
) -> None:
    """Data fault 21, its kind: a start with another `durability` found that a transaction must not
    be torn, and believed notes from before, which a power loss had taken."""
    producer = driver.begin()
    driver.add(producer, 1, 3)
    driver.turn()
    driver.became_disk.add(1)
    driver.restart()
    driver.end(producer)
    [order] = syncs(driver)
    assert order.written == {1: 0, 3: 0}


def test_offsets_of_a_disk_topic_are_not_committed_without_the_records_made_of_them(
    driver: TransactionsDriver,
) -> None:
    """Data fault 21, its kind: offsets outlived a power loss, the records beside them did not."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.offset(producer, 5, 17)
    driver.end(producer)
    [order] = syncs(driver)
    assert order.numbers == {1}
    driver.transactions.endings.synced(order, frozenset(), driver.now)
    [marker] = ordered(driver)
    assert marker.is_synced
    driver.restart()
    driver.wait(0)
    assert [each.is_synced for each in ordered(driver)] == [True]


def test_offsets_alone_need_no_sync_of_a_log(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.offset(producer, 5, 17)
    driver.end(producer)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))
    assert driver.syncs == []


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(endings, "OFFSETS_A_STEP", 1)


@pytest.mark.usefixtures("portions")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("commits", [True, False])
def test_a_large_transaction_ends_in_portions(
    driver: TransactionsDriver, *, commits: bool, restarts: bool
) -> None:
    """data fault 13: all markers of 10,000 partitions were ordered at once, and 200,000 offsets
    were committed by one statement."""
    producer = driver.begin()
    driver.add(producer, 1, 2, 3, 4)
    for number in (1, 2, 3):
        driver.offset(producer, number, 10 + number)
    driver.end(producer, commits=commits, ticket="ticket")
    marked: list[int] = []
    settled = set[int]()
    for _ in range(10):
        settled.add(len(driver.store.transactions.undecided("g", range(20_000))))
        orders = ordered(driver)
        assert sum(len(order.numbers) for order in orders) <= 2
        for order in orders:
            driver.transactions.endings.marked(order, order.numbers, driver.now)
            marked += order.numbers
        driver.wait(0)
        if restarts and len(marked) == 2:
            driver.take_orders()
            driver.restart()
            driver.wait(0)
    driver.transactions.invariants()
    assert sorted(marked) == [1, 2, 3, 4]  # What is written is not written again.
    assert settled >= {2, 0}
    assert driver.state == ("CompleteCommit" if commits else "CompleteAbort")
    offsets = driver.store.committed_offsets("g")
    assert [each.offset for each in offsets.values()] == ([11, 12, 13] if commits else [])
    if not restarts:
        assert [ticket for ticket, _ in driver.answers] == ["ticket"]


@pytest.mark.usefixtures("portions")
def test_a_large_transaction_of_disk_topics_is_synced_in_portions(
    driver: TransactionsDriver,
) -> None:
    """data fault 13, before the decision; a loss in one portion is one of the transaction."""
    producer = driver.begin()
    driver.add(producer, 1, 2, 3, 4, 5)
    driver.end(producer)
    synced: list[int] = []
    while found := syncs(driver):
        assert sum(len(order.numbers) for order in found) <= 2
        for order in found:
            assert driver.state == "Ongoing"
            lost = frozenset() if synced else order.numbers
            driver.transactions.endings.synced(order, lost, driver.now)
            synced += order.numbers
    assert sorted(synced) == [1, 2, 3, 4, 5]
    assert driver.state == "PrepareAbort"
    assert driver.transactions.get("t").is_torn  # type: ignore[union-attr]


@pytest.mark.usefixtures("portions")
def test_markers_that_fail_wait_while_others_go_on(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 3, 4)
    driver.end(producer)
    first = ordered(driver)
    for order in first:
        driver.transactions.endings.marked(order, frozenset(), driver.now)
    assert ordered(driver) == []
    driver.wait(RETRY_MS)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


@pytest.mark.usefixtures("portions")
def test_deleted_partitions_are_passed_over_portion_by_portion(driver: TransactionsDriver) -> None:
    producer = driver.begin()
    driver.add(producer, 1, 2, 3, 4)
    driver.gone |= {1, 2, 3, 4}
    driver.end(producer)
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_the_first_step_of_an_end_walks_no_partitions(
    driver: TransactionsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """data fault 13: whether one of 10,000 partitions is of a `disk` topic was looked up at EndTxn:
    17 ms."""
    monkeypatch.setattr(endings, "PARTITIONS_AT_ONCE", 1)
    producer = driver.begin()
    driver.add(producer, 1, 2, 3, 4)
    driver.found.clear()
    driver.end(producer)
    assert len(driver.found) == 1, "that of its first marker"
    assert driver.turn() == (ErrorCode.NONE, (producer.id, 1))


def test_a_topic_that_became_disk_meanwhile_is_synced(driver: TransactionsDriver) -> None:
    """data fault 13: looked up when a partition joins; later changes are told by their number."""
    producer = driver.begin()
    driver.add(producer, 1)
    driver.config_changes += 1
    producer = driver.commit(producer)
    assert [each.numbers for each in driver.syncs] == [{1}], "it might be one"
    driver.add(producer, 1)
    producer = driver.commit(producer)
    assert len(driver.syncs) == 1, "nothing has changed since it began"
    driver.became_disk.add(1)
    driver.config_changes += 1
    driver.add(producer, 1)
    driver.commit(producer)
    assert len(driver.syncs) == 2


@pytest.mark.parametrize("begins", [True, False])
def test_a_tick_settles_offsets_of_few_endings(
    driver: TransactionsDriver, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    """data fault 13: twenty due transactions were settled in one step, a portion of each."""
    for name in ("smq.coordinator.transactions.transactions", endings.__name__):
        monkeypatch.setattr(f"{name}.OFFSETS_A_STEP", 2)
    for name in ("a", "b", "c", "d"):
        producer = driver.begin(name)
        driver.transactions.add(name, producer, driver.now, groups=frozenset({name}))
        offsets = dict.fromkeys((1, 2), CommittedOffset(1, -1, "", 0))
        driver.transactions.put_offsets(name, name, offsets)
        if begins:
            continue
        ended = End(producer, commits=True, bumps=True)
        driver.transactions.end(name, ended, name, driver.now)
        driver.store.transactions.put_offsets(name, name, offsets)  # As a portion that is left.
    if begins:
        driver.now = driver.now._replace(monotonic_ms=driver.now.monotonic_ms + 60_000)
    left = []
    while driver.is_due():
        driver.transactions.tick(driver.now)
        left.append(
            sum(len(driver.store.transactions.undecided(name, range(20_000))) for name in "abcd")
        )
    assert left[:4] == [6, 4, 2, 0]
    driver.transactions.invariants()
