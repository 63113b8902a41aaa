"""Reads a Parquet column of bytes value by value, whatever its pages inflate to.

Arrow inflates a page as a whole, and earlier versions sealed records that compress a thousand
times into pages of up to 2 GiB. Here a page is a stream: one value and a block are in memory.

    column chunk = [dictionary page] page …       page = header (Thrift, compact), body
    body         = levels, values                 compressed as a whole (pages of version 1)
    levels       = u32 length, hybrid runs        repetition, then definition; left out where 0
    values       = u32 length, bytes; …           or (width, hybrid runs) into the dictionary

Source: the Parquet format, Encodings.md and parquet.thrift. Only what our own writer has ever
written is read: zstd or nothing, plain values or a dictionary.
"""

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

DICTIONARY_PAGE = 2
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
BLOCK_BYTES = 64 * 1024  # Inflated at a time, beside a larger value's own bytes.
# Fields of a page's header, and of the headers of its two kinds: values, encoding.
_TYPE, _COMPRESSED_BYTES, _DATA, _DICTIONARY, _COUNT, _ENCODING = 1, 3, 5, 7, 1, 2
# Thrift's compact types.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


class Shape(NamedTuple):
    """The highest repetition and definition level of a column."""

    repetition_max: int
    definition_max: int


class PageValues:
    """Values of a column: their bytes one after the other, and their lengths (-1: null)."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lengths = array("i")

    def add(self, value: bytes | None) -> None:
        """Append a short value."""
        self.lengths.append(-1 if value is None else len(value))
        self.data += value or b""

    def array(self) -> pa.Array:
        """All of it, as binary."""
        lengths = np.frombuffer(self.lengths, np.int32)
        offsets = np.concatenate([[0], lengths.clip(0).cumsum()]).astype(np.int32)
        valid = np.packbits(lengths >= 0, bitorder="little")
        buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


class ColumnReader:
    """Reads a column chunk of a file row by row, from its first row on."""

    def __init__(self, data: memoryview, chunk: Any, shape: Shape) -> None:  # noqa: ANN401  (pyarrow's)
        self._shape = shape
        self._codec = _codec_of(chunk)
        self._pages = _pages(data, chunk)
        self._dictionary: list[bytes] = []
        self._repetition = self._definition = np.zeros(0, np.uint8)
        self._indices: np.ndarray | None = None
        self._entry = self._value = 0
        self._stream = _Stream(data[:0], None)

    def skip(self, rows: int) -> None:
        """Pass over rows. Pages without repetition are not inflated for it."""
        nowhere = None
        while rows:
            if self._entry == len(self._definition):
                page = self._next_page()
                if not self._shape.repetition_max and page.values <= rows:
                    rows -= page.values
                    continue
                self._begin(page)
            self.row_into(nowhere)
            rows -= 1

    def row_into(self, column: PageValues | None) -> int:
        """Append the next row's values to a column, or to none; returns how many."""
        if self._entry == len(self._definition):
            self._begin(self._next_page())
        count = self._entry_into(column)
        while self._entry < len(self._definition) and self._repetition[self._entry]:
            count += self._entry_into(column)
        return count

    def _entry_into(self, column: PageValues | None) -> int:
        level, highest = int(self._definition[self._entry]), self._shape.definition_max
        self._entry += 1
        if level == highest:
            self._value_into(column)
        elif self._shape.repetition_max and level == 0:
            return 0  # An empty list.
        elif column is not None:
            column.add(None)
        return 1

    def _value_into(self, column: PageValues | None) -> None:
        if self._indices is not None:
            value = self._dictionary[self._indices[self._value]]
            self._value += 1
            if column is not None:
                column.add(value)
            return
        length = self._stream.length()
        if column is not None:
            column.lengths.append(length)
        self._stream.move(length, None if column is None else column.data)

    def _next_page(self) -> "_Page":
        page = next(self._pages, None)
        if page is not None and page.type == DICTIONARY_PAGE:
            stream = _Stream(page.body, self._codec)
            self._dictionary = [stream.value() for _ in range(page.values)]
            page = next(self._pages, None)
        if page is None:
            raise pa.ArrowInvalid("a column ends before its rows")
        return page

    def _begin(self, page: "_Page") -> None:
        stream, shape = _Stream(page.body, self._codec), self._shape
        zeros = np.zeros(page.values, np.uint8)
        self._repetition = stream.levels(page.values, 1) if shape.repetition_max else zeros
        width = shape.definition_max.bit_length()
        self._definition = stream.levels(page.values, width) if width else zeros
        self._entry = self._value = 0
        self._stream, self._indices = stream, None
        if page.encoding in {PLAIN_DICTIONARY, RLE_DICTIONARY}:
            width = stream.take(1)[0]
            count = int((self._definition == shape.definition_max).sum())
            self._indices = _hybrid(stream.rest(), count, width, np.int32)
        elif page.encoding != PLAIN:
            raise pa.ArrowInvalid(f"a page of encoding {page.encoding}")


class _Page(NamedTuple):
    type: int
    values: int
    encoding: int
    body: memoryview


def longest_in_dictionary(data: memoryview, chunk: Any) -> int:  # noqa: ANN401  (pyarrow's)
    """The bytes of the longest value in the dictionary of a column chunk, 0: it has none."""
    page = next(_pages(data, chunk), None)
    if page is None or page.type != DICTIONARY_PAGE:
        return 0
    stream, longest = _Stream(page.body, _codec_of(chunk)), 0
    for _ in range(page.values):
        length = stream.length()
        stream.move(length, None)
        longest = max(longest, length)
    return longest


def _codec_of(chunk: Any) -> str | None:  # noqa: ANN401  (pyarrow's)
    return None if chunk.compression == "UNCOMPRESSED" else str(chunk.compression).lower()


def _pages(data: memoryview, chunk: Any) -> Iterator[_Page]:  # noqa: ANN401  (pyarrow's)
    at = chunk.data_page_offset
    if chunk.has_dictionary_page:
        at = min(at, chunk.dictionary_page_offset)
    end = at + chunk.total_compressed_size
    while at < end:
        header, at = _read_struct(data, at)
        body = data[at : at + header[_COMPRESSED_BYTES]]
        at += len(body)
        facts = header.get(_DATA) or header.get(_DICTIONARY)
        if facts is None:
            raise pa.ArrowInvalid(f"a page of type {header[_TYPE]}")
        yield _Page(header[_TYPE], facts[_COUNT], facts[_ENCODING], body)


class _Stream:
    """The inflated bytes of a page's body."""

    def __init__(self, body: memoryview, codec: str | None) -> None:
        stream = pa.BufferReader(pa.py_buffer(body))
        self._stream = stream if codec is None else pa.CompressedInputStream(stream, codec)
        self._block, self._at = b"", 0

    def take(self, count: int) -> bytes:
        """The next few bytes."""
        while len(self._block) - self._at < count:
            more = self._stream.read(max(BLOCK_BYTES, count))
            if not more:
                raise pa.ArrowInvalid("a page ends before its values")
            self._block, self._at = self._block[self._at :] + more, 0
        taken = self._block[self._at : self._at + count]
        self._at += count
        return taken

    def length(self) -> int:
        """The length in front of a value."""
        return int.from_bytes(self.take(4), "little")

    def move(self, count: int, to: bytearray | None) -> None:
        """Append the next bytes to `to`, or drop them, a block at a time."""
        while count:
            taken = self.take(min(count, max(1, len(self._block) - self._at)))
            if to is not None:
                to += taken
            count -= len(taken)

    def value(self) -> bytes:
        """A whole value."""
        value = bytearray()
        self.move(self.length(), value)
        return bytes(value)

    def rest(self) -> bytes:
        """All that is left."""
        return self._block[self._at :] + bytes(self._stream.read())

    def levels(self, count: int, width: int) -> np.ndarray:
        """The levels in front of the values."""
        return _hybrid(self.take(self.length()), count, width, np.uint8)


def _hybrid(data: bytes, count: int, width: int, dtype: type[np.integer]) -> np.ndarray:
    """So many numbers of `width` bits: runs of one number, or eight numbers packed at a time."""
    out, filled, at = np.zeros(count, dtype), 0, 0
    while filled < count and width:
        head, at = _read_varint(data, at)
        if head & 1:
            packed = np.frombuffer(data, np.uint8, (head >> 1) * width, at)
            bits = np.unpackbits(packed, bitorder="little").reshape(-1, width)[: count - filled]
            part = out[filled : filled + len(bits)]
            for bit in range(width):
                part |= bits[:, bit].astype(dtype) << bit
            at, filled = at + len(packed), filled + len(part)
        else:
            end = at + (width + 7) // 8
            out[filled : filled + (head >> 1)] = int.from_bytes(data[at:end], "little")
            at, filled = end, filled + (head >> 1)
    return out


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    bits = shift = 0
    while True:
        byte = data[at]
        bits |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return bits, at


def _read_struct(data: memoryview, at: int) -> tuple[dict[int, Any], int]:
    """The fields of a Thrift struct by number."""
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            zigzag, at = _read_varint(data, at)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        fields[number], at = _read_value(data, at, head & 15)
    return fields, at + 1


def _read_value(data: memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in {_TRUE, _FALSE}:
        return kind == _TRUE, at
    if kind == _STRUCT:
        return _read_struct(data, at)
    if kind in {_BYTE, _DOUBLE}:
        return None, at + (1 if kind == _BYTE else 8)
    if kind in {_LIST, _SET}:
        raise pa.ArrowInvalid("a page's header has a list")  # parquet.thrift has none there.
    number, at = _read_varint(data, at)
    if kind == _BINARY:
        return None, at + number
    return (number >> 1) ^ -(number & 1), at
