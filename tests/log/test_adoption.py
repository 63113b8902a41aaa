"""A partition goes from log to log: what one exports the other adopts; tails; starts of both."""

from pathlib import Path

import numpy as np
import pytest

from shm.kernels.base.words import (
    FLAG_CLOSED,
    FLAG_TAIL,
    P_FLAGS,
    P_LED_FROM,
    P_LOG_END,
    P_LOG_START,
    P_SEALED_END,
    WORD_SPACE_END,
)
from shm.kernels.log.producers import H_CAPACITY
from smq.log.files.adopted import PAGE_PRODUCERS, AdoptionPart
from smq.log.files.checkpoint import Open
from smq.log.log import Log
from smq.model.errors import StoreError
from smq.wire.markers import Marker
from tests.log.logs import (
    NOW_MS,
    OS,
    OTHER_BOOT,
    Refused,
    append,
    batch,
    fill,
    high_watermark,
    read,
    row,
    settings,
    start,
    turn,
)

NONE: dict[int, int] = {}
P = 1
ABORTED = Marker(8, 0, False, 0)


def other(tmp_path: Path, generation: int = 1) -> Log:
    """The log of another shard, which leads nothing."""
    directory = tmp_path / "other"
    directory.mkdir(exist_ok=True)
    return start(directory, generation=generation, levels=NONE).log


def own(tmp_path: Path, generation: int = 1) -> Log:
    directory = tmp_path / "own"
    directory.mkdir(exist_ok=True)
    return start(directory, generation=generation).log


def save(log: Log) -> None:
    """Have a checkpoint of the present state."""
    saved: list[bool] = []
    log.checkpoint(lambda: saved.append(True))
    while not saved:
        log.background.collect()


def pages_of(source: Log, number: int = P) -> list[bytes]:
    export = source.state_of(number)
    while not export.step():
        pass
    return [export.page(i) for i in range(export.page_count)]


def prepare(source: Log, target: Log, epoch: int, attempt: int = 1, number: int = P) -> int:
    """Write into the target what the source knows; the offset where the next leadership begins."""
    source.close_partition(number)
    assert turn(source)
    end = int(row(source, number)[P_LOG_END])
    pages = pages_of(source, number)
    for i, page in enumerate(pages):
        part = AdoptionPart(number, epoch, attempt, end, i, len(pages))
        while not target.adoptions.write(part, page):
            assert turn(target)
            target.filing.make_room({OS})
    assert turn(target)
    source.invariants()
    target.invariants()
    return end


def move(source: Log, target: Log, epoch: int, number: int = P) -> int:
    end = prepare(source, target, epoch, number=number)
    lead(target, epoch, end, number)
    source.become_tail(number, end)
    source.invariants()
    return end


def lead(log: Log, epoch: int, start_offset: int, number: int = P) -> None:
    log.configure(number, settings(OS))
    log.lead(number, epoch, start_offset)
    log.invariants()


def test_a_closed_partition_appends_again_once_it_is_open(tmp_path: Path) -> None:
    log = own(tmp_path)
    append(log, P, batch(b"a"))
    log.close_partition(P)
    assert row(log)[P_FLAGS] & FLAG_CLOSED
    log.lead(P)
    assert append(log, P, batch(b"b")) == 1
    assert log.partitions.epochs[P] == [(1, 0)]


def test_the_target_goes_on_where_the_source_ended_and_knows_its_producers(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    for sequence in range(7):
        append(source, P, batch(b"x", producer_id=5, epoch=0, sequence=sequence))
    assert move(source, target, epoch=3) == 7
    assert append(target, P, batch(b"x", producer_id=5, epoch=0, sequence=6)) == 6
    assert append(target, P, batch(b"x", producer_id=5, epoch=0, sequence=3)) == 3
    with pytest.raises(Refused, match="45"):
        append(target, P, batch(b"x", producer_id=5, epoch=0, sequence=9))
    assert append(target, P, batch(b"y", producer_id=5, epoch=0, sequence=7)) == 7
    assert target.partitions.epochs[P] == [(3, 7)]


def test_a_tail_takes_nothing_and_keeps_its_records(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a", b"b"))
    move(source, target, epoch=3)
    with pytest.raises(Refused, match="6"):
        append(source, P, batch(b"c"))
    assert read(source, P) == {0: b"a", 1: b"b"}
    again = own(tmp_path, generation=4)
    assert read(again, P) == {0: b"a", 1: b"b"}


def test_a_tail_is_one_after_a_start_once_a_checkpoint_says_so(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a"))
    move(source, target, epoch=3)
    save(source)
    again = start(tmp_path / "own", generation=4, levels=NONE).log
    assert row(again)[P_FLAGS] & FLAG_TAIL
    assert again.partitions.epochs[P] == []


def test_a_tails_end_is_not_sealed_beyond(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a"))
    move(source, target, epoch=3)
    source.sealing.advance(P, 9, NOW_MS)
    assert row(source)[P_SEALED_END] == row(source)[P_LOG_END] == 1
    source.invariants()


def test_transactions_go_along_and_keep_their_first_offsets(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    fill(source, count=4)
    opened = Open(P, 7, 0, 2, NOW_MS)
    for each in (opened, Open(P, 8, 0, 1, NOW_MS)):
        source.transactions.wrote(each)
    source.transactions.ended(P, ABORTED, 3, NOW_MS)
    aborted = source.transactions.aborted_in(P, 0, 9, 9).rows
    move(source, target, epoch=3)
    assert target.transactions.open_in(P) == [opened]
    assert target.transactions.aborted_in(P, 0, 9, 9).rows == aborted
    assert source.transactions.open_in(P) == []


def test_an_adoption_replaces_all_that_the_log_knew_before(tmp_path: Path) -> None:
    first, second = own(tmp_path), other(tmp_path)
    append(first, P, batch(b"a", producer_id=5, epoch=0, sequence=0))
    append(first, P, batch(b"a", producer_id=6, epoch=0, sequence=0))
    move(first, second, epoch=3)
    append(second, P, batch(b"b", producer_id=5, epoch=0, sequence=1))
    second.producers.forget_now(P)  # They are silent for long.
    for sequence in range(2):
        append(second, P, batch(b"b", producer_id=5, epoch=0, sequence=sequence))
    move(second, first, epoch=4)
    assert first.partitions.epochs[P] == [(4, 5)]
    assert append(first, P, batch(b"b", producer_id=5, epoch=0, sequence=1)) == 4
    assert append(first, P, batch(b"c", producer_id=5, epoch=0, sequence=2)) == 5
    assert first.producers.newest(P, 6) == -1


def test_a_look_up_does_not_cross_the_gap_of_another_log(tmp_path: Path) -> None:
    first, second = own(tmp_path), other(tmp_path)
    fill(first, count=2)
    move(first, second, epoch=3)
    fill(second, count=2)
    move(second, first, epoch=4)
    fill(first, count=2)
    for log in (first, own(tmp_path, generation=5)):
        lead(log, 4, 4)
        found = log.find(P, 0, 6, 1 << 20)
        assert found is not None
        assert len(found.spans) == 2
        assert not len(log.find(P, 2, 6, 1 << 20).spans)  # type: ignore[union-attr]
        assert sorted(read(log, P, 4)) == [4, 5]


def test_below_the_decided_end_only_segments_tell_of_former_leaderships(tmp_path: Path) -> None:
    first, second = own(tmp_path), other(tmp_path)
    fill(first, count=2)
    move(first, second, epoch=3)
    move(second, first, epoch=4)
    first.sealing.advance(P, 1, NOW_MS)
    assert first.find(P, 0, 2, 1 << 20) is None
    assert len(first.find(P, 1, 2, 1 << 20).spans) == 1  # type: ignore[union-attr]


def prepared(tmp_path: Path, *, checkpoints: bool) -> tuple[Log, int]:
    """A log with a pending adoption of a record, in a checkpoint or not; where it begins."""
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a", producer_id=5, epoch=0, sequence=0))
    end = prepare(source, target, epoch=3)
    if checkpoints:
        save(target)
    return target, end


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_start_finds_the_pending_adoption_and_applies_none(
    tmp_path: Path, *, checkpoints: bool
) -> None:
    _target, end = prepared(tmp_path, checkpoints=checkpoints)
    again = other(tmp_path, generation=4)
    pending = again.adoptions.pending(P)
    assert pending is not None
    assert (pending.epoch, pending.start) == (3, end)
    lead(again, 3, end)
    assert again.adoptions.pending(P) is None
    assert append(again, P, batch(b"a", producer_id=5, epoch=0, sequence=0)) == 0
    assert append(again, P, batch(b"b", producer_id=5, epoch=0, sequence=1)) == end
    assert again.partitions.epochs[P] == [(4, end)]


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_start_applies_it_where_batches_of_its_leadership_follow(
    tmp_path: Path, *, checkpoints: bool
) -> None:
    target, end = prepared(tmp_path, checkpoints=checkpoints)
    lead(target, 3, end)
    append(target, P, batch(b"b", producer_id=5, epoch=0, sequence=1))
    assert turn(target)
    again = other(tmp_path, generation=4)
    assert again.adoptions.pending(P) is None
    assert (row(again)[P_LOG_END], row(again)[P_LED_FROM]) == (2, 1)
    assert again.partitions.epochs[P] == [(3, 1)]
    lead(again, 3, end)
    assert again.partitions.epochs[P] == [(3, 1), (4, 2)]
    assert append(again, P, batch(b"a", producer_id=5, epoch=0, sequence=0)) == 0
    assert append(again, P, batch(b"b", producer_id=5, epoch=0, sequence=1)) == 1


def test_a_checkpoint_between_two_parts_keeps_those_that_have_come(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    for producer in range(40):
        append(source, P, batch(b"x", producer_id=producer, epoch=0, sequence=0))
        assert turn(source)
    source.close_partition(P)
    pages = pages_of(source)
    assert len(pages) > 2
    for i, page in enumerate(pages):
        while not target.adoptions.write(AdoptionPart(P, 3, 1, 40, i, len(pages)), page):
            assert turn(target)
        assert turn(target)
        if i == 1:
            save(target)
    again = other(tmp_path, generation=4)
    pending = again.adoptions.pending(P)
    assert pending is not None
    assert len(pending.rows_of(PAGE_PRODUCERS)) == 40


def test_no_end_is_below_the_adoptions_start_after_the_frames_are_lost(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    fill(source, count=3)
    (tmp_path / "third").mkdir()
    end = move(source, target, epoch=3)
    save(target)
    for path in (tmp_path / "other").glob("*.wal"):
        path.unlink()
    again = start(tmp_path / "other", generation=4, boot=OTHER_BOOT, levels=NONE).log
    assert row(again)[P_LOG_END] == end
    bare = start(tmp_path / "third", generation=5, levels=NONE).log
    lead(bare, 3, end)
    assert append(bare, P, batch(b"x")) == end


def test_a_start_takes_no_epoch_and_cuts_the_epochs_whose_records_are_lost(tmp_path: Path) -> None:
    log = own(tmp_path, generation=1)
    append(log, P, batch(b"a"))
    assert turn(log)
    again = start(tmp_path / "own", generation=2, levels=NONE).log
    assert again.partitions.epochs[P] == [(1, 0)]
    again.close_partition(P)
    assert again.partitions.epochs[P] == [(1, 0)]
    again.lead(P)
    assert again.partitions.epochs[P] == [(1, 0), (2, 1)]


def test_a_later_attempt_replaces_what_was_pending_and_a_late_part_is_left(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a"))
    prepare(source, target, epoch=3, attempt=1)
    source.lead(P)
    append(source, P, batch(b"b"))
    prepare(source, target, epoch=4, attempt=2)
    [page] = pages_of(source)
    assert target.adoptions.write(AdoptionPart(P, 3, 1, 1, 1, 2), page)
    pending = target.adoptions.pending(P)
    assert pending is not None
    assert (pending.epoch, pending.start) == (4, 2)
    again = other(tmp_path, generation=5).adoptions.pending(P)
    assert again is not None
    assert (again.epoch, again.start) == (4, 2)


def test_a_page_that_no_log_makes_is_refused(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"a"))
    source.close_partition(P)
    [page] = pages_of(source)
    tail = target.tail
    for wrong in (b"", page[:-8], np.arange(20).tobytes(), b"x" * 80):
        with pytest.raises(ValueError, match=r"bounds|words|page"):
            target.adoptions.write(AdoptionPart(P, 3, 1, 1, 0, 1), wrong)
    assert target.tail == tail


def test_a_full_log_refuses_a_partitions_state(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    source.close_partition(P)
    [page] = pages_of(source)
    target.words[WORD_SPACE_END] = target.tail
    with pytest.raises(StoreError, match="no space"):
        target.adoptions.write(AdoptionPart(P, 3, 1, 0, 0, 1), page)


def test_a_state_says_whether_it_fits(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    append(source, P, batch(b"x", producer_id=5, epoch=0, sequence=0))
    source.close_partition(P)
    first, second = pages_of(source)
    assert target.adoptions.fits(first)
    target.producers.table[0, H_CAPACITY] = 0
    assert not target.adoptions.fits(first)
    with pytest.raises(ValueError, match="first"):
        target.adoptions.fits(second)


def test_the_log_start_goes_along(tmp_path: Path) -> None:
    source, target = own(tmp_path), other(tmp_path)
    fill(source, count=3)
    source.sealing.set_log_start(P, 2)
    move(source, target, epoch=3)
    assert row(target)[P_LOG_START] == row(target)[P_SEALED_END] == 2
    assert high_watermark(target, P) == 3
