"""Validates the records of batches before appending them, for topics that require it.

    a compacted topic, or smq.validate=records   records are whole, their times within limits
    a compacted topic                            each record has a key
    compression.type other than `producer`       then the batch is recompressed

Kafka's LogValidator does this for all topics. Small batches are inflated in the shard's loop as far
as a turn has room, others in a lane. A batch that inflates to more than INFLATED_BYTES_MAX is
refused.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_AT,
    BATCH_OVERHEAD_BYTES,
)
from shm.kernels.record.record_checks import (
    L_FIRST_MS,
    L_LAST_MS,
    L_NEEDS_KEY,
    LIMIT_WORDS,
    R_KEYLESS,
    R_LATE,
    check_records,
    new_refused,
)
from shm.kernels.record.records import (
    B_RECORDS_AT,
    B_RECORDS_END,
    new_columns,
    new_facts,
    scan_batches,
)
from shm.kernels.record.references import may_refer
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.model.topic_settings import TopicSettings, settings_of
from smq.shard.answers import RefusedRecord
from smq.shard.checks import CHECK_BYTES, GOOD, NOTHING, ROOM_BYTES, Check, TurnRoom, Verdict
from smq.shard.recompression import Compression, codec_of, compression_of, recompressed
from smq.shard.references import REASONS_MAX, HandleRule, Handles
from smq.wire.codec import Buffer
from smq.wire.compression import Codec, InflatesTooFar, Undecodable, decompress

KiB, MiB = 1024, 1024 * 1024
INFLATED_BYTES_MAX = 8 * MiB
# What the loop itself inflates. Few compressed bytes, as they may be thousands of tiny frames or
# blocks, each of which takes microseconds, and inflate to nothing.
LOOP_INPUT_BYTES_MAX, LOOP_BYTES_MAX = 16 * KiB, 256 * KiB
# The most that is recompressed at all takes some ten milliseconds (smq.shard.recompression): the
# loop does a part of that, and a turn four of these.
LOOP_COMPRESSED_PART = 8


class Validation:
    """Checks the records of batches, and with `handles` their handles.

    `topic_of` a partition's number is its topic, if it is led.
    """

    def __init__(
        self,
        handles: Handles,
        topic_of: Callable[[int], Topic | None],
        config: Config,
        room: TurnRoom | None = None,
    ) -> None:
        self._handles, self._topic_of, self.config = handles, topic_of, config
        self.room = room or TurnRoom()

    def check(self, number: int, data: np.ndarray, at: int, now: Now) -> Check:
        """See Handles."""
        while not self.room.take(CHECK_BYTES):
            now = yield NOTHING
        size = _size_of(data, at)
        batch, topic = data[at : at + size], self._topic_of(number)
        records = None
        settings = None if topic is None else settings_of(topic, self.config)
        if topic is not None and settings is not None and settings.looks_into:
            partition = f"{topic.name}-{topic.index_of(number)}"
            judge = partial(verdict_of, batch, partition, settings, now.wall_ms)
            try:
                records = self._inflated_here(batch)
            except Undecodable:
                return MALFORMED
            verdict = judge(records) if records is not None else (yield judge)
            if verdict.error:
                return verdict
        if may_refer(data, at, size):
            return (yield from self._handles.check(number, data, at, now))
        wanted = None if settings is None else compression_of(settings)
        if wanted is None or codec_of(batch) == wanted.codec:
            return GOOD
        compress = partial(recompressed, batch, wanted)
        is_small = records is not None and self._fits(len(records), wanted)
        made = compress(records) if is_small else (yield compress)
        return Verdict(ErrorCode.NONE, [], made)

    def _inflated_here(self, batch: np.ndarray) -> Buffer | None:
        """A batch's records, if the loop has room for inflating and walking them.

        Raises Undecodable.
        """
        codec, left = codec_of(batch), min(self.room.left, LOOP_BYTES_MAX)
        most = left if codec == Codec.NONE else min(left, LOOP_INPUT_BYTES_MAX)
        if len(batch) > most:
            return None
        try:
            records = decompress(codec, batch.data[BATCH_HEADER_BYTES:], left)
        except Undecodable as reason:  # Perhaps at the very end.
            self.room.take(left)
            if isinstance(reason, InflatesTooFar):
                return None
            raise
        self.room.take(len(records))
        return records

    def _fits(self, size: int, wanted: Compression) -> bool:
        """Take room to compress `size` bytes in the loop; False: there is not enough."""
        most = wanted.bytes_max // LOOP_COMPRESSED_PART
        return size <= most and self.room.take(ROOM_BYTES * size // (wanted.bytes_max // 2))

    def rule_of(self, number: int) -> HandleRule | None:
        """See Handles."""
        return self._handles.rule_of(number)


def _size_of(data: np.ndarray, at: int) -> int:
    length_at = at + BATCH_LENGTH_AT
    return BATCH_OVERHEAD_BYTES + int.from_bytes(data[length_at : length_at + 4].tobytes())


_MALFORMED = f"its records are malformed, or inflate to more than {INFLATED_BYTES_MAX} bytes"
MALFORMED = Verdict(ErrorCode.INVALID_RECORD, [RefusedRecord(0, _MALFORMED)])


def verdict_of(
    batch: np.ndarray,
    partition: str,
    settings: TopicSettings,
    wall_ms: int,
    records: Buffer | None = None,
) -> Verdict:
    """The verdict on a batch, whose `records` may be inflated already; at most REASONS_MAX invalid
    records are named."""
    first, last = (
        max(0, wall_ms - settings.timestamp_before_max_ms),
        min(np.iinfo(np.int64).max, wall_ms + settings.timestamp_after_max_ms),
    )
    limits = np.zeros(LIMIT_WORDS, np.int64)
    limits[L_NEEDS_KEY], limits[L_FIRST_MS], limits[L_LAST_MS] = settings.compacts, first, last
    refused = new_refused(REASONS_MAX)
    if not _are_whole(batch, limits, refused, records):
        return MALFORMED
    if refused[R_KEYLESS, 0]:
        words = f"Compacted topic cannot accept message without key in topic partition {partition}."
        return Verdict(ErrorCode.INVALID_RECORD, _named(refused[R_KEYLESS], words))
    if settings.log_append_time or not refused[R_LATE, 0]:
        return GOOD
    words = f"Its timestamp is out of range: it should be within [{first}, {last}]."
    return Verdict(ErrorCode.INVALID_TIMESTAMP, _named(refused[R_LATE], words))


def _named(places: np.ndarray, words: str) -> list[RefusedRecord]:
    return [RefusedRecord(each, words) for each in places[1 : 1 + places[0]].tolist()]


def _are_whole(
    batch: np.ndarray, limits: np.ndarray, refused: np.ndarray, records: Buffer | None
) -> bool:
    """Whether a whole batch's records are well-formed; notes those that are to be refused."""
    array, facts = read_only(batch), new_facts(1)
    count = scan_batches(array, 0, len(array), facts)
    assert count == 1, "it was seen to be a whole batch"
    if codec_of(batch) != Codec.NONE:
        try:
            array = read_only(records if records is not None else _inflated(batch))
        except Undecodable:
            return False
        facts[B_RECORDS_AT, 0], facts[B_RECORDS_END, 0] = 0, len(array)
    return bool(check_records(array, facts, limits, new_columns(1), refused))


def _inflated(batch: np.ndarray) -> Buffer:
    return decompress(codec_of(batch), batch.data[BATCH_HEADER_BYTES:], INFLATED_BYTES_MAX)
