"""A producer's parts, assembled: waiting for futures, flushing, closing.

The thread that fills a parcel sends it (`outbox`, `single_sender`), after it has waited for room
(`admission`). Two threads of the producer do the rest: `sender_thread` takes answers and calls
back, `metadata_thread` asks and connects. What to send, `batching.accumulator` decides.
"""

from collections.abc import Callable
from contextlib import suppress

from smq.client.arguments import duration
from smq.client.clock import Clock
from smq.client.errors import Closed
from smq.client.producing.admission import Admission
from smq.client.producing.batching.accumulator import Accumulator
from smq.client.producing.channel.links import Links
from smq.client.producing.delivery.delivery_state import Failure
from smq.client.producing.delivery.parcel import Parcel
from smq.client.producing.delivery.unreported import UnreportedFailures
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.client.producing.exchange import Exchange
from smq.client.producing.metadata_thread import MetadataThread
from smq.client.producing.outbox import Outbox
from smq.client.producing.parts import Options, Parts
from smq.client.producing.producer_state import ProducerState
from smq.client.producing.sender_thread import SenderThread
from smq.client.producing.single_sender import SingleSender
from smq.client.producing.topics import SentTopics
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.client.producing.transactions.transaction import Transacting

METADATA_JOIN_S = 1.0  # `close` waits no longer for a silent broker.


class Sender:
    """Its parts require `lock`; its own methods acquire it. In a forked child it is dead.

    outbox, admission, send_single, find_open  for the producer's `send`
    transacting                                 with a transactional id: its transactions
    """

    def __init__(
        self,
        links: Links,
        options: Options,
        clock: Clock,
        coordinator: TransactionCoordinator | None = None,
    ) -> None:
        producer = links.new_producer() if coordinator is None else coordinator.begin()
        writer = BatchWriter(options.compression, is_transactional=coordinator is not None)
        self._links = links
        self._state = state = ProducerState(clock)
        self.lock = state.lock
        self._accumulator = Accumulator(
            options.client_id, producer, writer, options.batch_bytes, options.transactional_id
        )
        self._exchange = Exchange(self._accumulator, clock)
        # Not all producers begin with partition 0.
        self._topics = SentTopics(links.metadata_max_age_ms, first_partition=producer[0])
        self._unreported = UnreportedFailures()
        shared = self._accumulator, self._exchange, self._topics, self._unreported
        parts = Parts(options, clock, state, *shared)
        self.outbox = Outbox(parts, self)
        self._single_sender = SingleSender(parts, self, self.outbox.open_parcels)
        self.transacting = (
            None if coordinator is None else Transacting(parts, coordinator, self.outbox, self)
        )
        enlist = None if self.transacting is None else self.transacting.enlisting.enlist
        self._metadata_thread = MetadataThread(
            parts, links, self.outbox, ended=self._begin_to_end, enlist=enlist
        )
        self._thread = SenderThread(parts, self.outbox, self._metadata_thread)
        self.admission = Admission(parts, links, self.outbox, self._thread.is_current)
        self.find_open = self.outbox.open_parcels.find
        self.send_single = self._single_sender.send
        self._metadata_thread.start()
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether its thread has ended, or is not here."""
        return self._state.is_closed

    # --- parcels ---------------------------------------------------------------------------------

    def open_parcel(self, topic: str, size_bytes: int) -> Parcel:
        """With the lock held: the topic's open parcel, waiting until a record has room in one.

        Raises NoSuchTopic, BufferFull, Closed, BrokerError.
        """
        self.admission.await_room(topic, size_bytes)
        return self.outbox.open_parcel(topic, size_bytes)

    def placement(self, topic: str) -> tuple[int, int]:
        """A topic's partition count, and the current partition for rows without key. Waits as
        `open_parcel`."""
        with self.lock:
            known = self.admission.await_topic(topic)
            return known.partition_count, known.keyless

    def check_partition(self, topic: str, partition: int | None) -> None:
        """Raise ValueError if a topic has no such partition. Waits as `open_parcel`."""
        with self.lock:
            self.admission.await_topic(topic)
            self.outbox.check_partition(topic, partition)

    def send_parcel(self, parcel: Parcel) -> None:
        """Send a closed parcel, after what was sent to its topic before. Waits for room."""
        with self.lock:
            self.admission.await_room(parcel.topic, parcel.bytes)
            if self.find_open(parcel.topic) is not None:
                self.outbox.send_open(parcel.topic)
            self.outbox.send_closed(parcel)

    # --- results ---------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Sleep until the condition holds. Raises TimeoutError, Closed."""
        if timeout_s is not None:
            timeout_s = duration("timeout", timeout_s)
        if self._thread.is_current() and not condition():
            raise RuntimeError("a callback must not wait: it is called by the thread that sends")
        with self._state.lock:
            self._exchange.poll_answers()
            done = self.admission.wait_for(self._state.resolved, condition, timeout_s)
        if not done:
            raise TimeoutError("the broker has not acknowledged in time")
        if not condition():
            raise Closed("the producer has been closed, or its process has forked")

    def poll(self) -> None:
        """Take the answers received so far, unless the thread is doing so."""
        with self._state.lock:
            self._exchange.poll_answers()

    def enable_wakeups(self) -> None:
        """As `poll`; the next answers wake the thread."""
        with self._state.lock:
            self._exchange.poll_answers()
            self._exchange.enable_wakeups()

    def flush(self, timeout_s: float | None) -> None:
        """Send all open parcels and wait until all rows are resolved.

        Raises TimeoutError. Raises the first error that no future has reported.
        """
        self.send_and_wait(timeout_s)
        failures = self._take_unreported()
        if failures:
            raise failures[0].error

    def flush_at_exit(self, timeout_s: float) -> int:
        """At process exit: flush; returns how many records are not known to have arrived."""
        with suppress(TimeoutError, Closed):
            self.send_and_wait(timeout_s)
        failed = sum(len(each.rows) for each in self._take_unreported())
        with self._state.lock:
            return failed + sum(each.unresolved for each in self._accumulator.pending)

    def send_and_wait(self, timeout_s: float | None) -> None:
        """Send all open parcels and wait until all is resolved. Raises TimeoutError, Closed."""
        with self._state.lock:
            self.outbox.send_all_open()
            waiting = [*self._accumulator.pending]
        self.wait(lambda: all(parcel.is_resolved() for parcel in waiting), timeout_s)

    def _take_unreported(self) -> list[Failure]:
        with self._state.lock:
            self._unreported.note(self._accumulator.pending.changed)
            return self._unreported.take()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the threads and close the channels; unresolved rows fail with Closed."""
        self._begin_to_end()
        self._thread.join()
        self._metadata_thread.join(METADATA_JOIN_S)

    def _begin_to_end(self) -> None:
        with self._state.lock:  # The thread may see it at once, and close what would wake it.
            self._state.is_ending = True
            self.outbox.wake()

    def is_own_thread(self) -> bool:
        """Whether a callback asks."""
        return self._thread.is_current()

    def close_when_done(self) -> None:
        """Take no more records, and end the thread once all are resolved. Neither waits nor locks.

        The thread sees it within SLEEP_MS_MAX. The garbage collector may call this while the
        interrupted code holds the lock.
        """
        self._state.is_draining = True

    def detach_after_fork(self) -> None:
        """In a forked child: close copies. A thread that is not here may hold the lock."""
        if self._state.is_closed:
            return  # Its channels are closed, and their descriptor numbers may be reused.
        self._state.is_closed = True
        self._state.renew_lock()
        self.lock = self._state.lock
        self._exchange.forget()
        self._links.close()
        for parcel in [*self.outbox.open_parcels.clear(), *self._accumulator.pending.clear()]:
            parcel.give_up(Closed("the process has forked: this is its parent's"))
