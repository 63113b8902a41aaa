from pathlib import Path

from shm.kernels.words import FLAG_SPACE, P_FLAGS
from smq.model.errors import ErrorCode
from smq.shard.shard import Shard
from smq.shard.space import watch_space
from tests.shard.shard_bench import (
    NOW_MS,
    SEGMENT_BYTES,
    Appender,
    batch,
    new_shard,
    produce_request,
    responses,
    topic,
)

SEGMENTS_MAX = 6
HALF_A_SEGMENT = batch(bytes(SEGMENT_BYTES * 2 // 5))


def full_shard(directory: Path) -> tuple[Shard, Appender]:
    shard = new_shard(
        directory, topic("a"), topic("b", range(2, 3)), wal_bytes_max=SEGMENTS_MAX * SEGMENT_BYTES
    )
    appender = Appender(shard)
    wanted = [False]
    while not is_refused(shard):
        appender.append("a", 0, HALF_A_SEGMENT)
        wanted.append(watch_space(shard))
    assert wanted == sorted(wanted)  # The sealer is called in time, and from then on.
    assert wanted.count(True) > 1
    return shard, appender


def is_refused(shard: Shard) -> bool:
    table = shard.logs[0].partitions.table
    flags = [int(table[led.slot, P_FLAGS]) & FLAG_SPACE for led in shard.led()]
    assert len(set(flags)) == 1, "a log is full for all its partitions or for none"
    return bool(flags[0])


def test_a_log_at_its_limit_refuses_all_its_partitions_and_says_so_once(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    log = shard.logs[0]
    for name in ("a", "b"):
        produced = appender.run(produce_request({name: {0: batch(b"v")}}))
        [(_, response)] = responses(bytes(produced.answers))
        [answer] = response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert watch_space(shard)
    assert log.wal.allocated_bytes < SEGMENTS_MAX * SEGMENT_BYTES
    [notice] = log.notices
    assert str(SEGMENTS_MAX * SEGMENT_BYTES) in notice


def test_sealing_lets_producers_go_on(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    [led, _] = shard.led()
    led.log.sealed(led.number, led.offsets().log_end, NOW_MS)
    watch_space(shard)  # Frees; the next look finds the room.
    assert not watch_space(shard)
    assert not is_refused(shard)
    appender.append("b", 0, batch(b"v"))


def test_a_log_that_is_far_from_its_limit_wants_nothing(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("a"), wal_bytes_max=100 * SEGMENT_BYTES)
    Appender(shard).append("a", 0, HALF_A_SEGMENT)
    assert not watch_space(shard)
    assert not is_refused(shard)
    assert not shard.logs[0].notices
