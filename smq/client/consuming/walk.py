"""Records of a batch one by one, for loops over a consumer.

    for record in consumer: ...

Whoever takes records one by one takes his time over them, stops where he likes, and commits in the
midst. So they are copies, which no ring overtakes; and positions stand behind the record that was
given last, not behind the batch, which only its reader has seen.
"""

from collections.abc import Iterator, Sequence

from smq.client.consuming.batch import Batch
from smq.client.consuming.reading import Move, Reading
from smq.client.consuming.record import Record


class Walk:
    """Through a batch of one's own, with the moves of partitions that it stands for."""

    def __init__(self, reading: Reading, batch: Batch, moves: Sequence[Move]) -> None:
        self._reading = reading
        self._batch = batch
        self._moves = moves
        self._left = {name for name, _, _ in moves}  # Those that nobody has moved meanwhile.
        self._is_stopped = False
        for name, before, _ in moves:
            reading.partitions[name].position = before

    def records(self) -> Iterator[Record]:
        """Each once; those of a partition that is moved meanwhile are left out from there on."""
        for name, records in self._batch.runs():
            partition = self._reading.partitions.get(name)
            if partition is None or name not in self._left:
                continue
            for record in records:
                partition.position = behind = record.offset + 1
                yield record
                if self._is_stopped:
                    return
                if partition.position != behind:
                    self._left.discard(name)
                    break
        for name, _, after in self._moves:
            if name in self._left and name in self._reading.partitions:
                self._reading.partitions[name].position = after

    def stop(self) -> None:
        """Have those that stand in the midst of the batch read again what is behind that."""
        for name, _, after in self._moves:
            partition = self._reading.partitions.get(name)
            if name in self._left and partition is not None and partition.position != after:
                self._reading.stand_at(name, partition.position)
        self._is_stopped = True
        self._left.clear()
