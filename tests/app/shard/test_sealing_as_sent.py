"""What a shard tells who seals what lies under an open transaction, over a real socket."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smq.app.shard.commands import BATCHES_BYTES_MAX
from smq.log.files.checkpoint import Aborted, TransactionsCopy
from smq.wire.internal.messages import Batches, FindAborted, MarkSealed
from smq.wire.markers import Marker
from smq.wire.records import read_batches
from tests.app.shard.test_commands import NUMBER, Bench
from tests.line_count import lines_counted
from tests.shard.transactional_bench import Producers


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_undecided_batches_are_returned_as_sent_on_request(bench: Bench) -> None:
    """Use fault 2: up to the high watermark, with what was aborted and the markers."""
    producers = Producers(bench.shard)
    producers.write([b"open"], (7, 0), 0)
    producers.write([b"aborted"], (8, 0), 0)
    producers.end(NUMBER, Marker(8, 0, committed=False, coordinator_epoch=1))
    assert bench.batches(Batches(NUMBER, 0, BATCHES_BYTES_MAX)) == b""
    found = bench.batches(Batches(NUMBER, 0, BATCHES_BYTES_MAX, as_sent=True))
    assert [each.is_control for each in read_batches(found)] == [False, False, True]
    bench.ask(MarkSealed(NUMBER, 3, is_decided=False))
    [state] = bench.partitions()
    assert (state.sealed_end, state.undecided_end, state.high_watermark) == (0, 3, 3)
    assert bench.ask(FindAborted(NUMBER, 0, 3, [7, 8])) == [(8, 1, 2)]
    assert bench.ask(FindAborted(NUMBER, 0, 3, [7])) == []
    bench.ask(MarkSealed(NUMBER, 3))
    [state] = bench.partitions()
    assert (state.sealed_end, state.undecided_end) == (3, 3)


def test_the_sealer_gets_an_empty_batch_for_an_aborted_one_into_which_records_were_deleted(
    bench: Bench,
) -> None:
    """What was left of it was sealed as if it had been committed."""
    producers = Producers(bench.shard)
    producers.write([b"aborted", b"too"], (7, 0))
    bench.shard.logs[0].sealing.set_log_start(NUMBER, 1)
    producers.end(NUMBER, Marker(7, 0, committed=False, coordinator_epoch=1))
    found = bench.batches(Batches(NUMBER, 1, BATCHES_BYTES_MAX))
    assert next(read_batches(found)).record_count == 0


def test_a_batch_that_overlaps_many_aborted_transactions_is_returned_in_one_answer(
    bench: Bench,
) -> None:
    """Data fault 14, its kind: of what more than a thousand overlapped each question had one batch,
    and each walked all of them in the shard's loop."""
    producers = Producers(bench.shard)
    for number in range(40):
        producers.write([b"aborted"], (number, 0))
    for number in range(40):
        producers.end(NUMBER, Marker(number, 0, committed=False, coordinator_epoch=1))
    rows = [Aborted(NUMBER, 1000 + each, 0, 0, 100 + each) for each in range(20_000)]
    transactions = bench.shard.logs[0].transactions
    transactions.restore(TransactionsCopy([], [*transactions.copy().aborted, np.array(rows)]))
    found = list(read_batches(bench.batches(Batches(NUMBER, 0, BATCHES_BYTES_MAX))))
    assert [each.record_count for each in found[:40]] == [0] * 40
    assert len(found) == 80
    with lines_counted() as lines:
        told = transactions.aborted_of(NUMBER, 0, 80, [1, 1500, 99_999])
    assert [each.producer_id for each in told] == [1, 1500]
    assert lines.count < 500
