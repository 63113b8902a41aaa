"""Of topics that deliver inline, what may hold a handle is not lent as it is."""

from pathlib import Path
from typing import Any

import numpy as np

from gateway.fetch.handle_search import Search
from shm.kernels.base.words import FLAG_FETCH_LEFT, P_FLAGS
from smq.model.now import Now
from smq.shard.checks import GOOD, Check
from smq.shard.produce import Producing
from smq.shard.references import NoFiler
from smq.shard.shard import Shard
from smq.testing.payloads import handle_batch, reference_to
from tests.shard.shard_bench import NOW_MS, SEGMENT_BYTES, Appender, new_shard, topic

INLINE = topic("inline", range(1, 2), {"smq.reference.delivery": "inline"})
HANDLE = reference_to(b"payload")


class AllGood(NoFiler):
    """Takes handles to anything."""

    def check(self, _number: int, _data: np.ndarray, _at: int, _now: Now) -> Check:
        yield from ()
        return GOOD


class Unchecked(Appender):
    """A shard that does."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        handles = AllGood()
        self.producing = Producing(shard.logs, shard.config, shard.drain, handles)


def lendable(shard: Shard, offset: int) -> int | None:
    """How many batches from an offset on go out as they are; None: the sealer is asked."""
    [led] = shard.led()
    found = led.log.find(led.number, offset, 1000, 1 << 20)
    assert found is not None
    plain = Search().before_handles(led.log, found)
    assert plain is None or plain.total_bytes == int(plain.spans[:, 1].sum())
    return None if plain is None else len(plain.spans)


def test_batches_before_the_first_handle_are_lent(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, INLINE)
    appender = Unchecked(shard)
    batches: list[list[Any]] = [[b"a"], [b"b"], [b"c", HANDLE], [b"d"]]
    for references in batches:
        appender.append("inline", 0, handle_batch(references, time_ms=NOW_MS))
    assert [lendable(shard, offset) for offset in range(5)] == [2, 1, None, None, 1]


def test_batches_that_left_the_ring_are_not_lendable(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, INLINE)
    appender = Appender(shard)
    for _ in range(8):
        appender.append("inline", 0, handle_batch([bytes(SEGMENT_BYTES // 2 + 1000)]))
    assert lendable(shard, 0) is None
    assert lendable(shard, 7) == 1


def test_an_answer_looks_through_so_many_bytes(tmp_path: Path) -> None:
    """Those before a handle count, and the batch that has it."""
    shard = new_shard(tmp_path, INLINE)
    appender, search = Unchecked(shard), Search()
    sizes = []
    for references in ([b"a"], [b"b"], [HANDLE], [b"d"]):
        sizes.append(len(handle_batch(references, time_ms=NOW_MS)))
        appender.append("inline", 0, handle_batch(references, time_ms=NOW_MS))
    [led] = shard.led()
    before = search.bytes_left
    found = led.log.find(led.number, 0, 1000, 1 << 20)
    assert found is not None
    assert search.before_handles(led.log, found) is not None
    assert before - search.bytes_left == sum(sizes[:3])
    assert not search.is_over


def test_a_topic_says_so_and_its_partitions_are_not_for_the_kernel(tmp_path: Path) -> None:
    plain = topic("plain", range(2, 3))
    shard = new_shard(tmp_path, INLINE, plain)
    for led in shard.led():
        flags = int(led.log.partitions.table[led.slot, P_FLAGS])
        assert bool(flags & FLAG_FETCH_LEFT) == led.delivers_inline == (led.topic is INLINE)
