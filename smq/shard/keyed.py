"""Records of compacted topics: each must have a key, as Kafka's LogValidator says.

A batch of such a topic is inflated and read before it is appended. What inflates to more than
INFLATED_BYTES_MAX is refused: the shard's loop does this, and others wait for it.
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
    RECORD_BYTES_MIN,
    new_columns,
    new_facts,
    scan_batches,
    walk_batches,
)
from shm.kernels.record.references import may_refer
from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.model.topic_configs import COMPACT
from smq.shard.answers import Refused
from smq.shard.references import GOOD, REASONS_MAX, Handles, Rule, Verdict
from smq.wire.inflate import inflate

MiB = 1024 * 1024
INFLATED_BYTES_MAX = 8 * MiB  # Some ten milliseconds.


class Keyed:
    """Checks the keys of batches, and with `handles` their handles.

    `topic_of` a partition's number is its topic, if it is led.
    """

    def __init__(self, handles: Handles, topic_of: Callable[[int], Topic | None]) -> None:
        self._handles, self._topic_of = handles, topic_of

    def check(self, number: int, data: np.ndarray, at: int, now_ms: int) -> Verdict:
        """See Handles."""
        size = _size_of(data, at)
        topic = self._topic_of(number)
        if topic is not None and COMPACT in topic.configs.get("cleanup.policy", ""):
            partition = topic.partition_numbers.index(number)
            refused = problems_of(data[at : at + size], f"{topic.name}-{partition}")
            if refused:
                return Verdict(ErrorCode.INVALID_RECORD, refused)
        return self._handles.check(number, data, at, now_ms) if may_refer(data, at, size) else GOOD

    def rule_of(self, number: int) -> Rule | None:
        """See Handles."""
        return self._handles.rule_of(number)


def _size_of(data: np.ndarray, at: int) -> int:
    length_at = at + BATCH_LENGTH_AT
    return BATCH_OVERHEAD_BYTES + int.from_bytes(data[length_at : length_at + 4].tobytes())


def problems_of(batch: np.ndarray, partition: str) -> list[Refused]:
    """What is wrong with the records of a batch for a compacted topic, of REASONS_MAX at most."""
    array, facts = read_only(batch), new_facts(1)
    count = scan_batches(array, 0, len(array), facts)
    assert count == 1, "it was seen to be a whole batch"
    arena, inflated = inflate(array, facts[:, :1], INFLATED_BYTES_MAX)
    room = int(inflated[B_RECORDS_END, 0] - inflated[B_RECORDS_AT, 0]) // RECORD_BYTES_MIN
    records = int(inflated[B_COUNT, 0])
    columns = new_columns(min(records, room))
    if records > room or walk_batches(arena, inflated, 0, 1, columns) < 0:
        reason = f"its records are malformed, or inflate to more than {INFLATED_BYTES_MAX} bytes"
        return [Refused(0, reason)]
    keyless = np.flatnonzero(columns[C_KEY_LENGTH] < 0)[:REASONS_MAX].tolist()
    words = f"Compacted topic cannot accept message without key in topic partition {partition}."
    return [Refused(record, words) for record in keyless]
