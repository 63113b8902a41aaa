"""Validates the records of batches before appending them, for topics that require it.

    a compacted topic, or smq.validate=records   records are whole, their times within limits
    a compacted topic                            each record has a key
    compression.type other than `producer`       then the batch is recompressed

Kafka's LogValidator does this for all topics. Validation inflates the batch in the shard's loop,
while others wait: a batch that inflates to more than INFLATED_BYTES_MAX is refused.
"""

from collections.abc import Callable

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import BATCH_LENGTH_AT, BATCH_OVERHEAD_BYTES
from shm.kernels.record.records import (
    B_COUNT,
    B_RECORDS_AT,
    B_RECORDS_END,
    C_KEY_LENGTH,
    C_TIMESTAMP,
    RECORD_BYTES_MIN,
    new_columns,
    new_facts,
    scan_batches,
    walk_batches,
)
from shm.kernels.record.references import may_refer
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.topic_configs import TopicSettings, own_or_default
from smq.shard.answers import RefusedRecord
from smq.shard.recompression import compression_of, recompressed
from smq.shard.references import GOOD, REASONS_MAX, Handles, Rule, Verdict
from smq.wire.inflate import inflate

MiB = 1024 * 1024
INFLATED_BYTES_MAX = 8 * MiB  # Some ten milliseconds.
NO_TIME = -1


def looks_into(topic: Topic, config: Config) -> bool:
    """Whether batches for a topic are looked into."""
    validates = own_or_default("smq.validate", topic.configs, config) == "records"
    compacts = TopicSettings.of(topic.configs, config).compacts
    return validates or compacts or compression_of(topic.configs) is not None


class Validation:
    """Checks the records of batches, and with `handles` their handles.

    `topic_of` a partition's number is its topic, if it is led.
    """

    def __init__(
        self, handles: Handles, topic_of: Callable[[int], Topic | None], config: Config
    ) -> None:
        self._handles, self._topic_of, self.config = handles, topic_of, config

    def check(self, number: int, data: np.ndarray, at: int, wall_ms: int) -> Verdict:
        """See Handles."""
        size = _size_of(data, at)
        topic = self._topic_of(number)
        if topic is not None and looks_into(topic, self.config):
            settings = TopicSettings.of(topic.configs, self.config)
            name = f"{topic.name}-{topic.partition_numbers.index(number)}"
            verdict = verdict_of(data[at : at + size], name, settings, wall_ms)
            if verdict.error:
                return verdict
        if may_refer(data, at, size):
            return self._handles.check(number, data, at, wall_ms)
        wanted = None if topic is None else compression_of(topic.configs)
        if wanted is None:
            return GOOD
        return Verdict(ErrorCode.NONE, [], recompressed(data[at : at + size], wanted))

    def rule_of(self, number: int) -> Rule | None:
        """See Handles."""
        return self._handles.rule_of(number)


def _size_of(data: np.ndarray, at: int) -> int:
    length_at = at + BATCH_LENGTH_AT
    return BATCH_OVERHEAD_BYTES + int.from_bytes(data[length_at : length_at + 4].tobytes())


def verdict_of(batch: np.ndarray, partition: str, settings: TopicSettings, wall_ms: int) -> Verdict:
    """The verdict on a batch; at most REASONS_MAX invalid records are named."""
    columns = _columns_of(batch)
    if columns is None:
        reason = f"its records are malformed, or inflate to more than {INFLATED_BYTES_MAX} bytes"
        return Verdict(ErrorCode.INVALID_RECORD, [RefusedRecord(0, reason)])
    if settings.compacts:
        words = f"Compacted topic cannot accept message without key in topic partition {partition}."
        keyless = np.flatnonzero(columns[C_KEY_LENGTH] < 0)[:REASONS_MAX].tolist()
        if keyless:
            return Verdict(
                ErrorCode.INVALID_RECORD, [RefusedRecord(each, words) for each in keyless]
            )
    times = columns[C_TIMESTAMP]
    first, last = (
        max(0, wall_ms - settings.timestamp_before_max_ms),
        min(np.iinfo(np.int64).max, wall_ms + settings.timestamp_after_max_ms),
    )
    late = np.flatnonzero(((times < first) & (times != NO_TIME)) | (times > last))
    if settings.log_append_time or not len(late):
        return GOOD
    words = f"Its timestamp is out of range: it should be within [{first}, {last}]."
    refused = [RefusedRecord(each, words) for each in late[:REASONS_MAX].tolist()]
    return Verdict(ErrorCode.INVALID_TIMESTAMP, refused)


def _columns_of(batch: np.ndarray) -> np.ndarray | None:
    """The records of a whole batch; None: they are malformed, or inflate to too much."""
    array, facts = read_only(batch), new_facts(1)
    count = scan_batches(array, 0, len(array), facts)
    assert count == 1, "it was seen to be a whole batch"
    arena, inflated = inflate(array, facts[:, :1], INFLATED_BYTES_MAX)
    room = int(inflated[B_RECORDS_END, 0] - inflated[B_RECORDS_AT, 0]) // RECORD_BYTES_MIN
    records = int(inflated[B_COUNT, 0])
    columns = new_columns(min(records, room))
    if records > room or walk_batches(arena, inflated, 0, 1, columns) < 0:
        return None
    return columns
