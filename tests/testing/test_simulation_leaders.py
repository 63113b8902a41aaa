"""What the simulator asserts of leaderships: of catalogs, of rows, and of what no failure takes."""

from dataclasses import replace
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from shm.kernels.base.words import P_EPOCH, P_LAST_STABLE, P_LOG_END, P_LOG_START
from shm.segment import LogMemory
from smq.log.partitions import Partitions
from smq.model.catalog import Catalog, Leadership, Moved, Node, Topic
from smq.testing.simulation.leaders import Leaders
from smq.testing.simulation.ledger import Broken, Incarnation, Ledger

if TYPE_CHECKING:
    from smq.shard.shard import Shard

NUMBER = 7
TOPIC = Topic("t", UUID(int=1), (NUMBER,), (0,), {"smq.durability": "os"})
AT_FIRST = Leadership(3, 0, 0, None)
MOVING = Moved(3, 1, 1, (AT_FIRST,))
ENDED = AT_FIRST._replace(end=20)
LED = Moved(5, None, 1, (ENDED, Leadership(5, 1, 20, None)))
BACK = Moved(5, 0, 2, LED.leaderships)


def catalog_of(moved: Moved) -> Catalog:
    """The topic alone."""
    topic = replace(TOPIC, logs=(moved.leaderships[-1].log,), moves={0: moved})
    return Catalog("cluster", 1, {topic.name: topic})


class FakeLog:
    """A log that leads or has led the partition: its row alone, of which `led` says where it is."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.partitions = Partitions(LogMemory.in_process(number, 1 << 16, 1 << 14, 4))
        self.log, self.slot = self, self.partitions.slot_of(NUMBER)

    def set(self, *, epoch: int = 3, start: int = 0, stable: int = 0, end: int = 20) -> None:
        """What the row has."""
        row = self.partitions.table[self.slot]
        row[[P_EPOCH, P_LOG_START, P_LAST_STABLE, P_LOG_END]] = epoch, start, stable, end


class FakeShard:
    """A shard with a log, as far as it is looked at."""

    def __init__(self, number: int, moved: Moved) -> None:
        self.log, self.leads = FakeLog(number), True
        self.logs = {number: self.log}
        self.catalog = catalog_of(moved)

    def led(self) -> list[FakeLog]:
        """See Shard."""
        return [self.log] if self.leads else []

    def nodes(self) -> list[Node]:
        """See Shard. The second one has been started since."""
        return [Node(1, "host", 1, 3), Node(2, "host", 2, 9)]


def look(leaders: Leaders, shard: FakeShard) -> None:
    """The shard has had a turn."""
    leaders.turned(cast("Shard", shard))


def publish(leaders: Leaders, moved: Moved) -> None:
    """The partition's next state."""
    leaders.published(catalog_of(moved))


@pytest.fixture
def incarnation() -> Incarnation:
    return Incarnation(TOPIC, "os")


@pytest.fixture
def leaders(incarnation: Incarnation) -> Leaders:
    """Those of a partition that moves for the first time."""
    ledger = Ledger()
    ledger.all.append(incarnation)
    leaders = Leaders(ledger)
    publish(leaders, MOVING)
    return leaders


def test_a_partition_may_move_there_and_back(leaders: Leaders) -> None:
    back = Moved(
        8, None, 2, (*LED.leaderships[:-1], Leadership(5, 1, 20, 30), Leadership(8, 0, 30, None))
    )
    for moved in (LED, LED, BACK, back):
        publish(leaders, moved)


def test_a_move_may_be_given_up(leaders: Leaders) -> None:
    publish(leaders, MOVING._replace(target=None))
    publish(leaders, MOVING._replace(target=2, attempt=2))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            LED._replace(epoch=6, leaderships=(ENDED, Leadership(6, 2, 20, None))),
            id="not the target",
        ),
        pytest.param(Moved(4, None, 0, MOVING.leaderships), id="an earlier attempt"),
        pytest.param(Moved(4, None, 1, (Leadership(4, 0, 0, None),)), id="an epoch without a move"),
    ],
)
def test_leaderships_that_cannot_follow_are_found(leaders: Leaders, wrong: Moved) -> None:
    with pytest.raises(Broken, match="follows"):
        publish(leaders, wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        BACK._replace(epoch=4),
        Moved(9, None, 2, (ENDED, Leadership(5, 1, 20, 25), Leadership(9, 0, 25, None))),
    ],
)
def test_ended_leaderships_stay(leaders: Leaders, wrong: Moved) -> None:
    publish(leaders, LED)
    with pytest.raises((Broken, AssertionError)):
        publish(leaders, wrong)


def test_the_epoch_is_above_all_that_may_have_been_shown() -> None:
    leaders = Leaders(Ledger())
    publish(leaders, MOVING._replace(epoch=5))
    with pytest.raises(Broken, match="follows"):
        publish(leaders, LED)


def test_no_power_cut_takes_a_record_from_before_a_move(
    leaders: Leaders, incarnation: Incarnation
) -> None:
    for offset, value in (19, b"1:0:"), (20, b"1:1:"):
        incarnation.claim(0, offset, value, "acked")
    publish(leaders, LED)
    incarnation.forget()
    assert incarnation.claims[0] == {19: b"1:0:"}
    incarnation.claim(0, 20, b"1:2:", "another record at the offset of one that is lost")
    with pytest.raises(Broken):
        incarnation.claim(0, 19, b"1:3:", "another record at the offset of one that is not")


def test_damage_may_take_any_record(leaders: Leaders, incarnation: Incarnation) -> None:
    incarnation.claim(0, 19, b"1:0:", "acked")
    publish(leaders, LED)
    incarnation.is_damaged = True
    incarnation.forget()
    assert incarnation.claims == [{}]


def test_an_epoch_is_led_in_one_log(leaders: Leaders) -> None:
    first, second = FakeShard(0, MOVING), FakeShard(1, MOVING)
    for each in first, second:
        each.log.set(epoch=3)
    look(leaders, first)
    with pytest.raises(Broken, match="logs 0 and 1 lead"):
        look(leaders, second)


@pytest.mark.parametrize("fallen", [{"start": 4, "stable": 9}, {"start": 5, "stable": 8}])
def test_nothing_falls_within_an_epoch(leaders: Leaders, fallen: dict[str, int]) -> None:
    shard = FakeShard(0, MOVING)
    shard.log.set(start=5, stable=9)
    look(leaders, shard)
    shard.log.set(epoch=4, **fallen)
    look(leaders, shard)
    shard.log.set(epoch=3, **fallen)
    with pytest.raises(Broken, match="after 5 and 9, in epoch 3"):
        look(leaders, shard)


def test_a_log_ends_where_its_leadership_has_ended(leaders: Leaders) -> None:
    shard = FakeShard(0, LED)
    publish(leaders, LED)
    shard.leads = False
    shard.log.set(end=20)
    look(leaders, shard)
    shard.log.set(end=21)
    with pytest.raises(Broken, match="leads to 20, has 21"):
        look(leaders, shard)


def test_the_leader_reaches_each_epoch_that_was_shown(leaders: Leaders) -> None:
    shard = FakeShard(1, LED)
    shard.log.set(epoch=9)
    look(leaders, shard)
    leaders.check_reached(TOPIC, 0, 9)
    with pytest.raises(Broken, match="epoch 8 leads, and 9 was shown"):
        leaders.check_reached(TOPIC, 0, 8)
