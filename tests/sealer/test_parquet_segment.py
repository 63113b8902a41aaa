"""Segments are read in steps; `test_parquet` compares what comes back with what was sent, and
`test_large_group` reads what is large in memory."""

from pathlib import Path

import pytest

from smq.filer.local import LocalStore
from smq.sealer.cold import Cache, ColdReader
from smq.testing.sealing import FakeShard
from smq.wire.markers import write_empty
from tests.sealer.sealed import batch, manifest_in, read_back, seal

BATCH_OFFSETS = 2**31  # That one batch can span.


@pytest.mark.parametrize("offsets", [1, BATCH_OFFSETS, BATCH_OFFSETS + 1, 2 * (BATCH_OFFSETS - 1)])
@pytest.mark.parametrize("is_alone", [True, False])
def test_records_on_both_sides_of_a_gap_of_any_size_are_read(
    tmp_path: Path, offsets: int, *, is_alone: bool
) -> None:
    """Data fault 18: two aborted batches that claimed 2**31 - 1 records made it unreadable."""
    far, half = 1 + offsets, (1 + offsets) // 2
    aborted = [
        write_empty(first, end, 0, -1) for first, end in ((1, half), (half, far)) if end > first
    ]
    shard = FakeShard([batch(0), *aborted, batch(far)])
    store = LocalStore(tmp_path / "filer")
    with manifest_in(tmp_path) as manifest:
        for first, end in ((0, 1), (1, far), (far, far + 1)) if is_alone else ((0, far + 1),):
            seal(store, shard, manifest, sealed_end=first, end=end)
        expected = [(0, b"value 0"), (far, b"value %d" % far)]
        for offset in (0, 1, far // 2, far - 1, far):
            read = read_back(store, manifest, tmp_path / "cache", offset=offset)
            assert read == [each for each in expected if each[0] >= offset]


def test_a_gap_far_behind_the_last_record_ends_where_the_segment_ends(tmp_path: Path) -> None:
    """Data fault 18: the batch of the last record cannot span it."""
    end = 3 * BATCH_OFFSETS
    aborted = [
        write_empty(i * BATCH_OFFSETS + (i == 0), (i + 1) * BATCH_OFFSETS, 0, -1) for i in range(3)
    ]
    shard, store = FakeShard([batch(0), *aborted]), LocalStore(tmp_path / "filer")
    with manifest_in(tmp_path) as manifest:
        seal(store, shard, manifest, sealed_end=0, end=end)
        cache = Cache(tmp_path / "cache", 1 << 20, lambda: 0, "life")
        reader = ColdReader(store, manifest, cache)
        for offset in (1, BATCH_OFFSETS - 1, BATCH_OFFSETS, end - 1):
            found = reader.read(1, offset, 1000)
            assert found is not None
            assert (found.length, found.next_offset) == (0, end)
