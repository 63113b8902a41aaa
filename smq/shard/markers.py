"""Markers: how a producer's transaction ends in a partition (KIP-98, KIP-890)."""

from typing import NamedTuple

import numpy as np

from shm.kernels.base.words import (
    FLAG_READ_ONLY,
    P_FLAGS,
    P_HIGH_WATERMARK,
    P_LOG_END,
)
from shm.kernels.log.append import append_marker
from shm.kernels.log.producers import R_COORDINATOR_EPOCH, R_EPOCH, producer_row
from smq.log.files.checkpoint import Open
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.shard.led import Led
from smq.shard.shard import Shard
from smq.wire.markers import Marker, write_marker

EPOCHS_GROW_FROM = 2  # The transaction.version from which each transaction has an epoch of its own.


class Ending(NamedTuple):
    """The end of a transaction in one partition: decided at once, answered when durable.

    The marker is durable when the high watermark has reached `end`.
    """

    number: int
    led: Led | None
    error: ErrorCode
    end: int = 0

    def outcome(self, shard: Shard) -> ErrorCode | None:
        """The answer; None: not known yet."""
        if self.led is None or self.error != ErrorCode.NONE:
            return self.error
        if shard.by_number(self.number) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row = self.led.log.partitions.table[self.led.slot]
        if int(row[P_HIGH_WATERMARK]) >= self.end:
            return ErrorCode.NONE
        return ErrorCode.KAFKA_STORAGE_ERROR if self.led.log.failed is not None else None


def end_transaction(
    shard: Shard, number: int, marker: Marker, transaction_version: int, now: Now
) -> Ending:
    """Append a marker to a partition, unless nothing is open there.

    In that case too, wait until the log's end is durable: it may hold the marker that this one
    repeats. The open transaction may be an earlier one, if a power loss took its marker and this
    one's records: a commit then aborts it.
    """
    led = shard.by_number(number)
    if led is None:
        return Ending(number, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    verifying = shard.verifying.get((number, marker.producer_id))
    grows = transaction_version >= EPOCHS_GROW_FROM
    if verifying is not None and not (grows and verifying.epoch >= marker.producer_epoch):
        del shard.verifying[number, marker.producer_id]  # Its own marker.
    error = _refusal(led, marker, transaction_version)
    if error == ErrorCode.NONE:
        opened = led.log.transactions.open_of(number, marker.producer_id)
        if opened is None:
            led.log.transactions.fence(number, marker, now.monotonic_ms)
        else:
            is_its = not grows or opened.epoch == marker.producer_epoch - 1
            ending = marker._replace(committed=marker.committed and is_its)
            error = _append(shard, led, ending, now)
    row = led.log.partitions.table[led.slot]
    return Ending(number, led, error, int(row[P_LOG_END]))


def abort_open(shard: Shard, led: Led, opened: Open, now: Now) -> bool:
    """Abort a transaction that has ended according to the coordinator: a power loss may have taken
    its marker. Returns whether it is closed now."""
    transactions = led.log.transactions
    coordinator_epoch = transactions.coordinator_epoch(led.number, opened.producer_id)
    producer = opened.producer_id, opened.epoch
    marker = Marker(*producer, False, max(0, coordinator_epoch))  # noqa: FBT003
    end_transaction(shard, led.number, marker, 1, now)
    return transactions.open_of(led.number, opened.producer_id) is None


def _refusal(led: Led, marker: Marker, transaction_version: int) -> ErrorCode:
    """Why a marker is late; INVALID_PRODUCER_EPOCH: its transaction is over here.

    The open transaction decides. The producer's row may be newer: a checkpoint copies rows later
    than transactions, and a power loss may take the marker that a row has seen.
    """
    producers = led.log.producers.table
    row = producer_row(producers, led.number, marker.producer_id)
    opened = led.log.transactions.open_of(led.number, marker.producer_id)
    if opened is None:
        first = int(producers[row, R_EPOCH]) if row else -1
    else:
        first = opened.epoch + (transaction_version >= EPOCHS_GROW_FROM)
    if marker.producer_epoch < first:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if row and marker.coordinator_epoch < producers[row, R_COORDINATOR_EPOCH] - 1:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.NONE


def _append(shard: Shard, led: Led, marker: Marker, now: Now) -> ErrorCode:
    """Append it even when the WAL is full: only a marker lets space become free."""
    log, (now_ms, wall_ms) = led.log, now
    batch = np.frombuffer(bytearray(write_marker(marker, wall_ms)), np.uint8)
    memory = log.memory.memory
    row = log.partitions.table[led.slot]
    while int(row[P_FLAGS]) & FLAG_READ_ONLY == 0:
        offset = int(append_marker(memory, log.links, led.slot, batch, wall_ms, now_ms))
        if offset >= 0:
            # The answer waits for this end: before it, a marker that a crash takes counts as safe.
            assert row[P_LOG_END] == offset + 1
            log.transactions.ended(led.number, marker, offset, now_ms)
            return ErrorCode.NONE
        shard.drain(log)
    return ErrorCode.KAFKA_STORAGE_ERROR
