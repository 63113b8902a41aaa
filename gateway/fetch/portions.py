"""Fetches of many partitions: read portion by portion, and kept as their bytes while they wait.

    attempt   every portion is read and encoded, within one budget
    wait      there was too little: keep the request's bytes and the state of its partitions

The loop serves others between portions, so before the request waits it checks whether a partition
that it has read has moved since.
"""

from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from gateway.context import ShardContext, Step, Wait
from gateway.fetch.answer import Fetching, PartitionReader
from gateway.fetch.cold import with_cold
from gateway.fetch.session import Beginning, enter, is_incremental
from shm.kernels.base.words import P_HIGH_WATERMARK
from shm.kernels.request.fetch import WAIT_MS_MAX
from smq.log.reading import DamagedFrame
from smq.shard.loans import LentBatches, Loan
from smq.shard.shard import Shard
from smq.wire.generated.fetch import FetchRequest, FetchResponse
from smq.wire.portions import Portion

PORTION_MAX = 150  # Partitions: with aborted transactions in each, some 50 microseconds.
COPIED_BYTES_MAX = 16 * 1024  # Per partition: the objects of a loan take some hundred bytes.
_SLOT_MASK = 2**32 - 1


class ReadPlaces:
    """Partitions of this shard, and up to where each was read: sixteen bytes each."""

    def __init__(self) -> None:
        self._codes, self._seen = array("q"), array("q")

    def add(self, code: int, high_watermark: int) -> None:
        """One more partition."""
        self._codes.append(code)
        self._seen.append(high_watermark)

    def codes(self) -> np.ndarray:
        """log << 32 | slot of each, in order."""
        return np.unique(np.frombuffer(self._codes, np.int64)) if self._codes else _NOBODY

    def have_moved(self, shard: Shard) -> bool:
        """Whether one of them has more than was read."""
        if not self._codes:
            return False
        codes, seen = (np.frombuffer(each, np.int64) for each in (self._codes, self._seen))
        for number, log in shard.logs.items():
            mine = codes >> 32 == number
            now = log.partitions.table[codes[mine] & _SLOT_MASK, P_HIGH_WATERMARK]
            if (now != seen[mine]).any():
                return True
        return False


_NOBODY = np.zeros(0, np.int64)


class LargeFetch:
    """The steps of one request. `portions` begins to read it anew."""

    def __init__(self, portions: Callable[[], Iterator[Portion]], context: ShardContext) -> None:
        self._portions: Callable[[], Iterator[tuple[Any, bool]]] = portions
        self._context = context
        self._places = ReadPlaces()
        self._is_last = False  # The time to wait is over.

    def steps(self) -> Iterator[Step]:
        """Responses to portions, with whether they continue; Ask; Wait."""
        first, _ = next(self._portions())
        return self._of_a_session(first) if is_incremental(first) else self._full(first)

    def _full(self, first: FetchRequest) -> Iterator[Step]:
        beginning, self._is_last = Beginning(first, self._context), first.max_wait_ms <= 0
        wait = Wait(self._places.codes, min(first.max_wait_ms, WAIT_MS_MAX), self._again)
        while True:
            reader = PartitionReader(first, self._context.header.api_version)
            for (message, continues), is_final in _marked(self._portions()):
                response = self._read(message, reader, beginning)
                if is_final and (self._is_last or _is_enough(reader, first)):
                    beginning.end(response)
                cold = reader.take_cold()
                yield Step(with_cold(response, cold, self._context.loan), continues)
            if self._is_last or _is_enough(reader, first):
                self._context.shard.count_fetch(reader.total_bytes)
                return
            beginning.again()
            wait.find_codes = self._places.codes
            wait.has_moved = self._places.have_moved(self._context.shard)
            self._places = ReadPlaces()
            self._context.loan.release()  # All portions are read again.
            yield Step(wait)

    def _again(self, *, is_last: bool) -> Step:
        """See Wait."""
        self._is_last = is_last
        return Step(None)

    def _of_a_session(self, first: FetchRequest) -> Iterator[Step]:
        """An incremental fetch with many changes to its session."""
        entered = enter(first, self._context)
        if isinstance(entered, FetchResponse):
            yield Step(entered)
            return
        for message, _ in self._portions():
            entered.change(message)
            yield Step(None)
        entered.forget(message)
        yield Step(entered.answer())

    def _read(
        self, request: FetchRequest, reader: PartitionReader, beginning: Beginning
    ) -> FetchResponse:
        fetching = Fetching(request, self._context)
        response = fetching.read(reader)
        for code, row in fetching.places.items():
            assert row.led is not None
            self._places.add(code, row.led.offsets().high_watermark)
        for topic in response.responses:
            for partition in topic.partitions:
                if isinstance(partition.records, LentBatches):
                    partition.records = _kept(partition.records, self._context.loan)
        beginning.portion(fetching.topics, response)
        return response


def _is_enough(reader: PartitionReader, request: FetchRequest) -> bool:
    return reader.has_enough(request.min_bytes) or reader.has_cold


def _marked(portions: Iterator[tuple[Any, bool]]) -> Iterator[tuple[tuple[Any, bool], bool]]:
    """Each portion, and whether it is the last one."""
    before: tuple[Any, bool] | None = None
    for portion in portions:
        if before is not None:
            yield before, False
        before = portion
    assert before is not None, "a request has a portion at least"
    yield before, True


def _kept(lent: LentBatches, loan: Loan) -> bytes | LentBatches:
    """What is lent, to be kept: a copy if it is small and in memory. Damage shows again when it is
    sent."""
    if lent.length <= COPIED_BYTES_MAX:
        with suppress(DamagedFrame, OSError):
            copy = b"".join(lent.next_buffers())
            if len(copy) == lent.length:
                return copy
    loan.hold(lent)
    return lent
