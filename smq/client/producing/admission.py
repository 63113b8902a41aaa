"""Threads of the user wait here: for a topic's metadata, for room in the buffer, for results."""

from collections.abc import Callable

from smq.client.arguments import topic_name
from smq.client.producing.channel.links import Links
from smq.client.producing.delivery.futures import BufferFull
from smq.client.producing.outbox import Outbox
from smq.client.producing.parts import Parts
from smq.client.producing.topics import SentTopic
from smq.client.producing.waiters import Waiters, without


class Admission:
    """All methods require the producer's lock, and release it while they wait."""

    def __init__(
        self, parts: Parts, links: Links, outbox: Outbox, is_own_thread: Callable[[], bool]
    ) -> None:
        self._options, self._state = parts.options, parts.state
        self._exchange, self._topics = parts.exchange, parts.topics
        self._links, self._outbox, self._open_parcels = links, outbox, outbox.open_parcels
        self._is_own_thread = is_own_thread

    def must_wait(self, topic: str, size_bytes: int) -> bool:
        """Whether `await_room` would wait."""
        if topic in self._open_parcels:
            return False
        self._exchange.poll_answers()
        return self._topics.find(topic) is None or not self._open_parcels.has_room(size_bytes)

    def await_topic(self, topic: str) -> SentTopic:
        """Wait until the topic is known. Raises NoSuchTopic, Closed, BrokerError."""
        self._state.check_open()
        while (known := self._topics.find(topic)) is None:
            self._learn_first(topic)
            self._state.check_open()
        return known

    def _learn_first(self, topic: str) -> None:
        topic_name("topic", topic)
        self._outbox.learn(topic, without(self._state.lock, lambda: self._links.topic(topic)))

    def await_room(self, topic: str, size_bytes: int) -> None:
        """Wait until the topic is known and this many bytes have room. Raises also BufferFull."""
        self.await_topic(topic)
        while not self._open_parcels.has_room(size_bytes):
            self._wait_for_room(size_bytes)
            self.await_topic(topic)  # It may be deleted while we wait.

    def _wait_for_room(self, size_bytes: int) -> None:
        self._exchange.poll_answers()
        block_s = 0.0 if self._is_own_thread() else self._options.block_s
        if not self.wait_for(self._state.freed, lambda: self._makes_room(size_bytes), block_s):
            raise BufferFull(
                f"{self._open_parcels.buffered_bytes()} bytes linger, or wait to be acknowledged, "
                f"of {self._options.buffer_bytes} allowed, and {block_s} s have passed"
            )

    def _makes_room(self, size_bytes: int) -> bool:
        """Whether this many bytes have room; sends open parcels if only they are in the way."""
        open_parcels = self._open_parcels
        if open_parcels.has_room_without_open(size_bytes) and not open_parcels.has_room(size_bytes):
            self._outbox.send_all_open()
        return open_parcels.has_room(size_bytes)

    def wait_for(
        self, waiters: Waiters, condition: Callable[[], bool], timeout_s: float | None
    ) -> bool:
        """Wait until the condition holds or the producer is closed; False: the time is over
        first."""

        def is_over() -> bool:
            if condition() or self._state.is_closed:
                return True
            self._exchange.enable_wakeups()
            return False

        return waiters.wait_for(is_over, timeout_s)
