"""Answers Fetch requests by a kernel if all of their records are in the ring.

A waiting request is kept as its bytes. When a high watermark moves, one kernel call answers it or
leaves it waiting.
"""

from collections.abc import Sequence

import numpy as np

from gateway.context import Ask, LogSlot, Message, Relay, Wait
from gateway.dispatch import dispatch
from shm.kernels.request.fetch import (
    ANSWERED,
    LEFT,
    LENT_AT,
    LENT_POSITION,
    LENT_WORDS,
    PARTITION_BYTES_MAX,
    PLACES_MAX,
    RECORDS_BYTES_MAX,
    STATE_LENT,
    STATE_LENT_COUNT,
    STATE_MAX_WAIT_MS,
    STATE_MESSAGE,
    STATE_OUT_BYTES,
    STATE_PLACE_COUNT,
    STATE_PLACES,
    STATE_START,
    STATE_WORDS,
    answer_fetch,
)
from smq.model.now import Now
from smq.shard.loans import LentBatches
from smq.shard.shard import Shard

NAMES_BYTES_MAX = PLACES_MAX * 256  # Topics of an answer.
OUT_BYTES = RECORDS_BYTES_MAX + 2 * PLACES_MAX * PARTITION_BYTES_MAX + NAMES_BYTES_MAX
_SLOT_MASK = 2**32 - 1

Answer = list[bytes | LentBatches]  # As it goes out, with its size.


class QuickFetch:
    """Runs the kernel for a shard. A shard with several logs answers no request here."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._log = next(iter(shard.logs.values())) if len(shard.logs) == 1 else None
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._words, self._out = self._state.data, np.zeros(OUT_BYTES, np.uint8)
        self.arrays = self._state, self._out  # As kernels take them.

    def run(self, data: np.ndarray, start: int, end: int) -> Answer | Wait | None:
        """The answer to the request (without its size) in data[start:end].

        None: gateway.dispatch is to answer it.
        """
        outcome = self._ask(data, start, end, is_last=False)
        if outcome == ANSWERED:
            return self.answer()
        if outcome == LEFT:
            return None
        waiting = _Waiting(self, bytearray(data[start:end]), self.places())
        timeout_ms = self._words[STATE_MAX_WAIT_MS]
        return Wait(lambda: waiting.places, timeout_ms, waiting.attempt, waiting.moved)

    def look(self, request: np.ndarray, *, is_last: bool) -> Answer | Message | Ask | Wait | None:
        """Answer a waiting request now; None: it still waits, for `places`.

        Wait: the kernel leaves it from now on; this is the parsed request.
        """
        outcome = self._ask(request, 0, len(request), is_last=is_last)
        if outcome == ANSWERED:
            return self.answer()
        if outcome != LEFT:
            return None
        result = dispatch(request.data, self.shard, Now(0, 0)).result  # Fetch asks no clock.
        assert not isinstance(result, Relay), "a shard answers fetches itself"
        return result

    def places(self) -> list[LogSlot]:
        """The places that the last request waits for."""
        codes = self._state[STATE_PLACES:][: self._words[STATE_PLACE_COUNT]].tolist()
        return [(code >> 32, code & _SLOT_MASK) for code in codes]

    def _ask(self, data: np.ndarray, start: int, end: int, *, is_last: bool) -> int:
        if self._log is None:
            return LEFT
        self._words[STATE_START] = start
        outcome: int = answer_fetch(
            data,
            end,
            is_last,
            self._log.memory.memory,
            self._log.links,
            self.shard.directory,
            self._state,
            self._out,
        )
        return outcome

    def answer(self, sent: int = 0) -> Answer:
        """The rest of the last answer, after its first bytes."""
        assert self._log is not None, "nothing is answered without one"
        words, out = self._words, self._out.data
        lent = self._state[STATE_LENT:STATE_MESSAGE].reshape(-1, LENT_WORDS)
        lent = lent[: words[STATE_LENT_COUNT]]
        pieces, at = Answer(), 0
        for place in np.unique(lent[:, LENT_AT]).tolist():
            spans = lent[lent[:, LENT_AT] == place, LENT_POSITION:]
            pieces += bytes(out[at:place]), LentBatches(self._log, spans, int(spans[:, 1].sum()))
            at = place
        if at < words[STATE_OUT_BYTES]:
            pieces.append(bytes(out[at : words[STATE_OUT_BYTES]]))
        return _after(pieces, sent)


def _after(pieces: Answer, sent: int) -> Answer:
    """The rest, after `sent` bytes."""
    while sent:
        piece = pieces[0]
        size = len(piece) if isinstance(piece, bytes) else piece.length
        if sent < size:
            if isinstance(piece, bytes):
                pieces[0] = piece[sent:]
            else:
                piece.advance(sent)
            break
        sent -= size
        del pieces[0]
    return pieces


class _Waiting:
    """A waiting request, as its bytes, and the places it waits for.

    The kernel parses the bytes each time, which costs less than an object would. A request that it
    leaves is parsed once, and `_read` serves it from then on.
    """

    def __init__(self, quick: QuickFetch, request: bytearray, places: Sequence[LogSlot]) -> None:
        self._quick, self._request = quick, np.frombuffer(request, np.uint8)
        self._read: Wait | None = None
        self._places = places

    @property
    def places(self) -> Sequence[LogSlot]:
        """See Wait.find_places."""
        return self._places if self._read is None else self._read.places

    def attempt(self, *, is_last: bool) -> Answer | Message | Ask | None:
        """See Wait."""
        if self._read is None:
            found = self._quick.look(self._request, is_last=is_last)
            if not isinstance(found, Wait):
                self._places = self._quick.places() if found is None else ()
                return found
            self._read = found
        return self._read.attempt(is_last=is_last)

    def moved(self, places: Sequence[LogSlot]) -> Answer | Message | Ask | None:
        """See Wait."""
        if self._read is None:
            return self.attempt(is_last=False)
        return self._read.moved(places)
