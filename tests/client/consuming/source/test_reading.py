"""Partitions change between ring and wire at the offset where they stand."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from shm.kernels.reader.lend_few import BATCHES_FEW
from smq.client.consuming.source.local_source import LocalSource
from smq.client.consuming.source.reading import Reading
from smq.client.consuming.source.source import Partition, Taken, always_intact
from smq.client.door.doors import Doors
from smq.client.errors import BatchTooLarge
from smq.client.names import TopicPartition
from smq.model.catalog import Catalog
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.stepped_clock import SteppedClock
from smq.wire.compression import Codec
from smq.wire.records import Record, write_batch
from tests.client.batches import batches_of
from tests.client.fake_door import TOPIC, FakeDoor
from tests.shm.kernels.reader.test_lend import NUMBERS, Writer

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeWire:
    """Has every record: the n-th of a partition says n. Gives three at a time."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.partitions: dict[TopicPartition, Partition] = {}
        self.closed = False
        self.is_broken = False
        self.batches: dict[TopicPartition, list[bytes]] = {}  # By offset: these instead.

    def add(self, partitions: Iterable[Partition]) -> list[Partition]:
        self.partitions |= {each.name: each for each in partitions}
        return []

    def remove(self, partition: Partition) -> None:
        del self.partitions[partition.name]

    def clear(self) -> None:
        self.partitions.clear()

    def take(self) -> list[Taken]:
        if self.batches:
            return [
                self._of(each, self.batches[each.name])
                for each in self.partitions.values()
                if each.position < len(self.batches[each.name])
            ]
        return [
            self._take(each)
            for each in self.partitions.values()
            if each.position < self.ends.get(each.name, 0)
        ]

    def _take(self, partition: Partition) -> Taken:
        first = partition.position
        end = min(first + 3, self.ends[partition.name])
        data = write_batch([Record(each, 0, None, b"wire") for each in range(first, end)])
        if self.is_broken:
            data = data[:-1] + b"?"
        batches = batches_of(data)._replace(names=[partition.name])
        return Taken(batches, [(partition, end)], lambda _: None, always_intact)

    @staticmethod
    def _of(partition: Partition, sent: list[bytes]) -> Taken:
        data = b"".join(sent[partition.position :])
        batches = batches_of(data)._replace(names=[partition.name])
        return Taken(batches, [(partition, len(sent))], lambda _: None, always_intact)

    def leave(self) -> list[Partition]:
        return []

    def filenos(self) -> list[int]:
        return []

    def retry_in_seconds(self) -> float:
        return 0.0

    def close(self) -> None:
        self.closed = True


class Rig:
    """A log with a door, a wire, and who reads both."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.door = FakeDoor(self.writer)
        self.wire = FakeWire()
        self.clock = SteppedClock(100 * 10**9)
        self.local = LocalSource(Doors(lambda _: self.door, self.clock), 1 << 20)
        self.reading = Reading(self.local, self.wire, self.clock)  # type: ignore[arg-type]

    def append(self, slot: int, count: int = 1, size: int = 1) -> None:
        for _ in range(count):
            self.writer.append(slot, value=bytes(size))
            name = TopicPartition("t", slot)
            self.wire.ends[name] = self.wire.ends.get(name, 0) + 2
        self.writer.show(slot)

    def read(self) -> list[tuple[int, int, str]]:
        """(partition, offset, whence) of what there is now."""
        return told(self.reading.take())


def told(taken: list[Taken]) -> list[tuple[int, int, str]]:
    return [
        (each.partition, each.offset, "wire" if bytes(each.value or b"") == b"wire" else "ring")
        for part in taken
        for chunk in part.chunks or ()
        for each in chunk.records()
    ]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_rings_are_read_and_watched(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    assert rig.reading.is_local
    assert rig.door.watched == {7, 9}
    rig.append(0)
    rig.append(1)
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring"), (1, 0, "ring"), (1, 1, "ring")]
    assert rig.read() == []
    rig.reading.drop([ONE])
    assert rig.door.watched == {7}
    assert rig.reading.counts.records_from_rings == rig.reading.counts.records == 4


def test_records_that_left_the_ring_are_read_over_the_wire_until_it_catches_up(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    rig.append(1)
    rig.append(0, 40, 500)
    found: list[tuple[int, int, str]] = []
    while more := rig.read() or rig.read():
        found += more
    assert [each for each in found if each[0] == 1] == [(1, 0, "wire"), (1, 1, "wire")]
    zeros = [each for each in found if each[0] == 0]
    assert [offset for _, offset, _ in zeros] == list(range(80))
    assert zeros[0][2] == "wire"
    assert zeros[-1][2] == "ring"
    assert rig.reading.is_local
    assert rig.reading.counts.ring_to_wire == rig.reading.counts.wire_to_ring == 2
    assert rig.wire.partitions == {}


def test_a_door_that_closes_costs_nothing_and_is_opened_again(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    rig.append(0)
    rig.read()
    rig.door.close()
    assert rig.reading.fall_asleep() is None
    rig.append(0)
    assert rig.read() == [(0, 2, "wire"), (0, 3, "wire")]
    assert not rig.reading.is_local
    rig.door = FakeDoor(rig.writer)
    rig.clock.step(1)
    rig.append(0)
    assert rig.read() == [(0, 4, "ring"), (0, 5, "ring")]


def test_a_door_that_opens_to_other_memory_has_nothing_of_the_old_read() -> None:
    rig = Rig()
    rig.reading.assign({ZERO: 0, ONE: 0})
    rig.append(0)
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring")]
    rig.door.close()  # The whole broker starts again, and has the log in a ring of its own.
    rig.writer = Writer()
    rig.door = FakeDoor(rig.writer)
    rig.clock.step(1)
    rig.append(0)
    rig.reading.seek(ZERO, 2)
    rig.append(0)
    rig.append(1)
    found = [*rig.read(), *rig.read(), *rig.read()]
    assert [each[:2] for each in found if each[0] == 0] == [(0, 2), (0, 3)]
    assert [each[:2] for each in found if each[0] == 1] == [(1, 0), (1, 1)]


def test_a_partition_of_a_topic_created_again_is_read_over_the_wire_until_it_begins_again(
    rig: Rig,
) -> None:
    rig.append(0)
    rig.append(1)
    rig.reading.assign({ZERO: 0, ONE: 0})
    assert len(rig.read()) == 4
    again = replace(TOPIC, id=UUID(int=2), partition_numbers=(*NUMBERS[:2][::-1], NUMBERS[2]))
    rig.door.snapshot = Catalog("c", 2, {"t": again})
    assert rig.reading.fall_asleep() is None
    rig.read()
    assert rig.wire.partitions.keys() == {ZERO, ONE}
    rig.reading._return_at = 0.0
    rig.read()
    assert rig.wire.partitions.keys() == {ZERO, ONE}, "nobody has said where they begin"
    zero = rig.wire.partitions[ZERO]
    zero.topic_id, zero.position = again.id, 0
    rig.reading._return_at = 0.0
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring")]
    assert rig.wire.partitions.keys() == {ONE}
    rig.reading.seek(ONE, 0)
    assert rig.read() == [(1, 0, "ring"), (1, 1, "ring")]


def test_away_from_the_broker_all_comes_over_the_wire() -> None:
    wire = FakeWire()
    reading = Reading(None, wire)  # type: ignore[arg-type]
    wire.ends[ZERO] = 4
    reading.assign({ZERO: 1})
    assert not reading.is_local
    assert told(reading.take()) == [(0, 1, "wire"), (0, 2, "wire"), (0, 3, "wire")]
    assert reading.fall_asleep() == []
    reading.close()
    assert wire.closed


def test_records_can_be_taken_back_unless_one_has_gone_elsewhere(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    rig.append(0)
    rig.append(1)
    assert rig.reading.take()
    moves = rig.reading.moves
    rig.reading.seek(ONE, 1)
    rig.reading.go_back(moves)
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring"), (1, 1, "ring")]
    assert rig.reading.counts.overruns == 1


def overtaken(rig: Rig) -> None:
    """Both partitions have left the ring, and were not yet read over the wire."""
    rig.reading.assign({ZERO: 0, ONE: 0})
    rig.append(0, 40, 500)
    assert rig.read() == []


def test_a_dropped_partition_whose_records_left_the_ring_is_not_read(rig: Rig) -> None:
    overtaken(rig)
    rig.reading.drop([ZERO])
    assert rig.read() == rig.read() == []
    assert rig.wire.partitions.keys() <= {ONE}


def test_a_paused_partition_whose_records_left_the_ring_is_not_read(rig: Rig) -> None:
    overtaken(rig)
    rig.reading.pause([ZERO])
    assert rig.read() == rig.read() == []
    rig.reading.resume([ZERO])
    assert rig.read()[:1] == [(0, 0, "wire")]


def test_a_partition_that_left_the_ring_is_read_once_after_a_seek(rig: Rig) -> None:
    overtaken(rig)
    rig.reading.seek(ZERO, 78)
    rig.append(0)
    found = [each for _ in range(6) for each in rig.read()]
    assert [offset for _, offset, _ in found] == [78, 79, 80, 81]
    (lane,) = rig.local._lanes.values()
    assert len(lane.partitions) + len(rig.wire.partitions) <= 2


def test_one_that_the_ring_overtakes_while_another_returns_goes_on(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    one = rig.reading.partitions[ONE]
    rig.local.remove(one)
    rig.append(0, 40, 500)
    rig.local.add([one])
    found = [each[:2] for _ in range(60) for each in rig.read()]
    assert found == [(0, offset) for offset in range(80)]


def test_a_partition_assigned_again_is_read_from_its_new_position(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.append(0, 2)
    with monkeypatch.context() as away:
        away.setattr(rig.local.doors, "find", lambda _: None)
        rig.reading.assign({ZERO: 0})
        assert rig.read() == [(0, 0, "wire"), (0, 1, "wire"), (0, 2, "wire")]
        rig.reading.assign({ZERO: 0})
    rig.reading._return_at = float("inf")
    found = [*rig.read(), *rig.read(), *rig.read()]
    assert [offset for _, offset, _ in found] == [0, 1, 2, 3]
    assert rig.reading.partitions[ZERO].position == 4
    rig.reading.drop([ZERO])
    rig.append(0)
    assert rig.read() == []


def read_one_over_a_broken_wire(rig: Rig, broken: pytest.MonkeyPatch) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    one = rig.reading.partitions[ONE]
    rig.local.remove(one)
    rig.reading._go_to_wire([one])
    rig.reading._return_at = float("inf")

    def fail() -> list[Taken]:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    broken.setattr(rig.wire, "take", fail)


def test_an_error_of_the_wire_is_raised_after_the_rings_records(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        read_one_over_a_broken_wire(rig, broken)
        rig.append(0)
        assert rig.read() == [(0, 0, "ring"), (0, 1, "ring")]
        for _ in range(2):
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
                rig.read()
    rig.append(0)
    assert rig.read() == [(0, 2, "ring"), (0, 3, "ring")]


def test_an_error_of_an_earlier_assignment_is_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_one_over_a_broken_wire(rig, monkeypatch)
    rig.append(0)
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring")]
    rig.reading.assign({ZERO: 1})
    assert rig.read() == [(0, 1, "ring")]


@pytest.mark.parametrize("way", ["seek", "overrun", "pause"])
def test_each_change_between_ring_and_wire_is_counted(rig: Rig, way: str) -> None:
    counts = rig.reading.counts
    rig.reading.assign({ZERO: 0})
    rig.append(0)
    assert rig.reading.take()
    moves = rig.reading.moves
    for times in (1, 2):
        rig.append(0, 40, 500)
        if way == "seek":
            rig.reading.seek(ZERO, 0)
        elif way == "overrun":
            rig.reading.partitions[ZERO].position = 2  # As it stood behind these moves.
            rig.reading.go_back(moves)
        else:
            rig.reading.pause([ZERO])
            rig.reading.partitions[ZERO].position = 0
            rig.reading.resume([ZERO])
        assert rig.wire.partitions.keys() == {ZERO}
        assert (counts.ring_to_wire, counts.wire_to_ring) == (times, times - 1)
        while rig.read() or rig.read():
            pass
        assert rig.wire.partitions == {}
        assert (counts.ring_to_wire, counts.wire_to_ring) == (times, times)


def test_where_a_partition_begins_is_no_change(rig: Rig) -> None:
    rig.append(0, 40, 500)
    rig.reading.assign({ZERO: 0})
    assert not rig.reading.is_local
    assert rig.reading.counts.ring_to_wire == 0


def test_paused_partitions_keep_their_place(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0, ONE: 0})
    rig.reading.pause([ZERO])
    rig.append(0)
    rig.append(1)
    assert rig.read() == [(1, 0, "ring"), (1, 1, "ring")]
    rig.reading.seek(ZERO, 1)
    assert rig.read() == []
    rig.reading.resume([ZERO, ONE])
    assert rig.read() == [(0, 1, "ring")]


def test_an_unreadable_batch_raises_after_the_records_before_it(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    rig.append(0)
    rig.append(0)
    broken = int(rig.writer.memory.column("position")[1]) + 48 + 61
    kept = rig.writer.memory.ring[broken]
    rig.writer.memory.ring[broken] = 0xFF
    assert rig.read() == [(0, 0, "ring"), (0, 1, "ring")]
    told = r"t-0 has a batch at offsets 2 to 3 .* seek to 4"
    for _ in range(2):
        with pytest.raises(BrokerError, match=told) as raised:
            rig.reading.take()
        assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    rig.writer.memory.ring[broken] = kept
    assert rig.read() == [(0, 2, "ring"), (0, 3, "ring")]


def zeros(offset: int, size: int) -> bytes:
    return write_batch([Record(offset, 0, None, bytes(size))], compression=Codec.ZSTD)


def test_a_batch_that_inflates_too_far_raises_until_a_seek_passes_it() -> None:
    """Data fault 16."""
    wire = FakeWire()
    reading = Reading(None, wire, SteppedClock(0), 1000)  # type: ignore[arg-type]
    wire.batches = {ZERO: [zeros(0, 900), zeros(1, 1100), zeros(2, 900)], ONE: [zeros(0, 1)]}
    reading.assign({ZERO: 0, ONE: 0})
    assert [each[:2] for each in told(reading.take())] == [(0, 0), (1, 0)]
    for _ in range(2):
        with pytest.raises(
            BatchTooLarge, match=r"t-0 has a batch at offsets 1 to 1 .* 1000 bytes"
        ) as raised:
            reading.take()
        assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert (raised.value.topic, raised.value.partition) == ZERO
    wire.batches[ONE].append(zeros(1, 1))
    assert [each[:2] for each in told(reading.take())] == [(1, 1)]
    reading.seek(ZERO, raised.value.end)
    assert [each[:2] for each in told(reading.take())] == [(0, 2)]


def test_a_poll_ends_once_it_has_inflated_enough_and_all_partitions_have_their_turn() -> None:
    """Data fault 16: a thousand batches may each inflate as far as one may."""
    wire = FakeWire()
    reading = Reading(None, wire, SteppedClock(0), 1000)  # type: ignore[arg-type]
    names = [TopicPartition("t", each) for each in range(3)]
    wire.batches = {each: [zeros(i, 600) for i in range(10)] for each in names}
    reading.assign(dict.fromkeys(names, 0))
    polls = []
    while found := told(reading.take()):
        polls.append([each[:2] for each in found])
    assert sorted(each for poll in polls for each in poll) == [
        (p, o) for p in range(3) for o in range(10)
    ]
    assert max(map(len, polls)) == 2
    assert {partition for poll in polls[:3] for partition, _ in poll} == {0, 1, 2}


def test_a_batch_that_was_overwritten_while_it_was_cut_is_not_handed_out(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    rig.append(0, BATCHES_FEW)  # So many are not cut as they are lent.
    taken = rig.local.take()
    rig.append(0, 40, 500)
    assert rig.reading._cut(taken[0]) is None
    assert rig.reading.moves == []
    assert rig.reading.partitions[ZERO].position == 0


def test_a_record_appended_while_falling_asleep_is_noticed(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    assert rig.reading.fall_asleep() == [rig.door.fileno()]
    rig.append(0)
    assert rig.reading.fall_asleep() is None
    assert len(rig.read()) == 2


def test_it_sleeps_in_one_step_where_one_log_has_all(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    assert rig.reading.sleep(5, 0.0001)
    assert rig.door.slept == [(5, 1)]


def test_it_does_not_sleep_over_what_is_to_be_left(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    rig.door.topics.clear()
    rig.door.snapshot = Catalog("c", 2, {})
    assert not rig.reading.sleep(-1, 1)  # The topic is gone.
    rig.reading.take()
    assert not rig.reading.sleep(-1, 1)  # It is read over the wire.
    assert rig.door.slept == []


def test_sleep_returns_at_once_at_a_closed_door(rig: Rig) -> None:
    rig.reading.assign({ZERO: 0})
    rig.door.close()
    assert not rig.reading.sleep(-1, 1)


def test_sleep_in_one_step_is_refused_without_a_door() -> None:
    reading = Reading(None, FakeWire())  # type: ignore[arg-type]
    assert not reading.sleep(-1, 1)
