"""Finds the first record of a batch that reaches a time: reads, inflates and searches in the
background.

    ring ─copied→ ┐
                  ├─ a job: inflate piece by piece, up to the record → done(Searched), in the loop
    WAL ─loaded→ ┘

A batch of a few kilobytes may inflate to gigabytes of records, and its header may claim a time that
none of them has. So the loop does none of this, and a search inflates no more than its allowance. A
search that ends early answers from the header, exact to the batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from shm.kernels.base.words import BATCH_HEADER_BYTES, WORD_WRITTEN
from shm.kernels.record.record_times import (
    ENDED,
    FOUND,
    MALFORMED,
    MORE,
    NO_TIME,
    STATE_AT,
    STATE_OFFSET,
    STATE_TIMESTAMP,
    find_record_time,
    new_search,
)
from shm.kernels.request.fetch import gather_checked
from smq.log.files.background import Lane
from smq.log.log import Log
from smq.log.reading import DamagedFrame, Run
from smq.log.times import BatchPlace
from smq.model.errors import PeerError
from smq.wire.codec import Buffer
from smq.wire.compression import Codec, inflate_pieces
from smq.wire.records import Batch, read_batches

INFLATED_BYTES_MAX = 64 * 1024 * 1024  # Per batch: far above what a client makes of a megabyte.
COPIED_BYTES_MAX = 1024 * 1024  # Copied from the ring, in the loop: a tenth of a millisecond.


class Wanted(NamedTuple):
    """A record of this time or later with an offset in [offset, limit)."""

    timestamp: int
    offset: int
    limit: int


class Searched(NamedTuple):
    """The result: the record's offset and timestamp, or None if the batch has none; the offset
    after the batch; and the bytes that were searched."""

    found: tuple[int, int] | None
    end_offset: int
    bytes_looked_at: int


Done: TypeAlias = Callable[[Searched | DamagedFrame], None]


def search_batch(log: Log, place: BatchPlace, wanted: Wanted, bytes_max: int, done: Done) -> None:
    """Search the batch at a place. Compressed records are inflated to `bytes_max` at most; with 0
    none is examined. `done` is called in the loop."""
    is_written = place.position + place.length <= log.words[WORD_WRITTEN]
    view = log.view(*place)
    if view is not None and (place.length <= COPIED_BYTES_MAX or not is_written):
        batch = bytes(view)

        def searched(result: Searched | OSError) -> None:
            assert not isinstance(result, OSError), "it reads nothing"
            done(result)

        job = partial(find_in_batch, batch, wanted, bytes_max)
        log.background.submit(Lane.SEARCHES, job, searched)
        return
    run = log.run_of(np.array([place]))
    log.load(run, lambda data: _search_loaded(log, run, data, (wanted, bytes_max), done))


def _search_loaded(
    log: Log, run: Run, data: np.ndarray, asked: tuple[Wanted, int], done: Done
) -> None:
    """Check the loaded bytes, and search for the record."""
    out = np.empty(int(run.spans[:, 1].sum()), np.uint8)

    def job() -> Searched | None:
        if gather_checked(data, run.position, run.spans, out, 0) < 0:
            return None
        return find_in_batch(out.data.toreadonly(), *asked)

    def searched(result: Searched | OSError | None) -> None:
        assert not isinstance(result, OSError), "it reads nothing"
        if result is not None:
            done(result)
            return
        try:
            log.batches_of(run, data)
        except DamagedFrame as damage:
            done(damage)
        else:
            raise AssertionError("it was damaged")

    log.background.submit(Lane.SEARCHES, job, searched)


def find_in_batch(data: bytes | memoryview, wanted: Wanted, bytes_max: int) -> Searched:
    """The first wanted record of a batch. Runs in the background."""
    [batch] = read_batches(data)
    state, looked_at = new_search(batch.record_count), 0
    outcome, rest = MORE if batch.record_count > 0 else ENDED, b""
    append_time = batch.max_timestamp if batch.is_log_append_time else NO_TIME
    base = batch.base_offset, batch.base_timestamp, append_time
    try:
        for piece in _pieces(batch, bytes_max) if outcome == MORE and bytes_max > 0 else ():
            looked_at += len(piece)
            given = rest + bytes(piece) if rest else piece
            outcome = find_record_time(np.frombuffer(given, np.uint8), state, base, wanted)
            if outcome != MORE:
                break
            at = min(int(state[STATE_AT]), len(given))
            state[STATE_AT] -= at
            rest = bytes(given[at:])
    except PeerError:
        outcome = MALFORMED
    end_offset, looked_at = batch.last_offset + 1, len(batch.data) + looked_at
    if outcome == FOUND:
        found = int(state[STATE_OFFSET]), int(state[STATE_TIMESTAMP])
        return Searched(found, end_offset, looked_at)
    if outcome in {MORE, MALFORMED}:  # Its records are malformed, or exceed the limit.
        return Searched(_by_header(batch, wanted), end_offset, looked_at)
    return Searched(None, end_offset, looked_at)


def _pieces(batch: Batch, bytes_max: int) -> Iterator[Buffer]:
    payload = batch.data[BATCH_HEADER_BYTES:]
    if batch.codec == Codec.NONE:
        return iter((payload,))
    return inflate_pieces(batch.codec, payload, min(bytes_max, INFLATED_BYTES_MAX))


def _by_header(batch: Batch, wanted: Wanted) -> tuple[int, int]:
    return max(batch.base_offset, wanted.offset), batch.max_timestamp
