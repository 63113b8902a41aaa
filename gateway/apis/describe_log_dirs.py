"""DescribeLogDirs (key 35), versions 1-5 (KIP-113, KIP-827, KIP-1066).

- There is one directory, that of the logs. A partition's size counts its unsealed bytes and its
  sealed segments, wherever the filer keeps them.
- Null topics mean all that this node leads. Unknown partitions are left out. Those of internal
  topics have no bytes.
- From 4: the size and the free space of the disk with the logs.
"""

from collections.abc import Iterator
from functools import partial

from gateway.context import Ask, ShardContext
from smq.model.catalog import InternalPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.shard.led import Led
from smq.shard.shard import Shard
from smq.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import DescribeStorage, Storage

PART_PARTITIONS = 300  # Per part of an answer: two milliseconds.


def handle(request: DescribeLogDirsRequest, context: ShardContext) -> Iterator[Ask]:
    """Ask the sealer for the sizes of sealed segments; answers in parts."""
    found = list(_wanted(request, context.shard))
    directory = _Directory(str(context.shard.config.log_dir))
    for first in range(0, max(1, len(found)), PART_PARTITIONS):
        part = found[first : first + PART_PARTITIONS]
        led = [each for each, _ in part if isinstance(each, Led)]
        # A partition's size is of the moment of what its log says: a seal may come meanwhile.
        unsealed_bytes = [each.unsealed_bytes() for each in led]
        sealed_ends = [each.offsets().sealed_end for each in led]
        question = DescribeStorage([each.number for each in led], sealed_ends)
        yield Ask([question], partial(directory.answer, part, unsealed_bytes))


def refuse(_request: DescribeLogDirsRequest, why: BrokerError) -> DescribeLogDirsResponse:
    """Describe nothing."""
    return DescribeLogDirsResponse(error_code=why.code)


_Found = tuple[Led | InternalPartition, int]  # (partition, its index)


def _wanted(request: DescribeLogDirsRequest, shard: Shard) -> Iterator[_Found]:
    if request.topics is None:
        topics = shard.catalog.all()
        pairs = [(topic.name, index) for topic in topics for index in range(topic.partition_count)]
    else:
        pairs = [(topic.topic, index) for topic in request.topics for index in topic.partitions]
    for name, index in dict.fromkeys(pairs):
        led = shard.find_named(name, index)
        if not isinstance(led, ErrorCode):
            yield led, index


class _Directory:
    """The directory of an answer. Its disk is measured once, so that all parts show the same
    row."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._disk: tuple[int, int] | None = None

    def answer(
        self, part: list[_Found], unsealed_bytes: list[int], answers: list[Storage | Failed]
    ) -> DescribeLogDirsResponse:
        """A part with the sizes that the sealer knows."""
        [storage] = answers
        if isinstance(storage, Failed):
            failed = DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=self._path
            )
            return DescribeLogDirsResponse(results=[failed])
        self._disk = self._disk or (storage.total_bytes, storage.usable_bytes)
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        sizes = map(sum, zip(unsealed_bytes, storage.sealed_bytes, strict=True))
        for led, index in part:
            size = next(sizes) if isinstance(led, Led) else 0
            row = DescribeLogDirsPartition(partition_index=index, partition_size=size)
            topics.setdefault(led.topic.name, []).append(row)
        total_bytes, usable_bytes = self._disk
        result = DescribeLogDirsResult(
            log_dir=self._path,
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
            topics=[
                DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()
            ],
        )
        return DescribeLogDirsResponse(results=[result])
