"""The part of a Fetch's answer that the log has: batches, and the aborted transactions in them.

A reader of committed records is told those that overlap its batches: no others matter. Where they
are too many, the answer ends where the next one begins; where the first batch alone has too many,
only those of its producer are told. Sealed segments contain no aborted records, undecided ones do.
"""

from typing import NamedTuple

import numpy as np

from gateway.fetch.handle_search import Search
from shm.kernels.base.words import BATCH_PRODUCER_ID_AT, FRAME_HEADER_BYTES
from smq.log.aborted import FIRST, NONE, PRODUCER, AbortedIn
from smq.log.lookup import FoundBatches
from smq.shard.led import Led
from smq.wire.codec import Buffer
from smq.wire.generated.fetch import AbortedTransaction

ABORTED_MAX = 500  # Of all partitions of an answer, some 4 ms; the first batch may need more.


class FoundInLog(NamedTuple):
    """What is found in the log, as find_in_log() says, and the aborted transactions in it.

    looked_at  how many overlap the batches, at least
    too_many   their rows, if the first batch alone has too many and the ring has lost it: those of
               its producer are to be told (gateway.fetch.cold.Unread)
    """

    found: FoundBatches | None
    aborted: list[AbortedTransaction] | None
    looked_at: int = 0
    too_many: np.ndarray | None = None


def find_in_log(
    led: Led, offset: int, limit: int, bytes_max: int, search: Search
) -> FoundBatches | None:
    """What is answered from the log; None: the sealer has it."""
    if not led.delivers_inline:
        return led.log.find(led.number, offset, limit, bytes_max)
    found = led.log.find(led.number, offset, limit, min(bytes_max, search.bytes_left))
    return None if found is None else search.before_handles(led.log, found)


def find_told(  # noqa: PLR0913, PLR0917  (a partition, a range, three limits)
    led: Led, offset: int, limit: int, bytes_max: int, count_max: int | None, search: Search
) -> FoundInLog:
    """Whole batches from `offset` on, below `limit`, with the aborted transactions in them: at most
    `count_max`, or those of the first batch. None: nobody wants to know them."""
    log, number = led.log, led.number
    found = find_in_log(led, offset, limit, bytes_max, search)
    if count_max is None:
        return FoundInLog(found, None)
    if found is None or not len(found.spans) or not log.transactions.has_aborted(number, offset):
        return FoundInLog(found, [])
    start, end = _range_of(led, found, offset, limit)
    aborted = log.transactions.aborted_in(number, start, end, count_max)
    rows = aborted.table
    if aborted.end < end:
        found = log.find(number, offset, aborted.end, found.total_bytes)  # The first of these.
        assert found is not None, "it has just been found"
    if len(rows) <= count_max:
        return FoundInLog(found, told(rows), len(rows))
    if not log.in_ring(int(found.spans[0, 0])):
        return FoundInLog(found, [], len(rows), rows)
    [batch] = log.views(found.spans)  # It ends at `start` + 1.
    return FoundInLog(found, told_of(rows, batch), len(rows))


def readable_part(led: Led, found: FoundBatches) -> FoundBatches:
    """The batches before the first that the disk cannot read now; perhaps none."""
    spans = led.log.readable(found.spans)
    if len(spans) == len(found.spans):
        return found
    return FoundBatches(spans, int(spans[:, 1].sum()))


def find_told_sealed(led: Led, offset: int, limit: int, count_max: int | None) -> AbortedIn:
    """The aborted transactions to tell where undecided segments have what lies at `offset`, and
    where their batches must end; those of the first batch may be more than `count_max`. None:
    nobody wants to know them."""
    if count_max is None or offset < led.offsets().decided_end:  # No undecided segment has it.
        return AbortedIn(NONE, limit)
    return led.log.transactions.aborted_in(led.number, offset, limit, count_max)


def told(rows: np.ndarray) -> list[AbortedTransaction]:
    """Aborted transactions, as an answer has them."""
    those = zip(rows[:, PRODUCER].tolist(), rows[:, FIRST].tolist(), strict=True)
    return [AbortedTransaction(producer_id=p, first_offset=o) for p, o in those]


def told_of(rows: np.ndarray, batch: Buffer) -> list[AbortedTransaction]:
    """Those of a batch's producer; its header will do."""
    at = BATCH_PRODUCER_ID_AT
    own = int.from_bytes(batch[at : at + 8], signed=True)
    return told(rows[rows[:, PRODUCER] == own])


def _range_of(led: Led, found: FoundBatches, offset: int, limit: int) -> tuple[int, int]:
    """The offsets that matter of those that batches have."""
    first, last = (
        led.log.lookup.place_of(led.number, int(found.spans[at, 0]) - FRAME_HEADER_BYTES)
        for at in (0, -1)
    )
    return (
        offset if first is None else max(offset, first.base_offset),
        limit if last is None else min(limit, last.end_offset),
    )
