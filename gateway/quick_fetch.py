"""Answers Fetch requests by a kernel if all of their records are in the ring.

A waiting request is kept as its bytes. When a high watermark moves, one kernel call answers it or
leaves it waiting. Of clients that may not do everything a kernel's answer is used if their bitmaps
(smq.shard.bitmaps) have all partitions.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from gateway.context import Ask, Message, Wait
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
    STATE_RECORDS_BYTES,
    STATE_START,
    STATE_WORDS,
    answer_fetch,
)
from smq.security.acls import Operation
from smq.security.caller import Caller
from smq.security.principals import Peer
from smq.shard.loans import LentBatches, Loan
from smq.shard.shard import Shard

NAMES_BYTES_MAX = PLACES_MAX * 256  # Topics of an answer.
OUT_BYTES = RECORDS_BYTES_MAX + 2 * PLACES_MAX * PARTITION_BYTES_MAX + NAMES_BYTES_MAX

Answer = list[bytes | LentBatches]  # As it goes out, with its size.
Dispatch: TypeAlias = Callable[[memoryview, Caller, Loan], Message | Ask | Wait]


class QuickFetch:
    """Runs the kernel for a shard. A shard with several logs answers no request here.

    `dispatch` answers a waiting request that the kernel leaves.
    """

    def __init__(self, shard: Shard, dispatch: Dispatch) -> None:
        self.shard, self.dispatch = shard, dispatch
        self._log = next(iter(shard.logs.values())) if len(shard.logs) == 1 else None
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._words, self._out = self._state.data, np.zeros(OUT_BYTES, np.uint8)
        self.arrays = self._state, self._out  # As kernels take them.

    def run(
        self, data: np.ndarray, start: int, end: int, caller: Caller, loan: Loan
    ) -> Answer | Wait | None:
        """The answer to the request (without its size) in data[start:end].

        None: gateway.dispatch is to answer it. `loan` is the answer's, for a wait that it must end.
        """
        outcome = self.ask(data, start, end, caller, is_last=False)
        if outcome == ANSWERED:
            return self.answer()
        if outcome == LEFT:
            return None
        waiting = _Waiting(self, data[start:end].copy(), self.codes(), caller, loan)
        return waiting.wait(self._words[STATE_MAX_WAIT_MS])

    def resume(
        self, request: np.ndarray, slots: Sequence[int], due_ns: int, caller: Caller, loan: Loan
    ) -> Wait:
        """A request that has waited for these partitions elsewhere, and for no other."""
        assert self._log is not None, "nobody else has waited without one"
        codes = [self._log.number << 32 | slot for slot in slots]
        wait = _Waiting(self, request, codes, caller, loan).wait(0)
        wait.due_ns = due_ns
        return wait

    def codes(self) -> list[int]:
        """The partitions that the last request waits for."""
        codes: list[int] = self._state[STATE_PLACES:][: self._words[STATE_PLACE_COUNT]].tolist()
        return codes

    def ask(self, data: np.ndarray, start: int, end: int, caller: Caller, *, is_last: bool) -> int:
        """The kernel's outcome; LEFT if its caller is not known to have the right."""
        log = self._log
        if log is None:
            return LEFT
        self._words[STATE_START] = start
        where = log.memory.memory, log.links, self.shard.directory
        outcome: int = answer_fetch(data, end, is_last, *where, *self.arrays)
        if outcome == LEFT or caller.rights.is_unlimited or self._may_read(caller.rights.peer):
            return outcome
        if outcome == ANSWERED:
            self.shard.forget_fetch(self._words[STATE_RECORDS_BYTES])
        return LEFT

    def _may_read(self, peer: Peer) -> bool:
        bitmaps = self.shard.bitmaps
        return bitmaps is not None and bitmaps.has(peer, Operation.READ, self.codes())

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
    """A waiting request, as its bytes, and the partitions it waits for.

    The kernel parses the bytes each time, which costs less than an object would. A request that it
    leaves is parsed once, and `_read` serves it from then on.
    """

    def __init__(
        self,
        quick: QuickFetch,
        request: np.ndarray,
        codes: Sequence[int],
        caller: Caller,
        loan: Loan,
    ) -> None:
        self._quick, self._request, self._caller, self._loan = quick, request, caller, loan
        self._read: Wait | None = None
        self._codes = codes

    def wait(self, timeout_ms: int) -> Wait:
        """As the loop waits for it."""
        return Wait(self._find_codes, timeout_ms, self._attempt, self._moved)

    def _find_codes(self) -> Sequence[int] | np.ndarray:
        return self._codes if self._read is None else self._read.find_codes()

    def _attempt(self, *, is_last: bool) -> Answer | Message | Ask | None:
        quick, request = self._quick, self._request
        if self._read is None:
            outcome = quick.ask(request, 0, len(request), self._caller, is_last=is_last)
            if outcome != LEFT:
                self._codes = quick.codes()
                return quick.answer() if outcome == ANSWERED else None
            found = quick.dispatch(request.data, self._caller, self._loan)
            if not isinstance(found, Wait):
                return found
            self._read = found
        return self._read.attempt(is_last=is_last)

    def _moved(self, codes: Sequence[int]) -> Answer | Message | Ask | None:
        return self._attempt(is_last=False) if self._read is None else self._read.look(codes)
