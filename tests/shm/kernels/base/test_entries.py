"""The index's columns: what derives from the table agrees with it, and version 1 is pinned."""

from shm.kernels.base import entries
from shm.kernels.base.entries import INDEX_DTYPES, INDEX_ENTRY_BYTES, LINK_COLUMNS
from shm.layout import Layout
from smq.log.files.filed_index import ENTRY


def test_the_columns_have_the_order_and_widths_of_version_1() -> None:
    pinned = {
        "position": "<i8", "base_offset": "<i8", "max_timestamp": "<i8", "partition": "<u4",
        "record_count": "<i4", "bytes": "<i4", "attributes": "<i2",
    }  # fmt: skip
    assert list(INDEX_DTYPES) == list(pinned)
    assert {name: dtype.str for name, dtype in INDEX_DTYPES.items()} == pinned
    assert INDEX_ENTRY_BYTES == 38


def test_kernels_find_the_columns_where_the_memory_map_has_them() -> None:
    layout = Layout(8192, 64, 3)
    for name, (at, dtype) in layout.index_columns().items():
        bytes_before, width = getattr(entries, name.upper())
        assert (layout.index_at + 64 * bytes_before, width) == (at, dtype.itemsize)


def test_filed_tables_have_the_same_columns_in_an_order_of_their_own() -> None:
    assert ENTRY.names is not None
    assert ENTRY.fields is not None
    assert {name: ENTRY[name] for name in ENTRY.names if name != "unused"} == INDEX_DTYPES
    assert [ENTRY.fields[name][1] for name in ENTRY.names] == [0, 4, 8, 16, 24, 32, 36, 38]
    assert ENTRY.itemsize == 40


def test_each_private_column_has_a_number_of_its_own() -> None:
    numbers = {
        name: value for name, value in vars(entries).items()
        if name.startswith("LINK_") and name != "LINK_COLUMNS"
    }  # fmt: skip
    assert sorted(numbers.values()) == list(range(LINK_COLUMNS))
