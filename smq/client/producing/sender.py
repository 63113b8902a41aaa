"""The rim of a producer: its lock, its thread, its channels. What to send the accumulator decides.

Whoever fills a parcel sends it, in his own thread; the sender's thread does what must wait: takes
answers, sends what had to linger or had no room, and calls callbacks. A second one asks and
connects (smq.client.producing.scout).

With `linger_ms` 0 a record leaves at once when nothing of its topic is on its way, or nobody has
looked whether it still is; else it joins the open parcel, which leaves when it is full or when the
last of its topic has arrived, or does not for long. So a single record does not wait, and many
share batches, whatever their rate.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from shm.kernels.record.partition import choose_partition
from smq.client.arguments import duration, topic_name, whole_number
from smq.client.errors import BufferFull, Closed
from smq.client.producing.accumulator import RETRY_MS, Accumulator
from smq.client.producing.batch_writer import BatchWriter
from smq.client.producing.columns import one_of
from smq.client.producing.exchange import Exchange, monotonic_ms
from smq.client.producing.fate import Failure
from smq.client.producing.futures import call_back
from smq.client.producing.links import Links
from smq.client.producing.parcel import Extras, Parcel
from smq.client.producing.scout import Scout
from smq.client.producing.single import Single
from smq.client.producing.topics import Topics
from smq.client.producing.unseen import Unseen
from smq.client.producing.waiters import Waiters, without
from smq.wire.compression import Codec

SLEEP_MS_MAX = 1000  # Until the next look at deadlines that nobody woke us for.
HOLD_MS = 100  # For those of the topic that are on their way: a broker may be silent, others not.
SINGLES_MAX = 4  # On their way, at a time when nobody has looked for their acks.
BURST_NS = 50_000  # Records that come faster go together.
LEAVE_S = 1.0  # Who closes does not wait longer for a broker that was asked and is silent.
FIRST_BYTES = 4096  # Which an open parcel takes of the buffer, then twice as much, and so on.
ROOM_BELOW = 0.75  # Of the buffer: who is woken for each batch that has gone does little else.

logger = logging.getLogger(__name__)


class Options(NamedTuple):
    """How a producer behaves; see Client.producer."""

    client_id: str
    compression: Codec
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int
    block_s: float
    delivery_timeout_s: float


def wall_ms() -> int:
    """Milliseconds since 1970, as in Kafka's timestamps."""
    return time.time_ns() // 1_000_000


class Sender:
    """`lock` guards everything; `_changed` are who waits for fates, `_freed` who waits for room.

    `parcels` are the open ones, by topic. A sender of before a fork is dead in the child.
    """

    def __init__(self, links: Links, options: Options) -> None:
        self._renew_lock()
        self.parcels: dict[str, Parcel] = {}
        self._open_bytes = 0  # Of the buffer, taken for those.
        self.is_closed = False
        self._links = links
        self._options = options
        producer = links.new_producer()
        writer = BatchWriter(options.compression)
        self._accumulator = Accumulator(options.client_id, producer, writer, options.batch_bytes)
        self._exchange = Exchange(self._accumulator)
        # Not all producers begin with partition 0.
        self._topics = Topics(links.metadata_max_age_ms, first_partition=producer[0])
        self._is_leaving = self._is_closing = False
        self._unseen = Unseen()
        self._single_ns = 0  # When the last record was sent alone.
        self._scout = Scout(
            self.lock,
            links,
            self._exchange,
            self._topics,
            lost_topic=self._lose_topic,
            ended=self._begin_to_close,
        )
        self._thread = threading.Thread(target=self._run, name="smq-producer", daemon=True)
        self._thread.start()

    def _renew_lock(self) -> None:
        self.lock = threading.RLock()
        self._changed, self._freed = Waiters(self.lock), Waiters(self.lock)

    # --- for the threads of the user -------------------------------------------------------------

    def partition_count(self, topic: str) -> int:
        """With the lock held: the partitions of a topic that is known."""
        return len(self._topics.known[topic].facts.leaders)

    def check_partition(self, topic: str, partition: int | None) -> None:
        """With the lock held: raises ValueError if a topic that is known has no such partition."""
        if partition is not None:
            whole_number("partition", partition, 0, self.partition_count(topic))

    def send_single(
        self, topic: str, value: bytes | None, key: bytes | None, extras: Extras
    ) -> Single | None:
        """With the lock held: send a record alone; None: it must go with others, or wait."""
        accumulator, exchange, known = (
            self._accumulator,
            self._exchange,
            self._topics.known.get(topic),
        )
        on_way, now_ns = accumulator.on_way.get(topic, 0), time.monotonic_ns()
        if known is None or not self._may_go_alone(on_way, now_ns):
            return None
        time_ms, partition, count = extras.timestamp_ms, extras.partition, len(known.facts.leaders)
        one = one_of(value, key, extras.headers, wall_ms() if time_ms is None else time_ms)
        if partition is None and key is not None:
            partition = choose_partition(one.key, 0, len(key), count, known.keyless)
        elif partition is None:
            partition = known.keyless
        now_ms = now_ns // 1_000_000
        deadline_ms = now_ms + int(1000 * self._options.delivery_timeout_s)
        single = Single(topic, self, one, partition, deadline_ms)
        if partition >= count or not self._has_room(single.bytes):
            return None
        if not accumulator.send_single(single, exchange.channels, now_ms):
            return None
        known.turn()
        exchange.singles += 1
        self._single_ns = now_ns
        if on_way + 1 == SINGLES_MAX:
            exchange.hear()
        if accumulator.gone or accumulator.has_waiting or exchange.must_push():
            self._wake()
        return single

    def _may_go_alone(self, on_way: int, now_ns: int) -> bool:
        """Whether a record need not wait for those of its topic that are on their way.

        While the thread is deaf these may have arrived, for all we know: unless it was just now.
        """
        if on_way:
            is_slow = now_ns - self._single_ns > BURST_NS
            if not (is_slow and self._exchange.is_deaf and on_way < SINGLES_MAX):
                return False
        return not (self.is_closed or self._is_leaving or self._options.linger_ms)

    def open_parcel(self, topic: str, size_bytes: int) -> Parcel:
        """With the lock held: the topic's open parcel, waiting until a record has room in one.

        Raises NoSuchTopic, BufferFull, Closed, BrokerError.
        """
        self.await_room(topic, size_bytes)
        parcel = self.parcels.get(topic)
        if parcel is None:  # Nobody else has opened one meanwhile.
            is_idle = not self._options.linger_ms and not self._accumulator.on_way.get(topic)
            if not is_idle:
                self._exchange.listen()
            parcel = self.new_parcel(topic, -1 if is_idle else self._first_room(size_bytes))
            self._open_bytes += parcel.granted  # One step with the next: no calls, no interrupts.
            self.parcels[topic] = parcel
            if self._options.linger_ms:
                self._wake()  # The thread must know when it has lingered.
        return parcel

    def _first_room(self, size_bytes: int) -> int:
        left = self._options.buffer_bytes - self._accumulator.buffered_bytes - self._open_bytes
        return min(max(size_bytes, min(FIRST_BYTES, left)), self._options.batch_bytes)

    def outgrown(self, topic: str) -> None:
        """With the lock held: an open parcel has used up its room. It gets more, or leaves."""
        parcel, batch_bytes = self.parcels[topic], self._options.batch_bytes
        more = min(max(parcel.granted, -parcel.room), batch_bytes - parcel.granted)
        if parcel.granted and parcel.room + more >= 0 and self._has_room(more):
            self._open_bytes += more  # One step from here on: no calls, no interrupts.
            parcel.granted += more
            parcel.room += more
        else:
            self.cut(topic)

    def new_parcel(self, topic: str, room: int) -> Parcel:
        """A parcel that is open for so many bytes."""
        deadline_ms = monotonic_ms() + int(1000 * self._options.delivery_timeout_s)
        return Parcel(topic, self, wall_ms(), deadline_ms, room)

    def await_topic(self, topic: str) -> None:
        """With the lock held: wait until the topic is known."""
        self._check_open()
        while topic not in self._topics.known:
            self._learn_first(topic)
            self._check_open()

    def await_room(self, topic: str, size_bytes: int) -> None:
        """With the lock held: wait until the topic is known and so many bytes may be taken."""
        self.await_topic(topic)
        while not self._has_room(size_bytes):
            self._wait_for_room(size_bytes)
            self.await_topic(topic)  # It may be deleted while we wait.

    def _wait_for_room(self, size_bytes: int) -> None:
        self._exchange.hear()
        block_s = 0.0 if self.is_own_thread() else self._options.block_s
        if not self._wait_for(self._freed, lambda: self._makes_room(size_bytes), block_s):
            taken = self._accumulator.buffered_bytes + self._open_bytes
            raise BufferFull(
                f"{taken} bytes linger, or wait to be acknowledged, of "
                f"{self._options.buffer_bytes} allowed, and {block_s} s have passed"
            )

    def _makes_room(self, size_bytes: int) -> bool:
        """Whether so many bytes may be taken; open parcels that alone are in the way leave."""
        buffered = self._accumulator.buffered_bytes
        is_barred = buffered and buffered + size_bytes > self._options.buffer_bytes
        if not is_barred and not self._has_room(size_bytes):
            for topic in list(self.parcels):
                self.cut(topic)
        return self._has_room(size_bytes)

    def _check_open(self) -> None:
        if self.is_closed or self._is_leaving:
            raise Closed("the producer has been closed")

    def must_wait(self, topic: str, size_bytes: int) -> bool:
        """With the lock held: whether `open_parcel` would wait."""
        if topic in self.parcels:
            return False
        self._exchange.hear()
        return topic not in self._topics.known or not self._has_room(size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        taken = self._accumulator.buffered_bytes + self._open_bytes
        return not taken or taken + size_bytes <= self._options.buffer_bytes

    def _learn_first(self, topic: str) -> None:
        topic_name("topic", topic)
        self._scout.learn(topic, without(self.lock, lambda: self._links.topic(topic)))

    def cut(self, topic: str) -> None:
        """With the lock held: close a topic's open parcel and send what may go now."""
        parcel, known = self.parcels[topic], self._topics.known[topic]
        try:
            parcel.close(len(known.facts.leaders), known.keyless)
            self.add(parcel)
        finally:
            if parcel.is_closed:  # It is not lost, whatever interrupted this.
                self._take(parcel)

    def add(self, parcel: Parcel) -> None:
        """With the lock held: send a closed parcel, or what of it may go now."""
        self._topics.known[parcel.topic].turn()
        accumulator, exchange = self._accumulator, self._exchange
        self._take(parcel)
        exchange.parcels += 1
        failed = len(accumulator.resolved)
        accumulator.drain(exchange.channels, monotonic_ms())
        if accumulator.has_waiting:  # For answers, mostly.
            exchange.listen()
        # What only the thread does: to mourn and make channels, to call back, to push.
        has_failed = len(accumulator.resolved) > failed
        if accumulator.gone or has_failed or exchange.missing() or exchange.must_push():
            self._wake()

    def _take(self, parcel: Parcel) -> None:
        """With the lock held: a parcel is closed, and on its way. Again, it does nothing."""
        self._accumulator.add(parcel)
        topic, granted = parcel.topic, parcel.granted
        if self.parcels.get(topic) is parcel:
            self._open_bytes -= granted  # One step with the next: no calls, no interrupts.
            del self.parcels[topic]

    def keyless(self, topic: str) -> int:
        """With the lock held: where rows without key go now."""
        return self._topics.known[topic].keyless

    def wait(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        """Sleep until the condition holds. Raises TimeoutError, Closed."""
        if timeout_s is not None:
            timeout_s = duration("timeout", timeout_s)
        if self.is_own_thread() and not condition():
            raise RuntimeError("a callback must not wait: it is called by the thread that sends")
        with self.lock:
            self._exchange.hear()
            done = self._wait_for(self._changed, condition, timeout_s)
        if not done:
            raise TimeoutError("the broker has not acknowledged in time")
        if not condition():
            raise Closed("the producer has been closed, or its process has forked")

    def look(self) -> None:
        """Take the answers that have come, if nobody else does now."""
        with self.lock:
            self._exchange.hear()

    def listen(self) -> None:
        """As above; the next ones will be taken as they come."""
        with self.lock:
            self._exchange.hear()
            self._exchange.listen()

    def _wait_for(
        self, waiters: Waiters, condition: Callable[[], bool], timeout_s: float | None
    ) -> bool:
        """With the lock held: sleep until the condition holds or all is closed; False: too long."""

        def is_over() -> bool:
            if condition() or self.is_closed:
                return True
            self._exchange.listen()
            return False

        return waiters.wait_for(is_over, timeout_s)

    def flush(self, timeout_s: float | None) -> None:
        """Send all that is open and wait until the fate of all is known. Raises TimeoutError.

        Raises the first error of a record whose future nobody has asked.
        """
        self._arrive(timeout_s)
        failures = self._failures()
        if failures:
            raise failures[0].error

    def farewell(self, timeout_s: float) -> int:
        """At the end of the process: flush; how many records are not known to have arrived."""
        with suppress(TimeoutError, Closed):
            self._arrive(timeout_s)
        failed = sum(len(each.rows) for each in self._failures())
        with self.lock:
            return failed + sum(each.unresolved for each in self._accumulator.parcels)

    def _arrive(self, timeout_s: float | None) -> None:
        with self.lock:
            for topic in list(self.parcels):
                self.cut(topic)
            waiting = list(self._accumulator.parcels)
        self.wait(lambda: all(parcel.is_resolved() for parcel in waiting), timeout_s)

    def _failures(self) -> list[Failure]:
        with self.lock:
            self._unseen.note(self._accumulator.resolved)
            return self._unseen.take()

    def close(self) -> None:
        """End the threads and close the channels; what is on its way is lost sight of."""
        self._begin_to_close()
        self._thread.join()
        self._scout.join(LEAVE_S)

    def _begin_to_close(self) -> None:
        with self.lock:  # The thread may see it at once, and close what would wake it.
            self._is_closing = True
            self._wake()

    def is_own_thread(self) -> bool:
        """Whether it is a callback that asks."""
        return threading.get_ident() == self._thread.ident

    def leave(self) -> None:
        """Take no more, and end the thread once all has met its fate. Does not wait, or lock.

        The thread sees it within SLEEP_MS_MAX: who is called by the garbage collector may be in
        the midst of anything.
        """
        self._is_leaving = True

    def abandon(self) -> None:
        """In a forked child: let go of copies. A thread that is not here may hold the lock."""
        if self.is_closed:
            return  # What it had is closed, and the numbers of its descriptors are another's now.
        self.is_closed = True
        self._renew_lock()
        self._exchange.forget()
        self._links.close()
        for parcel in [*self.parcels.values(), *self._accumulator.parcels]:
            parcel.give_up(Closed("the process has forked: this is its parent's"))

    def _wake(self) -> None:
        if not self.is_closed:
            self._exchange.wake()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._do_round()
        finally:  # Nobody may wait for a thread that is not there.
            with self.lock:
                callbacks = self._end()
            for each in callbacks:
                call_back(each, logged=BaseException)
            lost = sum(len(each.rows) for each in self._failures()) if self._is_leaving else 0
            if lost:
                logger.warning(
                    "%d records could not be sent: nobody waited for their producer", lost
                )

    def _end(self) -> list[Callable[[], object]]:
        """With the lock held: all that has no fate yet is given up; callbacks to call."""
        self.is_closed = True
        self._exchange.close()
        self._scout.leave()
        given_up = [*self.parcels.values(), *self._accumulator.parcels]
        self.parcels.clear()
        self._accumulator.parcels.clear()
        for parcel in given_up:
            parcel.give_up(Closed("the producer was closed before this was acknowledged"))
        self._changed.tell_all()
        self._freed.tell_all()
        told = dict.fromkeys([*self._accumulator.take_resolved(), *given_up])
        self._unseen.note(told)
        return [each for parcel in told for each in parcel.due_callbacks()]

    def _do_round(self) -> None:
        callbacks, sleep_ms, is_settled = self._turn()
        for each in callbacks:
            call_back(each, logged=BaseException)
        if self._is_closing:
            return
        if not is_settled:
            self._scout.call()
        self._sleep(0 if callbacks else sleep_ms)

    def _turn(self) -> tuple[list[Callable[[], object]], int, bool]:
        """Do what is due; callbacks to call, how long there is nothing else to do, and whether
        nobody need be asked or connected to."""
        accumulator = self._accumulator
        with self.lock:
            now_ms = monotonic_ms()
            self._exchange.begin_with_new()
            for topic in [*filter(self._is_due, self.parcels)]:
                self.cut(topic)
            accumulator.expire(now_ms)
            accumulator.drain(self._exchange.channels, now_ms)
            self._exchange.mourn(now_ms)
            resolved = [*accumulator.take_resolved()]
            callbacks = [each for parcel in resolved for each in parcel.due_callbacks()]
            self._unseen.note(resolved)
            self._changed.tell_all()
            if accumulator.buffered_bytes <= ROOM_BELOW * self._options.buffer_bytes:
                self._freed.tell_all()
            self._is_closing |= self._is_leaving and not (self.parcels or accumulator.parcels)
            due_ms = accumulator.next_due_ms(now_ms)
            sleep_ms = SLEEP_MS_MAX if due_ms is None else due_ms - now_ms
            if self.parcels:
                sleep_ms = min(sleep_ms, self._linger_left_ms())
            is_settled = not accumulator.stale and not self._exchange.missing()
            if not is_settled:
                sleep_ms = min(sleep_ms, RETRY_MS)
        sleep_ms = max(0, min(sleep_ms, SLEEP_MS_MAX))
        return callbacks, sleep_ms, is_settled and now_ms < self._topics.look_ms

    def _is_due(self, topic: str) -> bool:
        lingers = self._options.linger_ms and not self._is_leaving
        if not lingers and not self._accumulator.on_way.get(topic):
            return True
        return self._lingers_until_ms(self.parcels[topic]) <= monotonic_ms()

    def _linger_left_ms(self) -> int:
        return min(map(self._lingers_until_ms, self.parcels.values())) - monotonic_ms()

    def _lingers_until_ms(self, parcel: Parcel) -> int:
        """By the clock of its deadline, which only grows."""
        opened_ms = parcel.deadline_ms - int(1000 * self._options.delivery_timeout_s)
        return opened_ms + (self._options.linger_ms or HOLD_MS)

    def _lose_topic(self, topic: str) -> None:
        """With the lock held: a topic is gone, and what waits for it fails."""
        if topic in self.parcels:
            self.cut(topic)
        self._topics.known.pop(topic, None)
        self._accumulator.forget(topic)

    def _sleep(self, sleep_ms: int) -> None:
        exchange = self._exchange
        with self.lock:
            is_asked = bool(self._changed or self._freed or self.parcels)
            sleep_ms = exchange.fall_asleep(sleep_ms, is_asked=is_asked)
            if any(map(self._is_due, self.parcels)):
                sleep_ms = 0
        exchange.sleep(sleep_ms)
        if exchange.is_deaf:
            with self.lock:  # Who hears just now is done then.
                exchange.is_deaf = False
        found = exchange.wake_up()
        with self.lock:
            exchange.settle(found)
