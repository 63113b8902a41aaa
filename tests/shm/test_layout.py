"""Pins the memory map of a log: whoever changes these numbers raises LAYOUT_MAGIC.

A frame's layout is also that of the WAL on disk (docs/adr/formats-say-their-version.md).
"""

import numpy as np
import pytest

from shm import layout
from shm.kernels.base import words
from shm.kernels.base.entries import INDEX_DTYPES
from shm.layout import LAYOUT_MAGIC, Layout, layout_for

MiB = 1 << 20


def test_the_header_words_have_the_positions_of_layout_version_2() -> None:
    assert LAYOUT_MAGIC == 0x2514D53
    assert words.HEADER_BYTES == 4096
    pinned = {
        "MAGIC": 0, "RING_BYTES": 1, "INDEX_CAPACITY": 2, "PARTITION_CAPACITY": 3, "LOG": 4,
        "GENERATION": 5, "SEGMENT_BYTES": 6, "SEGMENT_END": 7, "TAIL": 8, "INDEX_TAIL": 16,
        "WRITTEN": 24, "SYNCED": 32, "RING_START": 40, "INDEX_KEEP": 41, "SPACE_END": 42,
        "SPACE_LIMIT": 43, "PARTITION_COUNT": 48, "CLAIMED": 56, "COUNTERS": 64,
    }  # fmt: skip
    assert {name: getattr(words, f"WORD_{name}") for name in pinned} == pinned
    counters = {name: word for name, word in vars(words).items() if name.startswith("COUNTER_")}
    assert sorted(counters.values()) == [*range(64, 75), 80]


def test_the_columns_of_a_partition_have_the_positions_of_layout_version_2() -> None:
    pinned = (
        "NUMBER", "FLAGS", "LOG_START", "LOG_END", "HIGH_WATERMARK", "LAST_STABLE", "SEALED_END",
        "EPOCH", "BATCH_BYTES_MAX", "TIMESTAMP_BEFORE_MAX", "TIMESTAMP_AFTER_MAX", "LAST_ENTRY",
        "UNSEALED_BYTES", "MAX_TIMESTAMP", "DIRTY", "UNSEALED_SINCE_MS", "OPEN_FROM", "ABORTED_END",
        "COMPACTED_END", "DECIDED_END",
    )  # fmt: skip
    assert [getattr(words, f"P_{name}") for name in pinned] == list(range(20))
    assert words.PARTITION_COLUMNS == 24


def test_the_fields_of_a_frame_and_of_a_batch_header_have_their_pinned_positions() -> None:
    frame = ("MAGIC", "CHECK", "POSITION", "SYNCED", "GENERATION", "BYTES", "PARTITION", "KIND")
    places = [getattr(words, f"FRAME_{name}_AT") for name in (*frame, "LEVEL")]
    assert places == [0, 4, 8, 16, 24, 28, 32, 36, 40]
    assert (words.FRAME_HEADER_BYTES, words.FRAME_ALIGNMENT_BYTES) == (48, 64)
    assert words.FRAME_MAGIC.to_bytes(4, "little") == b"SMQF"
    batch = (
        "BASE_OFFSET", "LENGTH", "LEADER_EPOCH", "MAGIC", "CRC", "ATTRIBUTES", "LAST_OFFSET_DELTA",
        "BASE_TIMESTAMP", "MAX_TIMESTAMP", "PRODUCER_ID", "PRODUCER_EPOCH", "BASE_SEQUENCE",
        "RECORD_COUNT",
    )  # fmt: skip
    places = [getattr(words, f"BATCH_{name}_AT") for name in batch]
    assert places == [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57]


def test_words_that_others_wait_for_have_a_cache_line_of_their_own() -> None:
    published = [words.WORD_TAIL, words.WORD_INDEX_TAIL, words.WORD_WRITTEN, words.WORD_SYNCED]
    lines = [word // 8 for word in published]
    assert len(set(lines)) == len(lines)
    assert words.WORD_SYNCED // 8 not in {words.WORD_RING_START // 8, words.WORD_WRITTEN // 8}


def test_the_parts_of_a_log_have_the_positions_of_layout_version_2() -> None:
    log = layout_for(64 * MiB, 16 * MiB, 1000)
    assert log == Layout(64 * MiB, 262_144, 1000)
    assert log.index_at == 4096 + 1000 * 192
    assert log.index_columns() == {
        "position": (196_096, np.dtype("<i8")),
        "base_offset": (196_096 + 8 * 262_144, np.dtype("<i8")),
        "max_timestamp": (196_096 + 16 * 262_144, np.dtype("<i8")),
        "partition": (196_096 + 24 * 262_144, np.dtype("<u4")),
        "record_count": (196_096 + 28 * 262_144, np.dtype("<i4")),
        "bytes": (196_096 + 32 * 262_144, np.dtype("<i4")),
        "attributes": (196_096 + 36 * 262_144, np.dtype("<i2")),
    }
    assert log.ring_at == 10_158_080
    assert log.total_bytes == log.ring_at + 64 * MiB


@pytest.mark.parametrize("partitions", [1, 7, 1000])
@pytest.mark.parametrize(("ring", "segment"), [(8192, 4096), (MiB, MiB // 2), (3 * MiB, MiB)])
def test_parts_are_aligned_and_never_overlap(ring: int, segment: int, partitions: int) -> None:
    log = layout_for(ring, segment, partitions)
    ends = [at + log.index_capacity * dtype.itemsize for at, dtype in log.index_columns().values()]
    starts = [at for at, _ in log.index_columns().values()]
    assert starts[1:] == ends[:-1]
    assert all(at % dtype.itemsize == 0 for at, dtype in log.index_columns().values())
    assert ends[-1] <= log.ring_at
    assert log.ring_at % layout.PAGE_BYTES == 0
    assert list(log.index_columns()) == list(INDEX_DTYPES)


def test_the_index_holds_two_segments_of_the_smallest_frames() -> None:
    log = layout_for(MiB, MiB, 1)
    assert log.index_capacity >= 2 * MiB // words.FRAME_BYTES_MIN
