"""The rows of unsealed records, read from a running broker."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

import numpy as np
import pyarrow as pa

from smq.client.client import Client
from smq.client.consuming.consumer import Consumer
from smq.client.errors import BatchTooLarge, BrokerUnavailable
from smq.client.names import TopicPartition
from smq.sealer.years import timestamps

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
POLL_S = 0.5
SILENCE_S = 30.0  # A partition's end is known, so silence for longer means that the broker is down.
BATCH_BYTES = 4 * 1024 * 1024  # Lent at a time, in addition to the rows kept.
ISOLATION_LEVEL = "read_committed"  # As in sealed segments, which have committed records only.


class TooMuch(Exception):
    """Records exceed the caller's bound; the message says of how many bytes."""


def live_rows(
    client: Client,
    topic: str,
    topic_id: UUID,
    starts: Mapping[int, int],
    *,
    bytes_max: int,
) -> tuple[pa.Table, dict[int, int]]:
    """The committed records of a topic from `starts` (by partition) to each partition's stable end,
    if it has this id.

    Returns their rows (SCHEMA) and those ends. A start that retention has deleted moves to the
    first record. Raises TooMuch, BrokerError, BrokerUnavailable.
    """
    with (
        client.consumer(
            start="earliest",
            batch_bytes_max=BATCH_BYTES,
            inflated_bytes_max=bytes_max,
            isolation_level=ISOLATION_LEVEL,
            topic_ids={topic: topic_id},
        ) as consumer,
        _too_much_told(),
    ):
        consumer.assign((topic, partition) for partition in starts)
        ends = {name.partition: end for name, end in consumer.find("latest").items()}
        for name, first in consumer.find("earliest").items():
            start = max(starts[name.partition], first)
            consumer.seek(topic, name.partition, min(start, ends[name.partition]))
        return _rows_up_to(consumer, topic, ends, bytes_max), ends


def _rows_up_to(
    consumer: Consumer, topic: str, ends: Mapping[int, int], bytes_max: int
) -> pa.Table:
    tables: list[pa.Table] = []
    size, deadline = 0, consumer.clock.monotonic_s() + SILENCE_S
    names = {TopicPartition(topic, each): end for each, end in ends.items()}
    while not is_read(consumer, topic, ends):
        position = sum(consumer.position(*each) for each in names)
        with consumer.poll_up_to(names, POLL_S) as batch:
            if len(batch):
                tables.append(_before(owned(batch.to_arrow(SCHEMA.names)), ends))
                size += tables[-1].nbytes
        if sum(consumer.position(*each) for each in names) > position:
            deadline = consumer.clock.monotonic_s() + SILENCE_S  # Aborted records count, too.
        if size > bytes_max:
            raise TooMuch(f"more than {bytes_max} bytes of records are not sealed yet")
        if consumer.clock.monotonic_s() > deadline:
            raise BrokerUnavailable(f"the rest of {topic} did not arrive for {SILENCE_S:.0f} s")
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def is_read(consumer: Consumer, topic: str, ends: Mapping[int, int]) -> bool:
    """Whether all positions have reached their ends; pauses partitions that have."""
    behind = [
        TopicPartition(topic, partition)
        for partition, end in ends.items()
        if consumer.position(topic, partition) < end
    ]
    for topic_, partition in set(consumer.assignment()) - set(behind):
        consumer.pause(topic_, partition)
    return not behind


def arrived_rows(consumer: Consumer, seconds: float, *, bytes_max: int) -> pa.Table:
    """Records that a consumer receives within `seconds` (SCHEMA). Raises TooMuch, BrokerError."""
    tables = [SCHEMA.empty_table()]
    size, deadline = 0, consumer.clock.monotonic_s() + seconds
    while (left := deadline - consumer.clock.monotonic_s()) > 0:
        with _too_much_told(), consumer.poll(min(left, POLL_S)) as batch:
            if len(batch):
                tables.append(owned(batch.to_arrow(SCHEMA.names)))
                size += tables[-1].nbytes
        if size > bytes_max:
            raise TooMuch(f"more than {bytes_max} bytes of records arrived within {seconds:g} s")
    return pa.concat_tables(tables)


@contextmanager
def _too_much_told() -> Iterator[None]:
    try:
        yield
    except BatchTooLarge as error:
        raise TooMuch(error.fact) from error


def owned(lent: pa.Table, names: Sequence[str] = SCHEMA.names) -> pa.Table:
    """Copy a batch's rows (`Batch.to_arrow`), or these columns, to memory of their own.

    A time outside the years 1 to 9999 becomes null, as in sealed segments.
    """
    columns = {name: lent[name] for name in names}
    if "timestamp" in columns:
        columns["timestamp"] = timestamps(lent["timestamp"].to_numpy().view(np.int64))
    return pa.table(columns).cast(pa.schema([SCHEMA.field(name) for name in names]))


def are_before(rows: pa.Table, ends: Mapping[int, int]) -> np.ndarray:
    """Of each row: whether it is before the end of its partition (bool)."""
    end_of = np.zeros(max(ends) + 1, np.int64)
    end_of[list(ends)] = list(ends.values())
    found: np.ndarray = rows["offset"].to_numpy() < end_of[rows["partition"].to_numpy()]
    return found


def _before(rows: pa.Table, ends: Mapping[int, int]) -> pa.Table:
    is_before = are_before(rows, ends)
    return rows if is_before.all() else rows.filter(pa.array(is_before))
