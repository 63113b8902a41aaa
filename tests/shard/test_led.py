"""What a partition that a shard leads says of itself."""

from pathlib import Path

import numpy as np
import pytest

from smq.log.reading import DamagedFrame
from smq.wire.internal.transactions import NOT_WRITTEN
from smq.wire.markers import Marker
from tests.shard.shard_bench import new_shard, topic
from tests.shard.transactional_bench import Producers


def test_damage_that_is_found_while_a_log_runs_is_a_loss_of_the_transactions_around_it(
    tmp_path: Path,
) -> None:
    """Data fault 21, its kind: half of a transaction over a `disk` topic was committed, since only
    starts noted damage. Transactions that begin after it are whole."""
    shard = new_shard(tmp_path, topic("one", range(1, 2), {"smq.durability": "disk"}))
    [led] = shard.led()
    producers = Producers(shard)
    damaged = producers.write([b"to be damaged"], (7, 0))
    producers.write([b"whole"], (8, 0))
    assert not led.may_have_lost(7, 0)
    found = led.log.find(led.number, damaged, damaged + 1, 1)
    assert found is not None
    run = led.log.run_of(found.spans)
    with pytest.raises(DamagedFrame):
        led.log.batches_of(run, np.zeros(run.length, np.uint8))
    assert led.may_have_lost(7, 0)
    assert not led.may_have_lost(7, NOT_WRITTEN)
    assert not led.may_have_lost(8, 0)
    producers.end(1, Marker(7, 0, committed=False, coordinator_epoch=0))
    producers.write([b"the next"], (7, 0), 1)
    assert not led.may_have_lost(7, 0)
