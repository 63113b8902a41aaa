"""What a shard tells who asks for batches that the disk cannot read now, over a real socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.shard.commands import BATCHES_BYTES_MAX
from smq.wire.internal.messages import Batches, FindEnds, RawBatches
from tests.app.shard.test_commands import NUMBER, Bench
from tests.shard.shard_bench import SEGMENT_BYTES


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_batches_that_cannot_be_read_now_are_none_and_the_answer_says_so(bench: Bench) -> None:
    for _ in range(30):
        bench.append(b"v" * (SEGMENT_BYTES // 3))
    segment = bench.log.wal.segments[0]
    segment.bad_pages.note(0, 0, [0])
    segment.bad_tried_ms = bench.log.bad_tried_ms = bench.log.now_ms = 0
    found = bench.answer_to(Batches(NUMBER, 0, BATCHES_BYTES_MAX))
    assert found == RawBatches(0, is_unread=True)
    _, end = bench.ask(FindEnds(NUMBER))
    assert bench.answer_to(Batches(NUMBER, end, BATCHES_BYTES_MAX)) == RawBatches(0)
