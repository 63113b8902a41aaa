"""A record as a consumer sees it: a small tuple that fetches its fields when they are asked for."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from smq.client.payload_formats import read_array, read_table
from smq.model.references import NotAHandle

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from smq.client.consuming.chunk import Chunk
    from smq.client.reference import Payload

Found = TypeVar("Found")
Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


OffsetsIn = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
"""Offsets by partition, as a caller gives them: a plain tuple will do."""


class _Place(NamedTuple):
    offset: int
    timestamp_ms: int
    chunk: "Chunk"
    row: int


class Record(_Place):
    """A record, valid as long as the batch it came in; then its fields raise BatchReleased.

    `key` and `headers` are copies, `value` is a view of its bytes where they lie.
    """

    __slots__ = ()

    @property
    def value(self) -> memoryview | None:
        """The value's bytes where they lie; None is null."""
        chunk, row = self[2], self[3]
        starts, lengths = chunk.values or chunk.find_values()
        start, length = starts[row], lengths[row]
        return None if length < 0 else chunk.view[start : start + length]

    @property
    def key(self) -> bytes | None:
        """The key."""
        chunk, row = self[2], self[3]
        starts, lengths = chunk.keys or chunk.find_keys()
        start, length = starts[row], lengths[row]
        return None if length < 0 else bytes(chunk.view[start : start + length])

    @property
    def headers(self) -> Headers:
        """Keys and values. A key that is not UTF-8 encodes back with `surrogateescape`."""
        return self.chunk.headers_of(self.row)

    @property
    def payload(self) -> "Payload | None":
        """What the record stands for, or its value where it stands for nothing else; None is null.

        It is not read before it is used, and outlives the batch. Raises NotAHandle (a value that
        only says it were a handle), which names topic, partition and offset; StoreError (the filer
        is out of reach).
        """
        try:
            return self.chunk.payload_of(self.row, self.value)
        except NotAHandle as error:
            raise NotAHandle(f"{self._place()}: {error}") from error

    def array(self) -> "np.ndarray":
        """The NumPy array that the value is, in the .npy format, as `send_array` sends it.

        Shape, dtype and C or Fortran order are the sender's. It is a read-only view over `value`,
        and as long valid: keep a copy. The record's content-type header is not asked.

        Raises ValueError, naming topic, partition and offset: the value is null, or no such array.
        Raises BatchReleased.
        """
        return self._read(read_array)

    def table(self) -> "pa.Table":
        """The Arrow table that the value is, an IPC stream, as `send_arrow` sends it.

        Schema and rows are the sender's. Its columns are views over `value`, and as long valid:
        keep a copy. Their contents are not validated: see pyarrow's `validate(full=True)`. The
        record's content-type header is not asked.

        Raises ValueError, naming topic, partition and offset: the value is null, or no such stream.
        Raises BatchReleased.
        """
        return self._read(read_table)

    def _read(self, read: Callable[[memoryview], Found]) -> Found:
        value = self.value
        if value is None:
            raise ValueError(f"{self._place()}: its value is null")
        try:
            return read(value)
        except ValueError as error:
            raise ValueError(f"{self._place()}: {error}") from error

    def _place(self) -> str:
        """Which record it is, for whoever reads an error."""
        topic, partition = self.chunk.partition_of(self.row)
        return f"the record at offset {self.offset} of topic {topic}, partition {partition}"

    @property
    def topic(self) -> str:
        """The topic it is in."""
        return self.chunk.partition_of(self.row).topic

    @property
    def partition(self) -> int:
        """The partition it is in."""
        return self.chunk.partition_of(self.row).partition

    def __repr__(self) -> str:
        return f"<record {self.offset} of {self.topic}-{self.partition}>"
