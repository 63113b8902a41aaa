"""More partitions than rows: those of deleted topics make way at a start."""

from collections.abc import Callable
from pathlib import Path

import pytest

from smq.log.files.checkpoint import FILE_NAME, FILE_NAME_BEFORE
from smq.log.log import Log
from smq.log.start_rows import StartRows
from smq.model.errors import StoreError
from tests.log.logs import OS, PARTITIONS_MAX, append, batch, read, settings, start, turn

BEFORE = range(PARTITIONS_MAX)  # The numbers of a full log's partitions …
STAY = range(12)
COME = range(100, 100 + PARTITIONS_MAX - len(STAY))  # … and of those that came for deleted ones.
AFTER = {*STAY, *COME}


def changed_log(directory: Path) -> None:
    """A log that died after topics were deleted and others made. The checkpoint without the deleted
    ones was not durable, for the disk was full."""
    log = start(directory, levels=dict.fromkeys(BEFORE, OS)).log
    write(log, BEFORE)
    log.checkpoint()
    known = (directory / FILE_NAME).read_bytes()
    log.drop_partitions([*BEFORE[len(STAY) :]])
    for number in COME:
        log.adopt(number, settings(OS))
    write(log, COME)
    log.wal.close()
    (directory / FILE_NAME).write_bytes(known)
    for index in directory.glob("*.index"):
        index.unlink()


def write(log: Log, numbers: range) -> None:
    for number in numbers:
        append(log, number, batch(b"%d" % number * 50, producer_id=7, epoch=0, sequence=0))
        assert turn(log)


def without_checkpoints(directory: Path) -> None:
    for name in (FILE_NAME, FILE_NAME_BEFORE):
        (directory / name).unlink(missing_ok=True)


@pytest.mark.parametrize("change", [None, without_checkpoints])
def test_a_start_drops_deleted_partitions_when_others_need_their_rows(
    tmp_path: Path, change: Callable[[Path], None] | None
) -> None:
    """The shard ended at each start: 'pop from empty list'."""
    changed_log(tmp_path)
    if change:
        change(tmp_path)
    for generation in (1, 2):
        log = start(
            tmp_path,
            generation=generation,
            levels=dict.fromkeys(AFTER, OS),
            existing=lambda: AFTER,
        ).log
        assert log.partitions.slots.keys() == AFTER
        for number in AFTER:
            assert read(log, number) == {0: b"%d" % number * 50}
            assert log.producers.newest(number, 7) == 0
            assert next(epoch for epoch, _ in log.partitions.epochs[number]) == 0
        log.wal.close()


def test_a_start_asks_for_the_partitions_only_if_it_lacks_rows(tmp_path: Path) -> None:
    log = start(tmp_path, levels=dict.fromkeys(BEFORE, OS)).log
    write(log, BEFORE)
    log.checkpoint()
    log.wal.close()

    def ask() -> set[int]:
        raise AssertionError("the coordinator may need a while")

    again = start(tmp_path, generation=1, levels=dict.fromkeys(BEFORE, OS), existing=ask).log
    assert again.partitions.is_full


@pytest.mark.parametrize("existing", [None, lambda: {*BEFORE, *COME}])
def test_more_partitions_than_rows_end_a_start_in_a_sentence(
    tmp_path: Path, existing: Callable[[], set[int]] | None
) -> None:
    changed_log(tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.glob("*.wal")}
    with pytest.raises(StoreError, match=f"it has more partitions than the {PARTITIONS_MAX} that"):
        start(tmp_path, generation=1, existing=existing)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.wal")} == files


def test_rows_are_given_until_none_is_left_and_then_to_partitions_that_exist(
    tmp_path: Path,
) -> None:
    log = start(tmp_path).log
    rows = StartRows(log, lambda: {1, 1000, 1001})
    assert all(rows.give(number) for number in range(PARTITIONS_MAX))
    assert log.partitions.is_full
    assert [rows.give(number) for number in (1, 1000, 999, 5, 1001)] == [True] * 2 + [False] * 2 + [
        True
    ]
    assert log.partitions.slots.keys() == {1, 1000, 1001}
