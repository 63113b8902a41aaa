"""Fetches of many partitions: read portion by portion, and kept as their bytes while they wait.

    attempt   every portion is read and encoded, within one budget
    wait      there was too little: what is kept is the request, and where its partitions stand

Between two portions others have their turn: before it waits, it looks whether a partition it has
read has moved since.
"""

from array import array
from collections.abc import Callable, Iterator

import numpy as np

from gateway.apis.fetch import NO_SESSION_EPOCHS, Fetching, Reader, with_cold
from gateway.context import Place, ShardContext, Step, WaitForAny
from shm.kernels.base.words import P_HIGH_WATERMARK
from shm.kernels.request.fetch_request import WAIT_MS_MAX
from smq.model.errors import ErrorCode
from smq.shard.lent import LentBatches
from smq.shard.shard import Shard
from smq.wire.generated.fetch import FetchRequest, FetchResponse
from smq.wire.portions import Portion

COPIED_BYTES_MAX = 16 * 1024  # Of a partition: what is lent weighs some hundred bytes by itself.
_SLOT_MASK = 2**32 - 1


class Places:
    """Partitions of this shard, and how far each was seen. Sixteen bytes each."""

    def __init__(self) -> None:
        self._codes, self._seen = array("q"), array("q")

    def add(self, place: Place, high_watermark: int) -> None:
        """One more partition."""
        self._codes.append(place[0] << 32 | place[1])
        self._seen.append(high_watermark)

    def codes(self) -> np.ndarray:
        """log << 32 | slot of each, in order."""
        return np.unique(np.frombuffer(self._codes, np.int64)) if self._codes else _NOBODY

    def have_moved(self, shard: Shard) -> bool:
        """Whether one of them has more than was seen."""
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
        self._portions, self._context = portions, context
        self._places = Places()
        self._reader: Reader | None = None

    def steps(self) -> Iterator[Step]:
        """Responses to portions, with whether they continue; Ask; WaitForAny."""
        is_last = False
        while True:
            request: FetchRequest | None = None
            for message, continues in self._portions():
                assert isinstance(message, FetchRequest)
                request = message
                if request.session_epoch not in NO_SESSION_EPOCHS:
                    error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                    yield Step(FetchResponse(error_code=error))
                    return
                yield Step(self._read(request), continues)
            assert request is not None
            assert self._reader is not None
            is_last = is_last or request.max_wait_ms <= 0
            if is_last or self._is_enough(request):
                self._context.shard.count_fetch(self._reader.total_bytes)
                return
            places, self._places, self._reader = self._places, Places(), None
            has_moved = places.have_moved(self._context.shard)
            wait = WaitForAny(places.codes(), min(request.max_wait_ms, WAIT_MS_MAX), has_moved)
            yield Step(wait)
            is_last = wait.is_over

    def _is_enough(self, request: FetchRequest) -> bool:
        assert self._reader is not None
        return (
            self._reader.total_bytes >= request.min_bytes
            or self._reader.has_error
            or self._reader.has_cold
        )

    def _read(self, request: FetchRequest) -> object:
        if self._reader is None:
            self._reader = Reader(request)
        fetching = Fetching(request, self._context)
        response = fetching.read(self._reader)
        for place, row in fetching.places.items():
            assert row.led is not None
            self._places.add(place, row.led.offsets().high_watermark)
        for topic in response.responses:
            for partition in topic.partitions:
                if isinstance(partition.records, LentBatches):
                    partition.records = _kept(partition.records)
        return with_cold(response, self._reader.take_cold())


def _kept(lent: LentBatches) -> bytes | LentBatches:
    """What is lent for later: a copy if it is small and in memory."""
    if lent.length <= COPIED_BYTES_MAX:
        copy = b"".join(lent.next_buffers())
        if len(copy) == lent.length:
            return copy
    lent.hold()
    return lent


def steps(portions: Callable[[], Iterator[Portion]], context: ShardContext) -> Iterator[Step]:
    """The steps of a request that is too large to be handled whole."""
    return LargeFetch(portions, context).steps()
