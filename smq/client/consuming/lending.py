"""The last batch of a consumer, while the caller has it: lent, or copied for a loop.

Positions are past a batch that is lent. They go back if the ring overtakes it, if the caller never
got it, and to the last record given if a loop stops in its middle.

    for record in consumer: ...

A loop may take long over each record, stop anywhere, and commit in the middle of a batch. So
records are copies, which no ring overtakes, and positions follow the last yielded record, not the
batch.
"""

from collections.abc import Iterator, Mapping, Sequence

from smq.client.consuming.batch.batch import Batch
from smq.client.consuming.batch.chunk import Record
from smq.client.consuming.source.reading import Move, Reading
from smq.client.consuming.source.source import Taken
from smq.client.errors import Overrun
from smq.client.kafka.offsets import INT63_END
from smq.client.names import TopicPartition
from smq.client.reference import Payloads


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


class Lending:
    """At most one batch at a time: `give_back` ends it before the next."""

    def __init__(self, reading: Reading, payloads: Payloads) -> None:
        self._reading, self._payloads = reading, payloads
        self._lent: Batch | None = None
        self._moves: list[Move] = []  # Those of that batch.
        self._walk: Walk | None = None

    def lend(self, taken: list[Taken]) -> Batch:
        """What has been taken, as a batch."""
        chunks = [chunk for each in taken for chunk in each.chunks or ()]
        for chunk in chunks:
            chunk.payloads = self._payloads
        moves = self._moves = self._reading.moves
        checks = [each.is_intact for each in taken if each.batches.is_lent]
        self._lent = Batch(chunks, checks, lambda intact: self._returned(moves, intact))
        return self._lent

    def copies(self, batch: Batch, ends: Mapping[TopicPartition, int]) -> Iterator[Record]:
        """Release the lent batch; its records as copies. None if the ring has overtaken it."""
        if not batch:
            return iter(())
        moves = self._moves
        try:
            with batch:
                copied = batch.copy()
        except Overrun:
            return iter(())
        self._walk = Walk(self._reading, copied, moves, ends)
        return self._walk.records()

    def leave(self, name: TopicPartition) -> None:
        """Read a partition's records again that a loop has not yielded."""
        if self._walk is not None:
            self._walk.leave(name)

    def give_back(self) -> None:
        """End the loop, and release the batch. Raises Overrun."""
        if self._walk is not None:
            self._walk.stop()
            self._walk = None
        self.release()

    def release(self) -> None:
        """Release the batch. Raises Overrun."""
        if self._lent is not None:
            self._lent.release()

    def put_back(self) -> None:
        """Undo the last take, unless its batch was given to the caller."""
        if not self._reading.is_given:
            self._lent = None
            self._reading.put_back()

    def _returned(self, moves: list[Move], is_intact: bool) -> None:  # noqa: FBT001  (a callback)
        if not is_intact:
            self._reading.go_back(moves)
        self._lent = None
