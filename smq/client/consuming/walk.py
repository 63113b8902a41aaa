"""Records of a batch one by one, for loops over a consumer.

    for record in consumer: ...

Whoever takes records one by one takes his time over them, stops where he likes, and commits in the
midst. So they are copies, which no ring overtakes; and positions stand behind the record that was
given last, not behind the batch, which only its reader has seen.
"""

from collections.abc import Iterator, Mapping, Sequence

from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.source.reading import Move, Reading
from smq.client.kafka.offsets import INT63_END
from smq.client.names import TopicPartition


class Walk:
    """Through a batch of one's own, with the moves of partitions that it stands for.

    Of partitions that have an end nothing is given from there on.
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
        self._ours = {name for name, _, _ in moves}  # Those that nobody has moved meanwhile.
        for name, before, _ in moves:
            reading.partitions[name].position = before

    def records(self) -> Iterator[Record]:
        """Each once; those of a partition that is left meanwhile are left out from there on."""
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
        """Give no more of a partition: what was not given is read again."""
        self._ours.discard(name)
        self._reading.is_torn = True  # As the sources have it, all of it was given.

    def stop(self) -> None:
        """Have those that stand in the midst of the batch read again what is behind that."""
        for name, _, after in self._moves:
            partition = self._reading.partitions.get(name)
            if name in self._ours and partition is not None and partition.position != after:
                self._reading.stand_at(name, partition.position)
        self._ours.clear()
