"""Finds the first record of a batch that reaches a time: reads, inflates and searches in the
background.

    ring ─copied→ ┐
                  ├─ a job: inflate piece by piece, up to the record → done(Searched), in the loop
    WAL ─loaded→ ┘

A batch of a few kilobytes may inflate to gigabytes of records, and its header may claim a time that
none of them has. So the loop does none of this, and a search inflates no more than its allowance. A
search that ends early answers from the header, exact to the batch.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from shm.kernels.base.words import WORD_WRITTEN
from shm.kernels.log.spans import gather_checked
from smq.log.files.background import JobLane
from smq.log.log import Log
from smq.log.reading import DamagedFrame, WalRange
from smq.log.times import BatchPlace
from smq.wire.batch_search import Searched, WantedRecord, find_in_batch

COPIED_BYTES_MAX = 1024 * 1024  # Copied from the ring, in the loop: a tenth of a millisecond.


Done: TypeAlias = Callable[[Searched | DamagedFrame], None]


def search_batch(
    log: Log, place: BatchPlace, wanted: WantedRecord, bytes_max: int, done: Done
) -> None:
    """Search the batch at a place. Compressed records are inflated to `bytes_max` at most; with 0
    none is examined. `done` is called in the loop, with a DamagedFrame too where the disk cannot
    read it now."""
    is_written = place.position + place.length <= log.words[WORD_WRITTEN]
    view = log.view(*place)
    if view is not None and (place.length <= COPIED_BYTES_MAX or not is_written):
        batch = bytes(view)

        def searched(result: Searched | OSError) -> None:
            assert not isinstance(result, OSError), "it reads nothing"
            done(result)

        job = partial(find_in_batch, batch, wanted, bytes_max)
        log.background.submit(JobLane.SEARCHES, job, searched)
        return
    spans = np.array([place])
    if not len(log.readable(spans)):
        reason = DamagedFrame(f"{log.directory}: position {place.position} cannot be read now")
        # Not at once: who searches many would go on in one turn of the loop.
        log.background.submit(JobLane.SEARCHES, lambda: None, lambda _: done(reason))
        return
    run = log.run_of(spans)
    log.load(run, lambda data: _search_loaded(log, run, data, (wanted, bytes_max), done))


def _search_loaded(
    log: Log, run: WalRange, data: np.ndarray, asked: tuple[WantedRecord, int], done: Done
) -> None:
    """Check the loaded bytes, and search for the record.

    A search may wait for minutes. If the bytes fail the check, the disk is asked again, as it may
    have been able to read them since: only what was read just now is judged.
    """
    out = np.empty(int(run.spans[:, 1].sum()), np.uint8)

    def job() -> Searched | None:
        if gather_checked(data, run.position, run.spans, out, 0) < 0:
            return None
        return find_in_batch(out.data.toreadonly(), *asked)

    def searched(result: Searched | OSError | None) -> None:
        assert not isinstance(result, OSError), "it reads nothing"
        if result is None:
            log.load(run, judged)
        else:
            done(result)

    def judged(again: np.ndarray) -> None:
        try:
            log.batches_of(run, again)
        except DamagedFrame as damage:
            done(damage)
        else:
            _search_loaded(log, run, again, asked, done)

    log.background.submit(JobLane.SEARCHES, job, searched)
