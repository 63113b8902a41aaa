"""Tables filed beside full segments."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import FRAME_HEADER_BYTES
from smq.log.files.disk import OsDisk
from smq.log.files.filed_index import BLOCK_ENTRIES, ENTRY, VERSION, FiledIndex, is_of_our_version

START = 1 << 20


def table() -> FiledIndex:
    """Partition 1 has batches of 10 offsets from 100 on, partition 2 two batches from 0 on."""
    entries = np.zeros(7, ENTRY)
    entries["partition"] = [1, 2, 1, 1, 2, 1, 1]
    entries["base_offset"] = [100, 0, 110, 120, 5, 140, 150]  # 130 to 139 were damaged.
    entries["record_count"] = [10, 5, 10, 10, 5, 10, 10]
    entries["bytes"] = [200, 300, 200, 200, 300, 200, 200]
    entries["position"] = START + 256 * np.arange(7)
    return FiledIndex.sorted(entries, has_disk_frames=True)


def chosen(index: FiledIndex, number: int, offset: int, limit: int, bytes_max: int) -> list[int]:
    spans = np.zeros((10, 2), np.int64)
    count, total = index.choose(number, offset, limit, bytes_max, spans)
    assert total == spans[:count, 1].sum()
    return [(int(p) - FRAME_HEADER_BYTES - START) // 256 for p in spans[:count, 0]]


@pytest.mark.parametrize(
    ("offset", "limit", "bytes_max", "frames"),
    [
        (100, 160, 10_000, [0, 2, 3, 5, 6]),
        (0, 160, 10_000, [0, 2, 3, 5, 6]),
        (115, 160, 10_000, [2, 3, 5, 6]),
        (115, 120, 10_000, [2]),
        (115, 121, 10_000, [2, 3]),
        (115, 160, 450, [2, 3]),
        (115, 160, 1, [2]),
        (133, 160, 10_000, [5, 6]),
        (159, 160, 10_000, [6]),
        (160, 170, 10_000, []),
    ],
)
def test_choosing_gives_whole_batches_within_limits(
    offset: int, limit: int, bytes_max: int, frames: list[int]
) -> None:
    assert chosen(table(), 1, offset, limit, bytes_max) == frames


def test_ends_first_offsets_and_sums_are_by_partition() -> None:
    index = table()
    index.invariants()
    assert index.first_offsets == {1: 100, 2: 0}
    assert index.ends == {1: 160, 2: 10}
    assert [index.bytes_from(1, offset) for offset in (0, 100, 105, 110, 159, 160)] == [
        1000, 1000, 1000, 800, 200, 0,
    ]  # fmt: skip
    assert index.bytes_from(2, 0) == 600
    assert index.bytes_from(3, 0) == 0
    assert index.at_position(1, START + 512) == 1
    assert index.at_position(2, START + 512) == -1


def test_a_table_is_read_back_with_its_boot_id(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    table().save(OsDisk(), path, START, b"0123456789abcdef")
    loaded = FiledIndex.load(path, START)
    assert loaded is not None
    index, boot_id = loaded
    assert boot_id == b"0123456789abcdef"
    assert index.has_disk_frames
    assert (index.entries == table().entries).all()
    assert FiledIndex.load(path, START + 64) is None
    assert FiledIndex.load(tmp_path / "y.index", START) is None


def test_any_flipped_bit_is_noticed_and_any_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    table().save(OsDisk(), path, START, b"0123456789abcdef")
    good = path.read_bytes()
    for at in (*range(12), *range(16, len(good))):
        bad = bytearray(good)
        bad[at] ^= 4
        path.write_bytes(bad)
        assert FiledIndex.load(path, START) is None, f"byte {at}"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert FiledIndex.load(path, START) is None


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [
        ("partition", 0, 3),
        ("base_offset", 1, 109),
        ("record_count", 4, 0),
        ("position", 2, START),
        ("position", 6, START + 1),
    ],
)
def test_a_table_that_no_log_can_have_is_noticed(column: str, row: int, value: int) -> None:
    index = table()
    index.entries[column][row] = value
    with pytest.raises(AssertionError):
        index.invariants()


def test_a_table_of_another_version_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    assert not is_of_our_version(path)
    table().save(OsDisk(), path, START, b"0123456789abcdef")
    good = path.read_bytes()
    assert is_of_our_version(path)
    for version in (0, VERSION + 1, 255):
        path.write_bytes(good[:7] + bytes([version]) + good[8:])
        assert FiledIndex.load(path, START) is None
        assert not is_of_our_version(path)


def test_a_segment_of_padding_has_an_empty_table(tmp_path: Path) -> None:
    index = FiledIndex.sorted(np.zeros(0, ENTRY), has_disk_frames=False)
    index.save(OsDisk(), tmp_path / "x.index", START, b"0" * 16)
    loaded = FiledIndex.load(tmp_path / "x.index", START)
    assert loaded is not None
    assert loaded[0].ends == {}


@pytest.mark.parametrize("seed", range(5))
def test_the_first_entry_that_reaches_a_time_is_the_one_a_walk_finds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    entries = np.zeros(5 * BLOCK_ENTRIES, ENTRY)
    entries["partition"] = chance.integers(1, 3, len(entries))
    entries["base_offset"], entries["record_count"] = 10 * np.arange(len(entries)), 10
    entries["max_timestamp"] = np.arange(len(entries)) // 7 + chance.integers(0, 900, len(entries))
    index = FiledIndex.sorted(entries, has_disk_frames=False)
    for number in (1, 2, 3):
        mine = entries[entries["partition"] == number]
        ends, times = mine["base_offset"] + 10, mine["max_timestamp"]
        assert index.newest.get(number, -1) == max(times, default=-1)
        for _ in range(100):
            offset, limit = chance.integers(0, 10 * len(entries), 2).tolist()
            timestamp = int(chance.integers(0, 1800))
            fits = (times >= timestamp) & (ends > offset) & (mine["base_offset"] < limit)
            found = index.first_reaching(number, offset, limit, timestamp)
            assert (None if found is None else found["base_offset"]) == (
                mine["base_offset"][fits.argmax()] if fits.any() else None
            )
