"""Doors are opened when they are needed, dropped when they are gone, and not tried all the time."""

import pytest

from smq.client.door.door import DoorUnavailable
from smq.client.door.doors import Doors
from smq.client.names import TopicPartition
from smq.model.catalog import Catalog
from smq.testing.stepped_clock import SteppedClock
from tests.client.fake_door import TOPIC, FakeDoor
from tests.shm.kernels.reader.test_lend import NUMBERS, Writer

NAME = TopicPartition("t", 1)


class House:
    """Opens doors, if it is there."""

    def __init__(self) -> None:
        self.opened: list[FakeDoor] = []
        self.is_there = True
        self.asked = 0

    def open_door(self, node_id: int) -> FakeDoor:
        assert node_id == 1
        self.asked += 1
        if not self.is_there:
            raise DoorUnavailable
        self.opened.append(FakeDoor(Writer()))
        return self.opened[-1]


@pytest.fixture
def house() -> House:
    return House()


def test_a_partition_is_found_by_the_catalog(house: House) -> None:
    doors = Doors(house.open_door)
    assert doors.logs() == set()
    found = doors.find(NAME)
    assert found is not None
    assert (found.node, found.log, found.number) == (1, 0, NUMBERS[1])
    assert found.topic_id == TOPIC.id
    assert doors.find(TopicPartition("t", 3)) is None
    assert doors.find(TopicPartition("other", 0)) is None
    assert house.asked == 1
    assert doors.logs() == {0}
    assert doors.at(found.node) is house.opened[0]
    assert doors.at(found.node + 1) is None
    doors.close()
    assert house.opened[0].closed


def test_a_house_that_is_not_there_is_asked_now_and_then(house: House) -> None:
    clock = SteppedClock(100 * 10**9)
    house.is_there = False
    doors = Doors(house.open_door, clock)
    for _ in range(3):
        assert doors.find(NAME) is None
    assert house.asked == 1
    house.is_there = True
    clock.step(1)
    assert doors.find(NAME) is not None


def test_a_door_that_is_gone_is_dropped(house: House) -> None:
    doors = Doors(house.open_door)
    doors.find(NAME)
    (door,) = house.opened
    assert doors.arm()
    door.closed = True
    assert not doors.arm()
    doors.disarm()
    assert doors.logs() == set()
    assert doors.filenos() == []


def test_a_watch_list_is_sent_once(house: House) -> None:
    doors = Doors(house.open_door)
    doors.find(NAME)
    (door,) = house.opened
    doors.watch({1: {7, 9}})
    assert door.watched == {7, 9}
    door.watched = set()
    doors.watch({1: {7, 9}})
    assert door.watched == set(), "it knows already"
    door.closed = True
    doors.watch({})
    assert doors.logs() == set()


def test_other_topics_are_noticed_once(house: House) -> None:
    doors = Doors(house.open_door)
    assert not doors.has_other_topics()
    doors.find(NAME)
    assert doors.has_other_topics()
    assert not doors.has_other_topics()
    house.opened[0].snapshot = Catalog("c", 2, {})
    assert doors.has_other_topics()
    assert doors.find(NAME) is None
