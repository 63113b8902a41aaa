"""Tables and arrays as the value of a record, in formats that others read too.

    a table     Arrow's IPC stream                               header content-type: ARROW_STREAM
    an array    NumPy's .npy: a short header, then its elements   header content-type: NPY

So a plain Kafka client may write or read them with Arrow or NumPy alone. Reading copies nothing:
columns and elements are views over the bytes that were read, and are read-only.

Of an array its dtype (byte order and fields too) and its shape come back. So does the order of its
elements in memory where it is C or Fortran contiguous; any other strides arrive in C order. Objects
have no bytes of their own and are refused, and so are masked arrays, whose mask would be lost.
"""

import math
import sys
import warnings
from io import BytesIO
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_TYPE = b"content-type"
ARROW_STREAM = b"application/vnd.apache.arrow.stream"
NPY = b"application/x-npy"

NPY_HEADER_BYTES_MAX = 64 * 1024  # The text of a dtype with a thousand fields; NumPy parses it.


def is_masked(value: object) -> bool:
    """Whether it is a masked array of NumPy's, whose module whoever has one has imported.

    Importing it here would have a child that is forked meanwhile wait for it for ever.
    """
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def write_table(table: "pa.Table | pa.RecordBatch") -> "pa.Buffer":
    """A table as an IPC stream. Raises TypeError."""
    import pyarrow as pa  # noqa: PLC0415  (only for callers that have tables)

    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise TypeError(f"table is a pyarrow Table or RecordBatch, not {type(table).__name__}")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


def read_table(data: Any) -> "pa.Table":  # noqa: ANN401  (any buffer)
    """The table in a value; its columns are views over it. Raises ValueError."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        table.validate()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"these bytes are no Arrow stream: {error}") from error
    return table


def write_array(array: np.ndarray) -> bytearray:
    """An array as .npy. Raises TypeError; ValueError: it has too many fields."""
    given: object = array
    if not isinstance(given, np.ndarray) or is_masked(given):
        raise TypeError(f"array is a plain numpy.ndarray, not {type(array).__name__}")
    if array.dtype.hasobject:
        raise TypeError(f"array has a dtype of plain bytes, not {array.dtype}, which has objects")
    facts = np.lib.format.header_data_from_array_1_0(array)
    head = BytesIO()
    # The first version whose header is long enough: 2.0 is for dtypes with many fields.
    write = np.lib.format.write_array_header_1_0
    if len(repr(facts)) > 2**15:
        write = np.lib.format.write_array_header_2_0
    write(head, facts)
    if head.tell() > NPY_HEADER_BYTES_MAX:  # No reader would accept it.
        raise ValueError(
            f"array has a dtype of {len(array.dtype.names or ())} fields, "
            f"which takes {head.tell()} bytes; {NPY_HEADER_BYTES_MAX} may be taken"
        )
    value = bytearray(head.getbuffer())
    at = len(value)
    value += bytes(array.nbytes)
    if array.nbytes:
        target = np.frombuffer(value, array.dtype, array.size, at)
        order: Literal["C", "F"] = "F" if facts["fortran_order"] else "C"
        target.reshape(array.shape, order=order)[...] = array
    return value


def read_array(data: Any) -> np.ndarray:  # noqa: ANN401  (any buffer)
    """The array in a value: a read-only view over it. Raises ValueError."""
    view = memoryview(data).cast("B")
    shape, order, dtype, at = _read_header(BytesIO(view[:NPY_HEADER_BYTES_MAX]))
    if dtype.hasobject:
        raise ValueError("an array of objects")
    count = math.prod(shape)
    if count * dtype.itemsize != len(view) - at:
        raise ValueError(f"an array of {count * dtype.itemsize} bytes in {len(view) - at} bytes")
    is_empty = len(view) == at
    elements = np.empty(count, dtype) if is_empty else np.frombuffer(view, dtype, count, at)
    array: np.ndarray = elements.reshape(shape, order=order)
    array.flags.writeable = False
    return array


class _Header(NamedTuple):
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype
    end: int


def _read_header(head: BytesIO) -> _Header:
    version = np.lib.format.read_magic(head)
    if version not in _READERS:
        raise ValueError(f"an array of format {version}, which is not known here")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy guesses at headers of Python 2, and says so.
            shape, is_fortran, dtype = _READERS[version](head, max_header_size=NPY_HEADER_BYTES_MAX)
    except (SyntaxError, TokenError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"an array whose header cannot be read: {error}") from error
    return _Header(shape, "F" if is_fortran else "C", dtype, head.tell())


_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
