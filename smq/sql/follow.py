"""A query over new records: run repeatedly, each time over the records since the last run."""

from collections.abc import Iterator

import pyarrow as pa

from smq.client.client import Client
from smq.sql.session import QueryBounds, QueryRefused, QueryTopics, mentioned, run_over, understood
from smq.tables.live import ISOLATION_LEVEL, arrived_rows


def results(
    query: str, topics: QueryTopics, client: Client, bounds: QueryBounds, every_s: float
) -> Iterator[pa.RecordBatchReader]:
    """The results of a query over each interval's new records; skips intervals without any.

    Rows have the topic's typed columns as of the end of their interval. Raises QueryRefused,
    TooMuch, BrokerError, StoreError.
    """
    query = understood(query)
    names = mentioned(query, client.topics())
    if len(names) != 1:
        raise QueryRefused(f"a query that follows reads one topic, not {len(names)}")
    (topic,) = names
    bytes_max = bounds.memory_bytes // 2
    with client.consumer(
        topic, start="latest", inflated_bytes_max=bytes_max, isolation_level=ISOLATION_LEVEL
    ) as consumer:
        while True:
            rows = arrived_rows(consumer, every_s, bytes_max=bytes_max)
            if rows.num_rows:
                yield run_over(query, topic, rows, topics.schema(topic), bounds).to_reader()
