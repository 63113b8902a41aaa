"""Frames that only look like markers: a start goes on, and tells."""

from pathlib import Path

import numpy as np

from shm.kernels.base.words import FRAME_HEADER_BYTES, FRAME_KIND_BATCH
from shm.kernels.log.recover import S_AT, S_BYTES, S_KIND, S_PARTITION, SCAN_COLUMNS
from smq.log.transaction_replay import replay_transactions
from smq.wire.markers import Marker, write_marker
from smq.wire.records import crc_of
from tests.shard.shard_bench import NOW_MS, new_shard, topic
from tests.shard.transactional_bench import transactional_batch

NUMBER = 1


def test_replayed_batches_open_transactions_markers_end_them_and_others_are_reported(
    tmp_path: Path,
) -> None:
    log = new_shard(tmp_path, topic("one")).logs[0]
    broken = bytearray(write_marker(Marker(7, 0, committed=True, coordinator_epoch=0), NOW_MS))
    broken[65] = 0x7F  # The key's length.
    broken[17:21] = crc_of(broken).to_bytes(4)
    batches = [
        transactional_batch(b"known before", producer=(9, 0)),
        transactional_batch(b"a", producer=(7, 0)),
        bytes(broken),
        transactional_batch(b"a", producer=(8, 0)),
        write_marker(Marker(8, 0, committed=False, coordinator_epoch=0), NOW_MS),
    ]
    data, rows = b"", np.zeros((len(batches), SCAN_COLUMNS), np.int64)
    for i, each in enumerate(batches):
        rows[i, [S_AT, S_BYTES]] = len(data), len(each)
        rows[i, [S_KIND, S_PARTITION]] = FRAME_KIND_BATCH, NUMBER
        data += bytes(FRAME_HEADER_BYTES) + i.to_bytes(8) + each[8:]
    since = (1000 + FRAME_HEADER_BYTES, NOW_MS)
    replay_transactions(log, np.frombuffer(data, np.uint8), rows, 1000, since)
    kept = log.transactions.copy()
    assert [(each.producer_id, each.first_offset) for each in kept.open] == [(7, 1)]
    [[[_, *aborted]]] = [rows.tolist() for rows in kept.aborted]
    assert aborted == [8, 0, 3, 4]
    assert len(log.notices) == 1
    assert "offset 2" in log.notices[0]
