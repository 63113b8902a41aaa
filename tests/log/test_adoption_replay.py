"""Frames of adoptions that a start meets; tests/log/test_adoption.py has moves as a whole."""

from pathlib import Path

import numpy as np

from shm.kernels.log.append import append_adoption
from smq.log.files.adopted import PAGE_ROW, AdoptedRow, AdoptionPart, content_of, page_of
from tests.log.logs import start, turn

PAGE = page_of(PAGE_ROW, np.array([AdoptedRow(0, 0, 0, 0, -1, 0, 0, 0, 0, 0)], np.int64))


def test_a_start_ignores_a_frame_that_is_no_adoption_and_goes_on(tmp_path: Path) -> None:
    log = start(tmp_path, levels={}).log
    wrong = content_of(AdoptionPart(5, 3, 1, 0, 0, 1), np.full(20, 99, np.int64))
    assert append_adoption(log.memory.memory, 5, wrong) >= 0
    assert log.adoptions.write(AdoptionPart(6, 3, 1, 0, 0, 1), PAGE.tobytes())
    assert turn(log)
    log.wal.close()
    again = start(tmp_path, generation=1, levels={}).log
    assert again.adoptions.numbers() == {6}
    assert any("is no adoption" in each for each in again.notices)


def test_a_part_without_those_before_it_leaves_nothing_pending(tmp_path: Path) -> None:
    log = start(tmp_path, levels={}).log
    log.adoptions.meet(AdoptionPart(5, 3, 1, 0, 1, 2), PAGE, 0)
    log.adoptions.meet(AdoptionPart(5, 3, 1, 0, 0, 3), PAGE, 0)
    log.adoptions.meet(AdoptionPart(5, 3, 1, 0, 2, 3), PAGE, 0)
    log.adoptions.invariants()
    assert log.adoptions.pending(5) is None
    assert log.adoptions.copy() == []
