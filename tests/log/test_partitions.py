"""Rows of partitions, and leader epochs as OffsetForLeaderEpoch asks for them."""

import pytest

from shm.kernels.base.words import (
    FLAG_LOG_APPEND_TIME,
    FLAG_READ_ONLY,
    P_EPOCH,
    P_FLAGS,
    P_HIGH_WATERMARK,
    P_LOG_END,
    P_LOG_START,
)
from smq.log.files.checkpoint import PartitionCheckpoint
from smq.log.partitions import Partitions, PartitionSettings
from tests.log.logs import DISK, OS, memory_of, settings


@pytest.fixture
def partitions() -> Partitions:
    return Partitions(memory_of())


def led(partitions: Partitions, *lives: tuple[int, int]) -> None:
    """Lead partition 7 in generations, each until its log end."""
    slot = partitions.configure(7, settings(OS))
    for generation, end in lives:
        partitions.lead(7, generation)
        partitions.table[slot, P_LOG_END] = end
    partitions.show_all()
    partitions.invariants()


def test_epochs_without_records_are_not_kept(partitions: Partitions) -> None:
    led(partitions, (0, 10), (1, 10), (2, 10), (5, 30))
    assert partitions.epochs[7] == [(0, 0), (5, 10)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (0, (0, 10)),
        (1, (0, 10)),
        (4, (0, 10)),
        (5, (5, 30)),
        (6, (5, 30)),
        (7, (7, 40)),
        (8, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(
    partitions: Partitions, asked: int, answer: tuple[int, int]
) -> None:
    led(partitions, (0, 10), (5, 30), (7, 40))
    assert partitions.end_of_epoch(7, asked) == answer


def test_an_epoch_below_all_known_ones_ended_where_these_begin(partitions: Partitions) -> None:
    led(partitions, (3, 10), (5, 30))
    partitions.start_at(7, 12)
    assert partitions.end_of_epoch(7, 1) == (1, 12)
    assert partitions.epochs[7] == [(5, 12)]


def test_a_raised_log_start_stays_below_the_end(partitions: Partitions) -> None:
    led(partitions, (0, 10))
    partitions.start_at(7, 99)
    partitions.start_at(7, 3)
    assert partitions.table[partitions.slots[7], P_LOG_START] == 10


def test_a_checkpointed_partition_is_restored(partitions: Partitions) -> None:
    led(partitions, (0, 10), (2, 30))
    partitions.start_at(7, 4)
    partitions.set_unsealed(7, 500, 77)
    state = partitions.states()[0]
    assert state == PartitionCheckpoint(7, [(0, 4), (2, 10)], 4, 30, 0, -1, 500, 77, 0, 0)
    other = Partitions(memory_of())
    slot = other.restore(state)
    assert other.epochs[7] == [(0, 4), (2, 10)]
    assert other.table[slot, P_LOG_END] == 4  # Its frames say more.


def test_settings_change_and_the_rest_of_a_row_stays(partitions: Partitions) -> None:
    led(partitions, (3, 10))
    slot = partitions.slots[7]
    partitions.table[slot, P_FLAGS] |= FLAG_READ_ONLY
    assert partitions.configure(7, PartitionSettings(DISK, 10, log_append_time=True)) == slot
    assert partitions.table[slot, P_FLAGS] & FLAG_READ_ONLY
    assert partitions.table[slot, P_FLAGS] & FLAG_LOG_APPEND_TIME
    partitions.configure(7, settings(OS))
    assert not partitions.table[slot, P_FLAGS] & FLAG_LOG_APPEND_TIME
    assert partitions.table[slot, P_EPOCH] == 3


def test_a_dropped_partitions_row_is_given_to_another_empty(partitions: Partitions) -> None:
    led(partitions, (3, 10))
    slot = partitions.slots[7]
    partitions.drop(7)
    assert partitions.slot_of(8) == slot
    assert partitions.table[slot, P_HIGH_WATERMARK] == 0
    assert partitions.epochs == {8: []}
    partitions.clear()
    assert not partitions.table.any()


def test_an_end_known_from_sealed_segments_extends_the_partition(partitions: Partitions) -> None:
    led(partitions, (3, 10))
    partitions.extend(7, 25)
    assert partitions.table[partitions.slots[7], P_HIGH_WATERMARK] == 25
    assert partitions.epochs[7] == [(3, 0)]


def test_an_epoch_without_a_record_begins_behind_what_is_sealed(partitions: Partitions) -> None:
    """Clients whose records are all sealed were sent back to where the log ended."""
    led(partitions, (3, 10), (5, 10))
    partitions.extend(7, 25)
    partitions.invariants()
    assert partitions.epochs[7] == [(3, 0), (5, 25)]
    assert partitions.end_of_epoch(7, 3) == (3, 25)
