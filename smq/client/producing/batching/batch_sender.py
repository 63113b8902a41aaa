"""Writes batches that may go now into the channels to their leaders."""

from collections.abc import Mapping

from shm.kernels.base.words import BATCH_HEADER_BYTES
from smq.client.errors import ChannelGone
from smq.client.producing.batching.batch_queue import NEVER_SENT, ParcelBatch, PartitionQueue
from smq.client.producing.batching.failures import (
    out_of_epochs,
    too_large_for_channels,
    too_large_for_topic,
)
from smq.client.producing.batching.in_flight import InFlightRequests
from smq.client.producing.batching.partition_queues import PartitionQueues
from smq.client.producing.channel.channel import REQUEST_BYTES_MAX, Channel
from smq.client.producing.channel.produce_request import put_head
from smq.client.producing.delivery.single_record import SingleRecord
from smq.client.producing.encode.batch_writer import BatchWriter, Stamp, Written

EPOCH_MAX = 2**15 - 1


class BatchSender:
    """Also fails, in order, batches that can never be sent."""

    def __init__(
        self,
        queues: PartitionQueues,
        in_flight: InFlightRequests,
        producer_id: int,
        writer: BatchWriter,
        batch_bytes: int,
    ) -> None:
        self._pending, self._queues = queues.pending, queues
        self._in_flight, self._lost = in_flight, in_flight.lost
        self.producer_id, self._writer, self._batch_bytes = producer_id, writer, batch_bytes

    def send_single(
        self, single: SingleRecord, channels: Mapping[int, Channel], now_ms: int
    ) -> bool:
        """Take and send a record, unless another must be sent before it; returns whether it did."""
        queue = self._queues.get(single.topic, single.partition)
        channel, one, size = channels.get(queue.leader), single.rows, single.bytes
        if channel is None or one is None or not (self._writer.is_plain and queue.is_free(now_ms)):
            return False
        if size + BATCH_HEADER_BYTES > queue.message_bytes_max or queue.epoch > EPOCH_MAX:
            return False
        room = len(queue.head) + BATCH_HEADER_BYTES + size
        if room > channel.request_bytes_max:
            return False
        batch, stamp = (
            ParcelBatch(single, 0, 1),
            Stamp(self.producer_id, queue.epoch, queue.sequence),
        )
        in_flight = self._in_flight
        try:
            self._pending.add(single)
            queue.stamp(batch, size + BATCH_HEADER_BYTES)
            in_flight.add(queue, batch, now_ms)
            if not channel.send_one(room, queue.head_data, in_flight.last_id, one, stamp):
                queue.requeue(in_flight.remove_last(queue))
                self._queues.update_ready(queue)
        except ChannelGone:
            self._give_up_channel(queue, batch)
        except BaseException:
            self._give_up_channel(queue, batch)
            raise
        return True

    def _give_up_channel(self, queue: PartitionQueue, batch: ParcelBatch) -> None:
        """Sending a batch was interrupted: it is unknown how far it got.

        Once its channel is closed, all requests without an answer are sent again over a new one.
        """
        self._lost.add(queue.leader)
        was_cut_short = self._in_flight.remove_half_added(queue, batch)
        if was_cut_short and batch.parcel in self._pending:
            queue.restore(batch)
        self._queues.update_ready(queue)

    def drain(self, channels: Mapping[int, Channel], now_ms: int) -> None:
        """Send all that may go now."""
        full = set[int]()
        for queue in self._queues.ready():
            if queue.leader < 0:
                self._queues.mark_stale(queue.topic)
            while queue.leader not in full and queue.may_send(now_ms):
                try:
                    if not self._send_next(queue, channels.get(queue.leader), now_ms):
                        full.add(queue.leader)
                except ChannelGone:
                    self._lost.add(queue.leader)
                    full.add(queue.leader)
            self._queues.update_ready(queue)

    def _send_next(self, queue: PartitionQueue, channel: Channel | None, now_ms: int) -> bool:
        """Send, or fail, the next batch; False: the channel takes nothing now."""
        batch = queue.next()
        parcel, part, is_new = batch.parcel, (batch.first, batch.end), batch.ordinal == NEVER_SENT
        if queue.epoch > EPOCH_MAX:
            self._queues.fail_next(queue, batch, out_of_epochs(), batch.end)
            return True
        one = parcel.bound(batch.first, batch.first + 1)
        least_bytes = self._writer.least_bytes(one)
        if is_new and least_bytes > queue.message_bytes_max:
            error = too_large_for_topic(queue, least_bytes)
            self._queues.fail_next(queue, batch, error, batch.first + 1)
            return True
        if channel is None:
            return False
        bytes_max = self._bytes_max(queue, channel) if is_new else batch.size_bytes
        size = len(queue.head) + self._writer.room(parcel.bound(*part), one, bytes_max)
        if size > channel.request_bytes_max:
            return self._outgrow(queue, batch, size)
        epoch, sequence = (queue.epoch, queue.sequence) if is_new else (batch.epoch, batch.sequence)
        stamp = Stamp(self.producer_id, epoch, sequence)
        written = self._write(queue, batch, stamp, bytes_max, channel, size)
        if written is None:
            return False
        try:
            if is_new:
                queue.split_next(batch, written.row)
                queue.stamp(batch, written.size_bytes)
            else:
                assert written.row == batch.end, "the broker has all rows of its sequence, or none"
                queue.to_resend.pop(0)
            self._in_flight.add(queue, batch, now_ms)
            channel.commit(written.end)
        except BaseException:
            self._give_up_channel(queue, batch)
            raise
        return True

    def _outgrow(self, queue: PartitionQueue, batch: ParcelBatch, size: int) -> bool:
        """The channel can never take the next batch, nor its first record alone if it is new."""
        if size > REQUEST_BYTES_MAX:
            self._queues.fail_next(queue, batch, too_large_for_channels(size), batch.first + 1)
            return True
        self._lost.add_too_small(queue.leader, size)
        return False

    def _bytes_max(self, queue: PartitionQueue, channel: Channel) -> int:
        """Of a new batch, before compression."""
        fitting = self._writer.bytes_max_in(channel.request_bytes_max - len(queue.head))
        return min(self._batch_bytes, queue.message_bytes_max, fitting)

    def _write(  # noqa: PLR0913, PLR0917  (as a kernel)
        self,
        queue: PartitionQueue,
        batch: ParcelBatch,
        stamp: Stamp,
        bytes_max: int,
        channel: Channel,
        size: int,
    ) -> Written | None:
        """Write a request into a channel, if it has `size` bytes of room."""
        rows = batch.parcel.rows
        assert rows is not None
        if (out := channel.reserve(size)) is None:
            return None
        part = batch.first, batch.end
        written = self._writer.write(rows, part, stamp, bytes_max, out, len(queue.head))
        assert written.end <= size, "behind the room is a request that the broker has not read yet"
        put_head(out, queue.head, written.end, self._in_flight.next_id())
        return written
