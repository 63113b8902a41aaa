"""A footer is read from the end of a file, wherever that is."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smq.filer.local import LocalStore
from smq.model.errors import StoreError
from smq.model.segments import Segment
from smq.sealer.lake.footers import TAIL_BYTES, footer
from smq.testing.memory_store import MemoryStore

if TYPE_CHECKING:
    from smq.filer.store import Store

ROWS = 100_000


def segment_of(data: bytes) -> Segment:
    return Segment(1, 0, ROWS, "parquet", "topics/a/b/c.parquet", len(data), 0, ROWS, 0, 0, 1, 0)


@pytest.mark.parametrize("groups", [1, 2000], ids=["short", "longer than the tail"])
def test_all_of_it_is_read(tmp_path: Path, groups: int) -> None:
    sink = pa.BufferOutputStream()
    rows = pa.table({"_offset": list(range(ROWS))})
    pq.write_table(rows, sink, row_group_size=ROWS // groups)
    data = sink.getvalue().to_pybytes()
    assert len(data) > TAIL_BYTES
    stores: list[Store] = [LocalStore(tmp_path), MemoryStore(lambda: 1)]
    for store in stores:
        store.put("topics/a/b/c.parquet", data)
        found = footer(store, segment_of(data))
        assert (found.num_rows, found.num_row_groups) == (ROWS, groups)


def test_a_file_that_is_no_parquet_is_named() -> None:
    store = MemoryStore(lambda: 1)
    store.put("topics/a/b/c.parquet", b"nothing of the kind")
    with pytest.raises(StoreError, match="its footer cannot be read"):
        footer(store, segment_of(b"nothing of the kind"))
