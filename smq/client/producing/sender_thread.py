"""A producer's own thread, which does the work that user threads must not wait for.

It takes answers, sends batches that lingered or had no room, fails late ones, and calls callbacks.
"""

import logging
import threading
from collections.abc import Callable

from smq.client.errors import Closed
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.delivery.futures import call_back
from smq.client.producing.metadata_thread import MetadataThread
from smq.client.producing.outbox import Outbox
from smq.client.producing.parts import Parts

SLEEP_MS_MAX = 1000  # Until the next check of deadlines, if nothing wakes the thread.
# Of the buffer: threads that wait for room are woken below this, not for each batch that is gone.
WAKE_BELOW_SHARE = 0.75

logger = logging.getLogger(__name__)

Callback = Callable[[], object]


class SenderThread:
    """The thread, started by `start`."""

    def __init__(self, parts: Parts, outbox: Outbox, metadata_thread: MetadataThread) -> None:
        self._clock, self._state, self._topics = parts.clock, parts.state, parts.topics
        self._accumulator, self._exchange = parts.accumulator, parts.exchange
        self._outbox, self._unreported = outbox, parts.unreported
        self._metadata = metadata_thread
        self._wake_below_bytes = WAKE_BELOW_SHARE * parts.options.buffer_bytes
        self._ident: int | None = None
        self._thread = threading.Thread(target=self._run, name="smq-producer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def is_current(self) -> bool:
        """Whether the caller is this thread, in a callback."""
        return threading.get_ident() == self._ident

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            while not self._state.is_ending:
                self._do_round()
        finally:  # No caller may wait for a thread that does not exist.
            with self._state.lock:
                callbacks = self._end()
            for each in callbacks:
                call_back(each, logged=BaseException)
            self._log_lost()

    def _end(self) -> list[Callback]:
        """With the lock held: fail all unresolved rows; returns the callbacks to call."""
        self._state.is_closed = True
        self._exchange.close()
        self._metadata.end()
        pending = self._accumulator.pending
        given_up = [*self._outbox.open_parcels.clear(), *pending.clear()]
        for parcel in given_up:
            parcel.give_up(Closed("the producer was closed before this was acknowledged"))
        self._state.resolved.tell_all()
        self._state.freed.tell_all()
        told = dict.fromkeys([*pending.take_changed(), *given_up])
        self._unreported.note(told)
        return [each for parcel in told for each in parcel.due_callbacks()]

    def _log_lost(self) -> None:
        """Log failures that no flush or future will report."""
        if not self._state.is_draining:
            return
        with self._state.lock:
            lost = sum(len(each.rows) for each in self._unreported.take())
        if lost:
            logger.warning(
                "%d records could not be sent: their producer was dropped without close()", lost
            )

    def _do_round(self) -> None:
        callbacks, sleep_ms, needs_metadata = self._turn()
        for each in callbacks:
            call_back(each, logged=BaseException)
        if self._state.is_ending:
            return
        if needs_metadata:
            self._metadata.request()
        self._sleep(0 if callbacks else sleep_ms)

    def _turn(self) -> tuple[list[Callback], int, bool]:
        """Do what is due.

        Returns callbacks to call, how long to sleep afterwards, and whether the metadata thread has
        work.
        """
        with self._state.lock:
            now_ms = self._clock.monotonic_ms()
            self._send_due(now_ms)
            callbacks = self._tell()
            pending = self._accumulator.pending
            if self._state.is_draining and not self._outbox.open_parcels and not pending:
                self._state.is_ending = True
            queues = self._accumulator.queues
            is_cut_off = self._exchange.missing() or queues.barred()
            needs_now = bool(queues.stale_topics() or is_cut_off)
            sleep_ms = self._sleep_ms(now_ms, needs_metadata=needs_now)
            return callbacks, sleep_ms, needs_now or self._topics.is_check_due(now_ms)

    def _send_due(self, now_ms: int) -> None:
        self._exchange.use_adopted()
        for topic in self._due(now_ms):
            self._outbox.send_open(topic)
        self._accumulator.expire(now_ms)
        self._exchange.drain(now_ms)
        self._exchange.drop_dead_channels(now_ms)

    def _due(self, now_ms: int) -> list[str]:
        is_draining = self._state.is_draining
        return self._outbox.open_parcels.due(now_ms, is_draining=is_draining)

    def _tell(self) -> list[Callback]:
        """Wake waiting threads; returns the callbacks to call."""
        resolved = self._accumulator.pending.take_changed()
        callbacks = [each for parcel in resolved for each in parcel.due_callbacks()]
        self._unreported.note(resolved)
        self._state.resolved.tell_all()
        if self._accumulator.pending.buffered_bytes <= self._wake_below_bytes:
            self._state.freed.tell_all()
        return callbacks

    def _sleep_ms(self, now_ms: int, *, needs_metadata: bool) -> int:
        due_ms = self._accumulator.next_due_ms(now_ms)
        sleep_ms = SLEEP_MS_MAX if due_ms is None else min(SLEEP_MS_MAX, due_ms - now_ms)
        linger_ms = self._outbox.open_parcels.linger_left_ms(now_ms)
        if linger_ms is not None:
            sleep_ms = min(sleep_ms, linger_ms)
        if needs_metadata:
            sleep_ms = min(sleep_ms, RETRY_MS)
        return max(0, sleep_ms)

    def _sleep(self, sleep_ms: int) -> None:
        exchange, state = self._exchange, self._state
        with state.lock:
            is_asked = bool(state.resolved or state.freed or self._outbox.open_parcels)
            sleep_ms = exchange.fall_asleep(sleep_ms, is_asked=is_asked)
            if self._due(self._clock.monotonic_ms()):
                sleep_ms = 0
        exchange.sleep(sleep_ms)
        if exchange.is_napping:
            with state.lock:  # A thread that takes answers just now is done then.
                exchange.end_nap()
        found = exchange.wake_up()
        with state.lock:
            exchange.settle(found)
