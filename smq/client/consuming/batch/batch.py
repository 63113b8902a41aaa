"""A batch: the records that a poll gives, in place, lent for a `with` block.

    with consumer.poll(timeout_s=1) as batch:
        table = batch.to_arrow()
        for record in batch: ...

With shared memory, values are views over the ring itself. After the block, or the next poll, every
method raises BatchReleased. Views that are kept longer (an Arrow table, a NumPy array, a
memoryview) are not protected: the ring overwrites their bytes. Keep `batch.copy()` instead.

The end of the block checks once more whether the ring has overtaken the batch, and raises Overrun
if so.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import call
from typing import TYPE_CHECKING, Self

from smq.client.consuming.batch.chunk import Chunk, Record
from smq.client.errors import BatchReleased, Overrun
from smq.client.names import TopicPartition
from smq.client.payload_formats import ARROW_STREAM, CONTENT_TYPE, NPY

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


CONTENT_TYPE_HEADER = CONTENT_TYPE.decode()


def _content_type(record: Record) -> bytes | None:
    """The first one: `send_array` writes its own before the caller's headers."""
    headers = record.each_header()
    return next((value for name, value in headers if name == CONTENT_TYPE_HEADER), None)


class Batch:
    """Records of some partitions, each partition's in order. Empty if none came in time.

    checks      each says whether a piece of lent memory is intact
    on_release  called once when the batch is given back, with whether all was intact
    """

    __slots__ = ("_checks", "_chunks", "_count", "_on_release")

    def __init__(
        self,
        chunks: Sequence[Chunk],
        checks: Sequence[Callable[[], bool]] = (),
        on_release: Callable[[bool], None] | None = None,
    ) -> None:
        self._chunks: Sequence[Chunk] | None = chunks
        self._count = sum(map(len, chunks))
        self._checks = checks
        self._on_release = on_release

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(map(Chunk.records, self._lent()))

    def __repr__(self) -> str:
        return f"<batch of {self._count} records{', given back' * (self._chunks is None)}>"

    def records(self) -> Iterator[Record]:
        """The records; those of a partition come in order."""
        return iter(self)

    def runs(self) -> Iterator[tuple[TopicPartition, Iterator[Record]]]:
        """The same, in runs of one partition; advancing to the next run drops the rest of this
        one."""
        return chain.from_iterable(map(Chunk.runs, self._lent()))

    def chunks(self) -> Sequence[Chunk]:
        """The same as they lie in memory, lent: for who makes no object of each record."""
        return self._lent()

    def to_arrow(self, columns: Sequence[str] | None = None) -> "pa.Table":
        """Columns topic, partition, offset, timestamp, key, value and headers, or those of them
        that are named: headers cost most.

        Keys and values longer than 12 bytes are not copied. In a header's key, bytes that are not
        UTF-8 become `\\xff` (`are_header_keys_text`). Raises KeyError if there is no such column.
        """
        from smq.client.consuming.batch.arrow_out import SCHEMA, to_table  # noqa: PLC0415  (slow)

        return to_table(self._lent(), SCHEMA.names if columns is None else columns)

    def are_append_times(self) -> "np.ndarray":
        """Of each row of `to_arrow`: whether its timestamp is when the broker appended it (bool).

        Otherwise it is when its producer created it (`message.timestamp.type`).
        """
        from smq.client.consuming.batch.arrow_out import are_append_times  # noqa: PLC0415  (slow)

        return are_append_times(self._lent())

    def are_header_keys_text(self) -> bool:
        """Whether the header keys of `to_arrow` are those of the records: all are UTF-8."""
        from smq.client.consuming.batch.arrow_out import are_header_keys_text  # noqa: PLC0415

        return are_header_keys_text(self._lent())

    def tables(self) -> "Iterator[pa.Table]":
        """The Arrow tables among the values, in the records' order: see `Record.table`.

        Yields records whose (first) content-type header is ARROW_STREAM, as `send_arrow` writes it;
        skips all others, and nulls. Columns are views over the batch, as in `to_arrow`.

        Raises BatchReleased. The iterator raises ValueError at a value that is not what its header
        says, naming topic, partition and offset; the next call continues after that record.
        """
        return map(Record.table, self._of_type(ARROW_STREAM))

    def arrays(self) -> "Iterator[np.ndarray]":
        """The NumPy arrays among the values, in the records' order: see `Record.array`.

        Yields records whose (first) content-type header is NPY, as `send_array` writes it; skips
        all others, and nulls. Each has the shape and dtype it was sent with, and is a read-only
        view over the batch.

        Raises BatchReleased. The iterator raises ValueError at a value that is not what its header
        says, naming topic, partition and offset; the next call continues after that record.
        """
        return map(Record.array, self._of_type(NPY))

    def _of_type(self, content_type: bytes) -> Iterator[Record]:
        """The records whose first content-type header says a type, and that are not null."""
        return (
            record
            for record in self.records()
            if record.value is not None and _content_type(record) == content_type
        )

    @property
    def size_bytes(self) -> int:
        """How much memory its records have; `copy` takes as much once more."""
        return sum(each.size_bytes for each in self._lent())

    def copy(self) -> "Batch":
        """The same records in memory of their own, which stays valid. Raises Overrun."""
        copied = Batch([chunk.copy() for chunk in self._lent()])
        if not self._is_intact():
            raise Overrun(f"the ring has overtaken {self._count} records: poll again")
        return copied

    def _is_intact(self) -> bool:
        return all(map(call, self._checks))

    def _lent(self) -> Sequence[Chunk]:
        if self._chunks is None:
            raise BatchReleased
        return self._chunks

    def release(self) -> None:
        """Return the batch. A second call does nothing. Raises Overrun."""
        if self._chunks is None:
            return
        for chunk in self._chunks:
            chunk.release()
        is_intact = self._is_intact()
        if self._on_release is not None:
            self._on_release(is_intact)
        self._chunks = None  # Last: the next poll repeats a release that was interrupted.
        if not is_intact:
            raise Overrun(f"the ring has overtaken {self._count} records: poll again")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except Overrun:
            if kind is None:  # Else the block's error propagates: an overrun may be its cause.
                raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.__exit__(kind)
