"""Records of a batch one by one, for loops over a consumer.

    for record in consumer: ...

A loop may take long over each record, stop anywhere, and commit in the middle of a batch. So
records are copies, which no ring overtakes, and positions follow the last yielded record, not the
batch.
"""

from collections.abc import Iterator, Mapping, Sequence

from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.source.reading import Move, Reading
from smq.client.kafka.offsets import INT63_END
from smq.client.names import TopicPartition


class Walk:
    """A loop's way through a copied batch. `moves` are those of the partitions in the batch.

    Records at or above a partition's end in `ends` are not yielded.
    """

    def __init__(
        self,
        reading: Reading,
        batch: Batch,
        moves: Sequence[Move],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._reading = reading
        self._batch = batch
        self._moves = moves
        self._ends = ends
        self._ours = {name for name, _, _ in moves}  # Those that nothing has moved meanwhile.
        for name, before, _ in moves:
            reading.partitions[name].position = before

    def records(self) -> Iterator[Record]:
        """Each record once; none of a partition after `leave`."""
        for name, records in self._batch.runs():
            partition = self._reading.partitions.get(name)
            if partition is None or name not in self._ours:
                continue
            end = self._ends.get(name, INT63_END)
            for record in records:
                if record.offset >= end:
                    partition.position = end
                    self.leave(name)
                    break
                partition.position = record.offset + 1
                yield record
                if name not in self._ours:
                    break
        for name, _, after in self._moves:
            if name in self._ours and name in self._reading.partitions:
                self._reading.partitions[name].position = after

    def leave(self, name: TopicPartition) -> None:
        """Yield no more of a partition: the rest is read again."""
        self._ours.discard(name)
        self._reading.is_torn = True  # The sources count all of it as given.

    def stop(self) -> None:
        """End: partitions in the middle of the batch continue at their positions."""
        for name, _, after in self._moves:
            partition = self._reading.partitions.get(name)
            if name in self._ours and partition is not None and partition.position != after:
                self._reading.stand_at(name, partition.position)
        self._ours.clear()
