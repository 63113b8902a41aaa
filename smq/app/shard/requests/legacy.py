"""The door for requests of versions that Kafka 4 dropped, open with `legacy.formats`.

An old request becomes one of an equivalent newer version before it is handled as any other, and its
slot turns the answer back. Message formats 0 and 1, of Produce and Fetch, are converted in steps;
meanwhile nothing is read from the connection. The conversions are in smq.wire.legacy.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from gateway.context import Relay
from gateway.dispatch import dispatch
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.request.produce import VERSION_MIN
from smq.app.process import clock
from smq.app.process.clock import monotonic_ns
from smq.app.process.steps import Steps
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.receive import Buffer
from smq.app.shard.requests.requests import Requests
from smq.log.reading import DamagedFrame
from smq.model.errors import PeerError
from smq.shard.loans import Sendable
from smq.shard.produce import Marks, Produced
from smq.shard.shard import Shard
from smq.wire.headers import KEY_AND_VERSION
from smq.wire.legacy.data import OldFetch, OldProduce, Steps as Conversion
from smq.wire.legacy.versions import FETCH, NEWER, PRODUCE, newer_of

_HEAD_BYTES = 8  # Size and correlation id, which are those of the newer answer.


class OldSlot(Slot):
    """The slot for an answer of an old version: `convert` makes it from the newer one's."""

    __slots__ = ("_convert",)

    def __init__(self, convert: Callable[[bytes], bytes]) -> None:
        super().__init__(is_open=False)
        self._convert = convert

    def fill(self, pieces: Iterable[bytes | Sendable]) -> None:
        """See Slot. Such answers lend nothing."""
        whole = b"".join(each for each in pieces if isinstance(each, bytes))
        body = self._convert(whole[_HEAD_BYTES:])
        size = len(body) + _HEAD_BYTES - SIZE_BYTES
        super().fill([size.to_bytes(SIZE_BYTES), whole[SIZE_BYTES:_HEAD_BYTES], body])


class FetchSlot(Slot):
    """The slot for the answer of an old Fetch. `begin` takes the newer answer's pieces."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[["FetchSlot", deque[bytes | Sendable]], None]) -> None:
        super().__init__(is_open=False)
        self._begin = begin

    def fill(self, pieces: Iterable[bytes | Sendable]) -> None:
        """See Slot. It is filled once the loans have been read and converted."""
        self._begin(self, deque(pieces))

    def converted(self, answer: bytes) -> None:
        """This is the answer."""
        super().fill([answer])


class LegacyRequests(Requests):
    """The requests of one shard's clients, some of which are old."""

    def __init__(self, steps: Steps, *parts: Any) -> None:  # noqa: ANN401  (those of Requests)
        super().__init__(*parts)
        self._steps = steps

    def take_other(self, connection: Connection, buffer: Buffer, *, is_left: bool = False) -> None:
        """See Requests."""
        start, end = buffer.start + SIZE_BYTES, buffer.start + buffer.wanted_bytes()
        key, version = KEY_AND_VERSION.unpack_from(buffer.array.data, start)
        if key == PRODUCE and 0 <= version < VERSION_MIN:
            take = self._produce
        elif (key, version) in NEWER and not connection.acks_due:
            take = self._answer_as_newer
        else:
            super().take_other(connection, buffer, is_left=is_left)
            return
        buffer.start = end
        try:
            take(connection, bytes(buffer.array[start:end]))
        except PeerError:
            connection.close_after_answers()
            return
        connection.charge(end - start)

    def _answer_as_newer(self, connection: Connection, request: bytes) -> None:
        """Handle a request, which is without its size, in a newer version. Raises PeerError."""
        began_ns, now = monotonic_ns(), clock.now()
        header, newer, data = newer_of(request)
        slot = Slot(is_open=False) if newer.answer is None else OldSlot(newer.answer)
        if header.api_key == FETCH:
            fetch = OldFetch(header, data)
            slot = FetchSlot(
                partial(self._fetched, connection, (fetch, now.monotonic_ms + fetch.wait_ms))
            )
        dispatched = dispatch(memoryview(data), self._shard, now, connection.caller, slot.loan)
        self.carry(connection, slot, memoryview(data), dispatched, began_ns)

    # --- Produce ---------------------------------------------------------------------------------

    def _produce(self, connection: Connection, request: bytes) -> None:
        """Convert and produce a request, which is without its size. Raises PeerError."""
        old, slot = OldProduce(request), None
        if old.acks != 0:
            slot = Slot(is_open=False)
            connection.slots.append(slot)
        size = SIZE_BYTES + len(request)
        self._take(connection, old.convert(), partial(self._append, connection, slot, old, size))

    def _append(
        self, connection: Connection, slot: Slot | None, old: OldProduce, size: int, newer: bytes
    ) -> None:
        self._replies.answering.errors.add(PRODUCE, Counter(old.errors.values()))
        # Writable, as received bytes are: kernels are linked for such.
        data = np.frombuffer(bytearray(b"" if old.is_empty else newer), np.uint8)
        throttle_ms = self._charge(connection, size, len(data))
        if old.is_empty:
            self._answer(connection, slot, old, None, throttle_ms)
            return
        place = slot or self._replies.acks.reserve(connection)

        def finished(produced: Produced) -> None:
            if slot is None:
                connection.slots.remove(place)
            self._answer(connection, slot, old, produced, throttle_ms)

        self._unfinished.produce(connection, place, data, throttle_ms, finished)

    def _answer(
        self,
        connection: Connection,
        slot: Slot | None,
        old: OldProduce,
        produced: Produced | None,
        throttle_ms: int,
    ) -> None:
        answers = b""
        marks: Marks = ()
        closes = slot is None and old.has_errors
        if produced is not None:
            answers, marks = bytes(produced.answers), produced.marks
            closes = closes or produced.close
        if slot is not None and not (closes and not answers):
            self._replies.acks.queue(connection, old.answer(answers, throttle_ms), marks, slot)
        elif slot is not None:
            connection.slots.remove(slot)
        if closes:
            connection.close_after_answers()

    # --- Fetch -----------------------------------------------------------------------------------

    def _fetched(
        self,
        connection: Connection,
        fetch: tuple[OldFetch, int],
        slot: FetchSlot,
        pieces: deque[bytes | Sendable],
    ) -> None:
        for piece in pieces:
            if not isinstance(piece, bytes):
                slot.loan.wait(piece)
        connection.working += 1
        self._read(connection, fetch, slot, pieces, [])

    def _read(
        self,
        connection: Connection,
        fetch: tuple[OldFetch, int],
        slot: FetchSlot,
        pieces: deque[bytes | Sendable],
        read: list[bytes],
    ) -> None:
        """Read the loans, waiting for the disk where needed."""
        try:
            while pieces and not connection.closed:
                if not _read_some(pieces, read):
                    piece = pieces[0]
                    assert not isinstance(piece, bytes)
                    piece.load(partial(self._read, connection, fetch, slot, pieces, read))
                    return
        except (DamagedFrame, OSError):
            connection.close()
        slot.release()
        if not connection.closed:
            self._convert(connection, fetch, slot, b"".join(read))

    def _convert(
        self,
        connection: Connection,
        fetch: tuple[OldFetch, int],
        slot: FetchSlot,
        answer: bytes,
    ) -> None:
        connection.working -= 1  # Which it counts itself.
        then = partial(self._converted, connection, fetch, slot)
        self._take(connection, fetch[0].convert(answer), then)

    def _converted(
        self, connection: Connection, fetch: tuple[OldFetch, int], slot: FetchSlot, made: bytes
    ) -> None:
        """Answer, or ask for what lies behind that which has no records. Raises PeerError."""
        if made:
            slot.converted(made)
            return
        old, due_ms = fetch
        now = clock.now()
        request = memoryview(old.again(max(0, due_ms - now.monotonic_ms)))
        dispatched = dispatch(request, self._shard, now, connection.caller, slot.loan)
        assert not isinstance(dispatched.result, Relay), "a shard answers a Fetch"
        self._replies.answering.settle(connection, slot, dispatched, dispatched.result)

    # --- steps -----------------------------------------------------------------------------------

    def _take(
        self, connection: Connection, conversion: Conversion, then: Callable[[bytes], None]
    ) -> None:
        """Take the steps of a conversion, then use its result."""
        connection.working += 1
        self._steps.add(partial(self._step, connection, conversion, then))

    def _step(
        self, connection: Connection, conversion: Conversion, then: Callable[[bytes], None]
    ) -> bool:
        if connection.closed:
            return False
        try:
            next(conversion)
        except StopIteration as made:
            self._end(connection, then, made.value)
            return False
        except PeerError:
            connection.close()
            return False
        return True

    def _end(self, connection: Connection, then: Callable[[bytes], None], made: bytes) -> None:
        connection.working -= 1
        try:
            then(made)
        except PeerError:
            connection.close()
            return
        self._replies.change(connection)


def requests_of(steps: Steps, shard: Shard, *parts: Any) -> Requests:  # noqa: ANN401
    """The requests of a shard's clients, old ones too if they are served. See Requests."""
    if shard.config.legacy_formats:
        return LegacyRequests(steps, shard, *parts)
    return Requests(shard, *parts)


def _read_some(pieces: deque[bytes | Sendable], read: list[bytes]) -> bool:
    """Take some bytes of the first piece; False: they must be loaded.

    Raises DamagedFrame, OSError.
    """
    piece = pieces[0]
    if isinstance(piece, bytes):
        read.append(piece)
        pieces.popleft()
        return True
    some = b"".join(piece.next_buffers())
    if some:
        read.append(some)
        if piece.advance(len(some)):
            pieces.popleft()
    return bool(some)
