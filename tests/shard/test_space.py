"""WAL space: used to the last byte, and never beyond."""

from pathlib import Path

import pytest

from shm.kernels.base.words import FRAME_ALIGNMENT_BYTES, P_LOG_END, WORD_TAIL
from smq.log.log import Log
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.shard.shard import Shard
from smq.shard.space import pace, watch_space
from smq.wire.records import Record, write_batch
from tests.shard.shard_bench import (
    MONOTONIC_MS,
    NOW,
    NOW_MS,
    SEGMENT_BYTES,
    Appender,
    batch,
    new_shard,
    produce_request,
    responses,
    topic,
)

HOUR_MS = 3_600_000
SEGMENTS_MAX = 6
LIMIT = SEGMENTS_MAX * SEGMENT_BYTES
HALF_A_SEGMENT = batch(bytes(SEGMENT_BYTES * 2 // 5))


def error_of(appender: Appender, name: str, records: bytes) -> int:
    """What a producer is answered; the turn then ends."""
    produced = appender.run(produce_request({name: {0: records}}))
    appender.end_turn()
    [(_, response)] = responses(bytes(produced.answers))
    [answer] = response.responses[0].partition_responses
    return int(answer.error_code)


def small_shard(directory: Path) -> Shard:
    return new_shard(directory, topic("a"), topic("b", range(2, 3)), wal_bytes_max=LIMIT)


def test_the_pace_of_sealing_rises_as_room_shrinks() -> None:
    paces = [pace(room, LIMIT) for room in range(LIMIT, -1, -(LIMIT // 64))]
    assert list(dict.fromkeys(paces)) == [
        "trails",
        "hurries",
        "hurries, producers are slowed",
        "hurries, producers are refused",
    ]


def full_shard(directory: Path) -> tuple[Shard, Appender]:
    shard = small_shard(directory)
    appender = Appender(shard)
    seals, slows = [watch_space(shard, MONOTONIC_MS)], [shard.throttle.is_on]
    while error_of(appender, "a", HALF_A_SEGMENT) == ErrorCode.NONE:
        seals.append(watch_space(shard, MONOTONIC_MS))
        slows.append(shard.throttle.is_on)
    assert seals == sorted(seals)  # The sealer is called in time, and from then on …
    assert slows == sorted(slows)  # … producers are slowed, later, and refused last.
    assert len(seals) > seals.count(True) > slows.count(True) > 1
    return shard, appender


@pytest.mark.parametrize("step_ms", [0, -25 * HOUR_MS, 25 * HOUR_MS, 365 * 24 * HOUR_MS])
def test_producers_are_forgotten_after_their_time_without_a_new_one(
    tmp_path: Path, step_ms: int
) -> None:
    """Data fault 3: a clock 25 h ahead forgot all idle producers, a retry was appended again."""
    shard = small_shard(tmp_path)
    appender, kept_ms = Appender(shard), shard.config.producer_id_expiration_ms

    def produce(producer_id: int, sequence: int, now: Now) -> None:
        record = [Record(0, now.wall_ms, None, b"x")]
        ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        appender.run(produce_request({"a": {0: bytes(write_batch(record, **ids))}}), now)
        appender.end_turn()

    for producer_id in range(3):
        produce(producer_id, 0, NOW)
    produce(1, 1, Now(MONOTONIC_MS + 1, NOW_MS + step_ms))
    known = shard.logs[0].producers
    for late_ms, count in ((0, 3), (kept_ms, 3), (kept_ms + 1, 1), (kept_ms + 2, 0)):
        watch_space(shard, MONOTONIC_MS + late_ms)
        assert len(known) == count


def test_a_log_at_its_limit_refuses_all_its_partitions_and_says_so_once(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    log = shard.logs[0]
    for name in ("a", "b"):
        assert error_of(appender, name, HALF_A_SEGMENT) == ErrorCode.KAFKA_STORAGE_ERROR
        assert watch_space(shard, MONOTONIC_MS)
    [hurry, notice] = log.notices
    assert "sealing hurries" in hurry
    assert str(LIMIT) in notice


def test_every_byte_of_the_limit_is_used_and_none_beyond_spares_included(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    log = shard.logs[0]
    while error_of(appender, "b", batch(b"v")) == ErrorCode.NONE:
        assert log.wal.files.files_bytes <= LIMIT
    assert log.space_left < len(batch(b"v")) + 2 * FRAME_ALIGNMENT_BYTES
    assert disk_bytes(log) == LIMIT


def disk_bytes(log: Log) -> int:
    return sum(
        path.stat().st_size for path in log.directory.iterdir() if path.suffix in {".wal", ".spare"}
    )


def test_however_much_comes_in_one_turn_the_limit_holds(tmp_path: Path) -> None:
    shard = small_shard(tmp_path)
    appender = Appender(shard)
    request = produce_request({"a": {0: HALF_A_SEGMENT}, "b": {0: batch(b"v")}})
    for _ in range(10 * SEGMENTS_MAX):
        appender.run(request)
    appender.end_turn()
    assert disk_bytes(shard.logs[0]) <= LIMIT
    assert shard.logs[0].words[WORD_TAIL] <= LIMIT


def test_sealing_lets_producers_go_on(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    [led, _] = shard.led()
    led.log.sealing.advance(led.number, led.offsets().log_end, NOW_MS)
    watch_space(shard, MONOTONIC_MS)  # Frees; the next look finds the room.
    assert not watch_space(shard, MONOTONIC_MS)
    assert not shard.throttle.is_on
    assert error_of(appender, "b", HALF_A_SEGMENT) == ErrorCode.NONE
    assert disk_bytes(led.log) <= LIMIT


def test_freed_files_are_kept_as_spares_only_within_the_limit(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    [led, _] = shard.led()
    for _ in range(3):
        led.log.sealing.advance(led.number, led.offsets().log_end, NOW_MS)
        watch_space(shard, MONOTONIC_MS)
        while error_of(appender, "a", HALF_A_SEGMENT) == ErrorCode.NONE:
            assert disk_bytes(led.log) <= LIMIT
            watch_space(shard, MONOTONIC_MS)


def test_a_log_that_is_far_from_its_limit_wants_nothing(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, topic("a"), wal_bytes_max=100 * SEGMENT_BYTES)
    Appender(shard).append("a", 0, HALF_A_SEGMENT)
    assert not watch_space(shard, MONOTONIC_MS)
    assert not shard.throttle.is_on
    assert not shard.logs[0].notices
    assert shard.logs[0].now_ms == MONOTONIC_MS


def test_that_sealing_hurries_is_said_once_until_enough_is_free_again(tmp_path: Path) -> None:
    shard, appender = full_shard(tmp_path)
    log = shard.logs[0]

    def hurried() -> int:
        return sum("sealing hurries" in each for each in log.notices)

    assert hurried() == 1
    for number in (1, 2):
        end = int(log.partitions.table[log.partitions.slots[number], P_LOG_END])
        log.sealing.advance(number, end, NOW_MS)
    log.checkpoint()
    watch_space(shard, MONOTONIC_MS)
    while not watch_space(shard, MONOTONIC_MS):
        assert error_of(appender, "a", HALF_A_SEGMENT) == ErrorCode.NONE
    assert hurried() == 2


def test_a_disk_that_others_have_filled_refuses_producers_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = small_shard(tmp_path)
    appender, log = Appender(shard), shard.logs[0]
    free_bytes = 0
    monkeypatch.setattr(log.disk, "space", lambda _: (free_bytes, 1000 * LIMIT))
    delays = []
    while error_of(appender, "a", HALF_A_SEGMENT) == ErrorCode.NONE:
        watch_space(shard, MONOTONIC_MS)
        delays.append(shard.throttle.delay_ms(1, NOW_MS))
    assert len(delays) <= 3
    slows = [shard.throttle.is_on]
    assert any("what the disk has room for" in each for each in log.notices)
    free_bytes = 1000 * LIMIT
    watch_space(shard, MONOTONIC_MS)
    assert [*slows, shard.throttle.is_on] == [True, False]
    assert error_of(appender, "a", HALF_A_SEGMENT) == ErrorCode.NONE
