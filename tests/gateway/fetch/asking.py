"""Fetches of two topics: how they are asked, and what their answers hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from smq.wire.records import read_batches
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import batch, topic

T, U = topic("t", range(1, 3)), topic("u", range(3, 4))
IDS = {"t": T.id, "u": U.id}
LARGE_BYTES = 1 << 20


def wanted(
    name: str = "t", *partitions: FetchPartition, topic_id: UUID | None = None, **fields: int
) -> FetchTopic:
    """A topic of a request: partition 0 if none is given."""
    fields = {"partition_max_bytes": LARGE_BYTES} | fields
    return FetchTopic(
        topic=name,
        topic_id=topic_id or IDS.get(name, UUID(int=99)),
        partitions=list(partitions) or [FetchPartition(**fields)],  # type: ignore[arg-type]
    )


def fetch(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    return FetchRequest(topics=list(topics), **fields)


def new_bench(tmp_path: Path) -> ShardBench:
    """Batches at 0-2, 3 and 4-5 of partition 0 of t; the others are empty."""
    bench = ShardBench(tmp_path, T, U)
    for values in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"]):
        bench.appender.append("t", 0, batch(*values))
    return bench


def rows(response: Any) -> Iterator[PartitionData]:
    for each in response.responses:
        yield from each.partitions


def row(response: Any) -> PartitionData:
    """The only partition of an answer."""
    [only] = rows(response)
    return only


def offsets(data: PartitionData) -> list[int]:
    """The offsets of the records in an answer."""
    records: Any = data.records
    return [record.offset for each in read_batches(records) for record in each.records()]
