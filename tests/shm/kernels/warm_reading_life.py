"""A program: warms a reader's kernels, reads a log in every way, prints what compiled late."""

import sys
from typing import Any

from numba.core import event

from shm.warm.reader import warm_reader
from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import PollRoom, cut
from smq.client.consuming.source.lane import Lane
from smq.client.consuming.source.source import Partition
from smq.client.names import TopicPartition
from tests.shm.kernels.reader.test_lend import NUMBERS, Reader, Writer
from tests.shm.kernels.warm_life import Compilations


def main() -> None:
    writer = Writer()
    for _ in range(3):
        writer.append(0)
    writer.show(0)
    log = Reader(writer).log
    warm_reader()
    listener = Compilations()
    numba_event: Any = event
    numba_event.register("numba:compile", listener)
    lane = Lane(log, 1 << 20)
    lane.add([(NUMBERS[0], Partition(TopicPartition("t", 0), 1))])
    taken, _ = lane.take()
    assert taken is not None
    chunks, _ = cut(taken.batches, PollRoom(64 << 20))
    assert taken.is_intact()
    lane.is_ready()
    log.snapshot().is_intact()
    batch = Batch(chunks)
    assert batch.to_arrow().num_rows == batch.copy().to_arrow().num_rows == 5
    sys.stdout.writelines(f"{each}\n" for each in listener.names)


if __name__ == "__main__":
    main()
