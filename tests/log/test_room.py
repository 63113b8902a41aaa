"""The room of a log, as other processes see it."""

from pathlib import Path

from shm.kernels.base.words import WORD_SPACE_LIMIT
from shm.segment import LogMemory
from smq.log.room import room_of
from tests.log.logs import append, batch, start, turn


def test_a_log_has_room_for_what_its_files_may_still_take(tmp_path: Path) -> None:
    log = start(tmp_path).log
    assert room_of(log.words).bytes == min(log.wal.files.limit, log.space_left)
    assert room_of(log.words).limit_bytes == log.wal.files.limit
    before = log.space_left
    append(log, 1, batch(bytes(1000)))
    turn(log)
    assert log.space_left < before
    assert room_of(log.words).bytes == min(log.wal.files.limit, log.space_left)


def test_a_disk_that_others_fill_lowers_the_limit(tmp_path: Path) -> None:
    log = start(tmp_path).log
    log.wal.files.fit(0, 0)
    log.set_space_end()
    found = room_of(log.words)
    assert found.limit_bytes == log.wal.files.limit == log.wal.files.files_bytes
    assert found.bytes <= found.limit_bytes


def test_nothing_is_known_of_a_log_that_was_not_opened() -> None:
    memory = LogMemory.in_process(0, 1 << 22, 1 << 20, 16)
    assert int(memory.words[WORD_SPACE_LIMIT]) == 0
    assert room_of(memory.words) == (0, 0)
