"""Moves of partitions: with shards that answer, refuse, or are not there, at each step."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from smq.coordinator.moves import (
    AT_ONCE_MAX,
    PATIENCE_MS,
    RETRY_MS,
    AdoptOrder,
    CloseOrder,
    DrawOrder,
    Moving,
    ended,
    pruned,
)
from smq.coordinator.topics import NewTopic
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.model.catalog import Leader, Leadership, Moved, Node
from smq.model.errors import BrokerError, ErrorCode
from smq.model.segments import Segment
from smq.store.config_changes import Changer
from smq.wire.internal.form import Failed
from smq.wire.internal.moves import Adopted, AdoptPartition, ClosedAt, ClosePartition, EpochStart
from tests.coordinator.coordinator_driver import CoordinatorDriver
from tests.coordinator.mover import ADA, GENERATIONS, Mover

E = ErrorCode


@pytest.fixture
def mover(driver: CoordinatorDriver) -> Mover:
    return Mover(driver)


CLOSED = ClosedAt(100, [EpochStart(1, 0), EpochStart(4, 40)])


def test_a_move_closes_draws_adopts_and_is_one_commit(mover: Mover) -> None:
    mover.ask()
    order = mover.order(CloseOrder)
    assert order == CloseOrder(1, ClosePartition(mover.number, 1))
    assert mover.moved == Moved(4, 1, 1, (Leadership(0, 0, 0, None),))
    assert [*mover.moves] == [Moving("t", 0, 1, 2)]
    mover.closed(CLOSED, order)
    mover.drawn(9)
    adopt = mover.order(AdoptOrder)
    assert adopt == AdoptOrder(2, AdoptPartition(mover.number, 1, 9, 1, 100))
    assert mover.topic.logs == (0, 1)
    mover.adopted(Adopted(100), adopt)
    there = Leadership(1, 0, 0, 40), Leadership(4, 0, 40, 100), Leadership(9, 1, 100, None)
    assert mover.moved == Moved(9, None, 1, there)
    assert mover.topic.logs == (1, 1)
    assert [*mover.moves] == mover.moves.take_orders() == []
    assert mover.driver.store.may_lose is False
    mover.driver.store.commit()
    mover.driver.restart()
    assert mover.moved == Moved(9, None, 1, there)


def test_the_epoch_that_clients_are_shown_never_falls(mover: Mover) -> None:
    def shown() -> Leader:
        nodes = [Node(node, "h", 1, generation) for node, generation in GENERATIONS.items()]
        return mover.topic.leader(0, nodes)

    assert shown().epoch == 4
    mover.ask()
    assert shown().epoch == 4
    mover.closed(CLOSED)
    mover.drawn(9)
    mover.adopted(Adopted(100))
    assert (shown().node.id, shown().epoch) == (2, 9)


def test_a_partition_that_has_moved_and_comes_back_keeps_what_each_log_led(mover: Mover) -> None:
    mover.move(2, 10, EpochStart(4, 0))
    mover.move(1, 20, EpochStart(7, 10))
    assert mover.moved.leaderships == (
        Leadership(4, 0, 0, 10),
        Leadership(7, 1, 10, 20),
        Leadership(8, 2, 20, None),  # Node 1 serves logs 0 and 2, and log 0 has more partitions.
    )
    assert mover.topic.epochs_before(0, 8) == [(4, 0), (7, 10)]


def to_closing(mover: Mover) -> None:
    mover.ask()


def to_drawing(mover: Mover) -> None:
    to_closing(mover)
    mover.closed(CLOSED)


def to_adopting(mover: Mover) -> None:
    to_drawing(mover)
    mover.drawn(9)


STEPS = [to_closing, to_drawing, to_adopting]
Step = Callable[[Mover], None]


def answer_late(mover: Mover) -> None:
    """All that may still be on its way from an attempt."""
    attempt, number = 1, 1
    close = CloseOrder(1, ClosePartition(number, attempt))
    for move_end in (CLOSED, Failed("too late"), None):
        mover.closed(move_end, close)
    for epoch in (9, None):
        mover.drawn(epoch, DrawOrder(number, attempt))
    adopt = AdoptOrder(2, AdoptPartition(number, attempt, 9, 1, 100))
    for start in (Adopted(100), Failed("too late"), None):
        mover.adopted(start, adopt)


def stays(mover: Mover) -> None:
    """Partition 0 is where it was, open, and no answer of that attempt changes it."""
    kept = Moved(4, None, 1, (Leadership(0, 0, 0, None),))
    assert mover.moved == kept
    mover.driver.store.commit()
    assert [*mover.moves] == []
    mover.moves.take_orders()
    answer_late(mover)
    assert mover.moved == kept
    assert mover.moves.take_orders() == []
    mover.ask()
    assert mover.moved == Moved(4, 1, 2, kept.leaderships)
    again = mover.moves.take_orders()
    answer_late(mover)
    assert mover.moved.target == 1
    assert again == [CloseOrder(1, ClosePartition(mover.number, 2))]
    assert mover.moves.take_orders() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_move_without_progress_is_given_up(mover: Mover, step: Step) -> None:
    step(mover)
    mover.wait(PATIENCE_MS - 1)
    assert mover.moved.target == 1
    mover.wait(1)
    stays(mover)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (to_closing, "node 1 has not closed it for 5 s"),
        (to_drawing, "no epoch could be drawn for 5 s"),
        (to_adopting, "node 2 has not adopted it for 5 s"),
    ],
)
def test_a_move_that_is_given_up_says_what_it_has_waited_for(
    mover: Mover, step: Step, words: str
) -> None:
    step(mover)
    mover.wait(PATIENCE_MS)
    assert mover.outcome() == words
    [move] = mover.driver.store.moves.newest(9)
    assert move[1:] == (PATIENCE_MS, "t", 0, 1, 2, "User:ada", "10.0.0.1", "by hand", words)


@pytest.mark.parametrize("step", STEPS)
def test_a_move_is_cancelled_at_any_step(mover: Mover, step: Step) -> None:
    step(mover)
    mover.moves.cancel(mover.number, mover.driver.now)
    assert mover.outcome() == "it was cancelled"
    stays(mover)


@pytest.mark.parametrize("step", STEPS)
def test_a_move_to_the_leader_gives_up_one_that_is_under_way(mover: Mover, step: Step) -> None:
    step(mover)
    mover.ask(1)
    stays(mover)


@pytest.mark.parametrize("step", STEPS)
def test_a_coordinator_that_starts_gives_up_what_was_moving(mover: Mover, step: Step) -> None:
    step(mover)
    mover.driver.store.commit()
    mover.driver.restart()
    assert mover.outcome() == "the coordinator was restarted"
    assert mover.driver.store.moves.newest(1)[0][2:6] == ("t", 0, 1, 2)
    stays(mover)


@pytest.mark.parametrize("step", STEPS)
def test_a_move_ends_with_its_topic_and_touches_no_other_of_its_name(
    mover: Mover, step: Step
) -> None:
    step(mover)
    topics = mover.driver.coordinator.topics
    topics.delete(mover.topic)
    topics.create(NewTopic(name="t", assignments=[(0, [1]), (1, [2])]), mover.driver.now)
    answer_late(mover)
    mover.wait(0)
    assert [*mover.moves] == []
    assert mover.outcome() == "its topic was deleted"
    assert mover.topic.moves == {}
    mover.driver.store.commit()
    mover.driver.restart()
    assert mover.topic.moves == {}


@pytest.mark.parametrize("step", STEPS)
def test_a_move_goes_on_though_its_topic_changes(mover: Mover, step: Step) -> None:
    step(mover)
    topics = mover.driver.coordinator.topics
    topics.add_partitions(mover.topic, 3, now=mover.driver.now)
    topics.configure(mover.topic, {"retention.ms": "5"}, Changer("c", "h", 1))
    assert mover.moved.target == 1
    if step is to_closing:
        mover.closed(CLOSED)
    if step is not to_adopting:
        mover.drawn(9)
    mover.adopted(Adopted(100))
    assert (mover.topic.logs[:2], mover.topic.partition_count) == ((1, 1), 3)
    assert mover.topic.configs == {"retention.ms": "5"}


def test_an_order_without_an_answer_is_repeated_as_it_was(mover: Mover) -> None:
    mover.ask()
    close = mover.order(CloseOrder)
    for _ in range(3):
        mover.closed(None, close)
        assert mover.moves.take_orders() == []
        mover.wait(RETRY_MS)
        assert mover.order(CloseOrder) == close
    mover.closed(CLOSED, close)
    mover.drawn(9)
    adopt = mover.order(AdoptOrder)
    for _ in range(3):
        mover.adopted(None, adopt)
        mover.wait(RETRY_MS)
        assert mover.order(AdoptOrder) == adopt
    mover.adopted(Adopted(100), adopt)
    assert mover.moved.epoch == 9


def test_an_epoch_is_drawn_once_an_attempt(mover: Mover) -> None:
    to_drawing(mover)
    draw = mover.order(DrawOrder)
    mover.drawn(None, draw)
    mover.wait(RETRY_MS)
    again = mover.order(DrawOrder)
    mover.drawn(9, again)
    mover.drawn(10, draw)
    assert mover.order(AdoptOrder).question.epoch == 9


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_an_epoch_that_is_not_above_all_that_were_led_in_moves_nothing(
    mover: Mover, epoch: int
) -> None:
    mover.ask()
    mover.closed(ClosedAt(100, [EpochStart(1, 0), EpochStart(5, 40)]))
    mover.drawn(epoch)
    assert "it has been led in 5" in mover.outcome()
    stays(mover)


@pytest.mark.parametrize(
    "closed",
    [
        ClosedAt(100, []),
        ClosedAt(100, [EpochStart(4, 0), EpochStart(4, 1)]),
        ClosedAt(100, [EpochStart(4, 0), EpochStart(3, 1)]),
        ClosedAt(100, [EpochStart(4, 50), EpochStart(5, 40)]),
        ClosedAt(100, [EpochStart(4, 101)]),
        ClosedAt(100, [EpochStart(4, -1)]),
    ],
)
def test_a_source_that_tells_impossible_epochs_keeps_its_partition(
    mover: Mover, closed: ClosedAt
) -> None:
    mover.ask()
    mover.closed(closed)
    assert mover.outcome().startswith("node 1 has told ")
    stays(mover)


def test_a_shard_that_refuses_gives_its_reason(mover: Mover) -> None:
    for step in (to_closing, to_adopting):
        step(mover)
        if step is to_closing:
            mover.closed(Failed("it is not led here"))
            assert mover.outcome() == "it is not led here"
        else:
            mover.adopted(Failed("262,144 producers are all that a log has room for"))
            assert "room" in mover.outcome()
        assert mover.moved.target is None


def test_a_target_that_begins_elsewhere_leads_nothing(mover: Mover) -> None:
    to_adopting(mover)
    mover.adopted(Adopted(99))
    assert mover.outcome() == "what node 2 has adopted begins at 99 and not at 100"
    stays(mover)


def test_a_partition_that_moves_has_one_target(mover: Mover) -> None:
    mover.ask(2)
    mover.ask(2)
    assert mover.order(CloseOrder).question.attempt == 1
    driver = mover.driver
    driver.store.commit()
    driver.restart(config={"shards": 3})
    driver.store.commit()
    mover.ask(2)
    with pytest.raises(BrokerError, match="moves to broker 2: wait, or cancel") as refusal:
        mover.ask(3)
    assert refusal.value.code == E.REASSIGNMENT_IN_PROGRESS


def test_a_partition_stays_with_its_leader(mover: Mover) -> None:
    mover.ask(1)
    assert (mover.topic.moves, mover.moves.take_orders()) == ({}, [])
    assert mover.driver.store.moves.newest(9) == []


def test_only_a_partition_that_moves_is_cancelled(mover: Mover) -> None:
    with pytest.raises(BrokerError) as refusal:
        mover.moves.cancel(mover.number, mover.driver.now)
    assert refusal.value.code == E.NO_REASSIGNMENT_IN_PROGRESS


def test_few_partitions_move_at_a_time_and_the_others_follow(mover: Mover) -> None:
    topics, now = mover.driver.coordinator.topics, mover.driver.now
    everything = [(index, [1]) for index in range(AT_ONCE_MAX + 2)]
    many = topics.create(NewTopic(name="many", assignments=everything), now)
    for number in many.partition_numbers:
        mover.moves.ask(number, 2, ADA, now)
        mover.moves.invariants()
    assert len([*mover.moves]) == AT_ONCE_MAX + 2
    mover.wait(0)
    moving = topics.catalog.by_name["many"].moves
    assert {*moving} == {*range(AT_ONCE_MAX)}
    mover.moves.cancel(many.partition_numbers[-1], now)
    mover.moves.cancel(many.partition_numbers[0], now)
    mover.wait(0)
    moving = topics.catalog.by_name["many"].moves
    assert {index for index, moved in moving.items() if moved.target} == {
        *range(1, AT_ONCE_MAX + 1)
    }
    orders = [each for each in mover.moves.take_orders() if isinstance(each, CloseOrder)]
    assert len(orders) == AT_ONCE_MAX + 1


def test_a_log_without_room_gets_no_partition(mover: Mover) -> None:
    driver = mover.driver
    driver.cluster = driver.cluster._replace(partitions_per_log_max=1)
    driver.store.commit()
    driver.restart()
    with pytest.raises(BrokerError) as refusal:
        mover.ask()
    assert refusal.value.code == E.POLICY_VIOLATION
    assert ([*mover.moves], mover.topic.moves) == ([], {})


def test_a_log_keeps_a_row_of_what_it_has_led(mover: Mover) -> None:
    mover.move(2, 10)
    driver = mover.driver
    driver.cluster = driver.cluster._replace(partitions_per_log_max=2)
    driver.store.commit()
    driver.restart()
    topics = driver.coordinator.topics
    topics.create(
        NewTopic(name="a", assignments=[(0, [1])] + [(i, [1]) for i in (1, 2)]), driver.now
    )
    with pytest.raises(BrokerError):  # Logs 0 and 2 have room for 4, and log 0 keeps one of t.
        topics.create(NewTopic(name="b", assignments=[(0, [1])]), driver.now)


def test_new_partitions_go_to_the_nodes_that_lead_fewest(mover: Mover) -> None:
    mover.move(2, 10)
    topics = mover.driver.coordinator.topics
    new = [NewTopic(name=name, partition_count=1) for name in ("a", "b")]
    assert [topics.create(each, mover.driver.now).logs for each in new] == [(2,), (0,)]


def test_records_of_a_transaction_stay_as_safe_as_before(mover: Mover) -> None:
    transactions, now = mover.driver.coordinator.transactions, mover.driver.now
    producer = transactions.begin("t", 60_000, None, now)
    numbers = frozenset(mover.topic.partition_numbers)
    transactions.add("t", ProducerEpoch(*producer), now, numbers=numbers)
    txn = transactions.verify("t", ProducerEpoch(*producer))
    transactions.note_written(txn, numbers, 4, now)
    mover.move(2, 10)
    txn = transactions.verify("t", ProducerEpoch(*producer))
    assert txn.written == {mover.number: 7, mover.topic.partition_numbers[1]: 4}
    transactions.invariants()
    mover.driver.store.commit()
    mover.driver.restart()
    stored = mover.driver.coordinator.transactions.get("t")
    assert stored is not None
    assert stored.written == txn.written


def test_the_audit_log_gets_a_line_of_each_move(driver: CoordinatorDriver) -> None:
    driver.restart(config={"audit_log_enable": "true"})
    mover = Mover(driver)
    mover.move(2, 10)
    [line] = driver.coordinator.access.audit.take_acts()
    for words in (
        '"User:ada"',
        '"MOVE"',
        '"t"',
        "partition 0 from node 1 to node 2, by hand, 0 ms",
    ):
        assert words in line
    mover.ask(1)
    mover.closed(Failed("it is not led here"))
    [line] = driver.coordinator.access.audit.take_accesses(driver.now)
    assert "to node 1, by hand, 0 ms: it is not led here" in line


def test_sealed_leaderships_become_one(mover: Mover) -> None:
    mover.move(2, 10)
    segment = Segment(mover.number, 0, 15, "parquet", "p", 1, 0, 15, 0, 0, 0, 0)
    mover.driver.store.manifest.commit_segments([segment])
    mover.move(1, 20)
    mover.move(2, 30)
    assert [*mover.moved.leaderships] == [
        Leadership(1, 0, 0, 10),
        Leadership(7, 1, 10, 20),
        Leadership(8, 2, 20, 30),
        Leadership(9, 1, 30, None),
    ]
    segment = replace(segment, base_offset=15, end_offset=30, path="q")
    mover.driver.store.manifest.commit_segments([segment])
    mover.move(1, 40)
    newest = Leadership(9, 1, 30, 40), Leadership(10, 0, 40, None)
    assert [*mover.moved.leaderships] == [Leadership(1, 0, 0, 30), *newest]


def test_a_leadership_without_records_is_forgotten() -> None:
    newest = Leadership(5, 1, 10, None)
    moved = Moved(5, 2, 3, (Leadership(0, 0, 0, 10), newest))
    assert ended(moved, ClosedAt(10, [EpochStart(5, 10)])) == [Leadership(0, 0, 0, 10)]
    twice = ClosedAt(12, [EpochStart(5, 10), EpochStart(6, 10), EpochStart(8, 12)])
    assert ended(moved, twice) == [Leadership(0, 0, 0, 10), Leadership(6, 1, 10, 12)]


def test_the_first_leadership_stands_for_all_that_are_sealed() -> None:
    rows = [Leadership(epoch, epoch % 3, 10 * epoch, 10 * epoch + 10) for epoch in range(4)]
    assert pruned(rows, 9) == rows
    assert pruned(rows, 10) == rows
    assert pruned(rows, 25) == [rows[0]._replace(end=20), *rows[2:]]
    assert pruned(rows, 40) == [rows[0]._replace(end=40)]
    assert pruned([], 40) == []
