"""A lane returns its ring's records, hands over what the ring lost, and takes nothing back."""

import pytest

from shm.kernels.reader.lend_few import BATCHES_FEW
from smq.client.consuming.batch.chunk import PollRoom, cut
from smq.client.consuming.source.lane import Lane
from smq.client.consuming.source.source import Partition, Taken
from smq.client.names import TopicPartition
from tests.client.fake_door import FakeDoor
from tests.shm.kernels.reader.test_lend import NUMBERS, Reader, Writer


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def lane(writer: Writer) -> Lane:
    return Lane(Reader(writer).log, 1 << 20)


def partition(number: int, position: int = 0) -> tuple[int, Partition]:
    return number, Partition(TopicPartition("t", NUMBERS.index(number)), position)


def offsets(taken: Taken | None) -> list[tuple[int, int]]:
    """(partition, offset) of all records; the partitions move on."""
    if taken is None:
        return []
    chunks, good = cut(taken.batches, PollRoom(64 << 20))
    assert taken.is_intact()
    taken.commit(good)
    for each, position in taken.ends:
        each.position = position
    return [(record.partition, record.offset) for chunk in chunks for record in chunk.records()]


def test_partitions_come_and_go(writer: Writer, lane: Lane) -> None:
    assert lane.add([partition(300), partition(7)]) == []
    assert lane.numbers() == [7, 300]
    for slot in (0, 1, 2):
        writer.append(slot)
    writer.show(0, 1, 2)
    taken, gone = lane.take()
    assert offsets(taken) == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert gone == []
    assert lane.add([partition(9, 1)]) == []
    taken, _ = lane.take()
    assert offsets(taken) == [(1, 1)], "from the middle of a batch; the others do not go back"
    lane.remove(lane.partitions[0])
    writer.append(0)
    writer.append(2)
    writer.show(0, 2)
    assert offsets(lane.take()[0]) == [(2, 2), (2, 3)]


def test_looking_takes_nothing(writer: Writer, lane: Lane) -> None:
    lane.add([partition(7)])
    assert not lane.is_ready()
    writer.append(0)
    assert not lane.is_ready()
    writer.show(0)
    assert lane.is_ready()
    assert lane.is_ready()
    assert offsets(lane.take()[0]) == [(0, 0), (0, 1)]
    assert not lane.is_ready()


def test_batches_that_were_not_cut_are_lent_again(writer: Writer, lane: Lane) -> None:
    lane.add([partition(7)])
    for _ in range(BATCHES_FEW):
        writer.append(0)
    writer.show(0)
    taken, _ = lane.take()
    assert taken is not None
    taken.commit(1)
    lane.partitions[0].position = 2
    assert offsets(lane.take()[0]) == [(0, each) for each in range(2, 2 * BATCHES_FEW)]


def test_a_few_are_cut_and_had_at_once(writer: Writer, lane: Lane) -> None:
    lane.add([partition(7), partition(9)])
    writer.append(0)
    writer.append(1)
    writer.show(0, 1)
    taken, _ = lane.take()
    assert taken is not None
    assert taken.chunks is not None
    (chunk,) = taken.chunks
    found = [(each.partition, each.offset) for each in chunk.records()]
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(each.name.partition, end) for each, end in taken.ends] == [(0, 2), (1, 2)]
    assert taken.is_intact()
    assert lane.take() == (None, [])


def test_it_sleeps_at_its_door(writer: Writer, lane: Lane) -> None:
    door = FakeDoor(writer)
    assert lane.sleep(door, 5, 100)
    assert door.slept == [(5, 100)]


def test_partitions_whose_records_left_the_ring_are_returned_by_add(
    writer: Writer, lane: Lane
) -> None:
    for _ in range(40):
        writer.append(0, value=b"x" * 500)
    writer.show(0)
    old, young, future = partition(7), partition(9), partition(300, 5)
    assert lane.add([old, young, future]) == [old[1], future[1]]
    assert lane.partitions == [young[1]]


def test_a_lap_hands_over_what_was_missed(writer: Writer, lane: Lane) -> None:
    lane.add([partition(7), partition(9)])
    first = lane.partitions[0]
    writer.append(0)
    writer.show(0)
    taken, _ = lane.take()
    assert taken is not None
    for _ in range(40):
        writer.append(0, value=b"x" * 500)
    writer.show(0)
    assert not taken.is_intact()
    taken.commit(0)
    assert lane.is_ready()
    taken, gone = lane.take()
    assert taken is None
    assert gone == [first]
    assert lane.numbers() == [9]
