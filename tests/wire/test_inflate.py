"""Batches inflated into one arena, some at a time, a bad one to nothing."""

import numpy as np

from shm.arrow import read_only
from shm.kernels.record.records import B_RECORDS_AT, B_RECORDS_END, new_facts, scan_batches
from smq.wire.compression import Codec
from smq.wire.inflate import inflate
from smq.wire.records import Record, write_batch

PLAIN, ZSTD = (
    write_batch([Record(0, 1, None, b"v" * 100)], compression=codec)
    for codec in (Codec.NONE, Codec.ZSTD)
)


def facts_of(data: np.ndarray) -> np.ndarray:
    facts = new_facts(len(data))
    count = scan_batches(data, 0, len(data), facts)
    assert count > 0
    return facts[:, :count]


def records(arena: np.ndarray, facts: np.ndarray) -> list[bytes]:
    spans = zip(facts[B_RECORDS_AT], facts[B_RECORDS_END], strict=True)
    return [arena[start:end].tobytes() for start, end in spans]


def test_a_plain_batch_is_not_copied() -> None:
    data = read_only(PLAIN * 2)
    arena, facts, _ = inflate(data, facts_of(data))
    assert arena is data
    assert records(arena, facts) == [PLAIN[61:]] * 2


def test_plain_compressed_and_broken_batches_share_an_arena() -> None:
    broken = ZSTD[:70] + b"\0" * (len(ZSTD) - 70)
    data = read_only(PLAIN + ZSTD + broken)
    arena, facts, _ = inflate(data, facts_of(data))
    assert records(arena, facts) == [PLAIN[61:], PLAIN[61:], b""]


def test_an_arena_ends_with_the_batch_that_fills_it() -> None:
    data = read_only(ZSTD * 3)
    arena, facts, _ = inflate(data, facts_of(data), arena_bytes=150)
    assert records(arena, facts) == [PLAIN[61:]] * 2
