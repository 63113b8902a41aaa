"""A producer's second thread: it asks about topics, and connects to their leaders.

A broker that does not answer lets whoever asks it wait. So it is not the thread that sends, takes
answers and calls back: that one `call`s, and goes on with the brokers it has.
"""

import logging
import threading
from _thread import RLock
from collections.abc import Callable

from smq.client.errors import NoSuchTopic
from smq.client.producing.accumulator import RETRY_MS
from smq.client.producing.exchange import Exchange, monotonic_ms
from smq.client.producing.links import Links, ProducerTopic
from smq.client.producing.topics import Topics
from smq.model.errors import BrokerError, PeerError

logger = logging.getLogger(__name__)


class Scout:
    """`lock` is the sender's; it is not held while a broker is waited for.

    lost_topic  is called with the lock held, with a topic that is not there any more
    ended       is called when the thread has ended, for whatever reason
    """

    def __init__(  # noqa: PLR0913  (each is a part of the sender)
        self,
        lock: RLock,
        links: Links,
        exchange: Exchange,
        topics: Topics,
        *,
        lost_topic: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self._lock, self._links = lock, links
        self._exchange, self._topics = exchange, topics
        self._accumulator = exchange.accumulator
        self._lost_topic, self._ended = lost_topic, ended
        self._refreshed_ms = 0
        self._called, self._leaves = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="smq-scout", daemon=True)
        self._thread.start()

    def call(self) -> None:
        """Have it look at what is stale, or wanted."""
        self._called.set()

    def leave(self) -> None:
        """End the thread, and close its connections: at once, or when the last answer has come."""
        self._leaves.set()
        self._called.set()

    def join(self, seconds_max: float) -> None:
        """Wait so long for its end."""
        self._thread.join(seconds_max)

    def learn(self, topic: str, facts: ProducerTopic) -> None:
        """With the lock held: what the cluster says of a topic."""
        self._accumulator.learn(topic, *facts)
        self._topics.learn(topic, facts, monotonic_ms())

    def _run(self) -> None:
        try:
            while self._called.wait() and not self._leaves.is_set():
                self._called.clear()
                self._look()
        finally:
            self._links.close()
            self._ended()

    def _look(self) -> None:
        if not self._refresh() and not self._connect():
            return
        with self._lock:
            if not self._exchange.is_closed:
                self._exchange.wake()

    def _refresh(self) -> bool:
        """Ask for metadata that may be out of date, not too often; whether it was asked."""
        now_ms = monotonic_ms()
        if now_ms - self._refreshed_ms < RETRY_MS:
            return False
        with self._lock:
            stale = self._accumulator.stale | self._topics.aged(now_ms)
        if not stale:
            return False
        for topic in stale:
            if self._leaves.is_set():
                break
            try:
                facts = self._links.topic_now(topic)
            except NoSuchTopic:
                self._miss(topic, now_ms)
            except (BrokerError, PeerError) as error:
                logger.info("metadata of %s is not to be had now: %s", topic, error)
            else:
                with self._lock:
                    self.learn(topic, facts)
        self._refreshed_ms = monotonic_ms()
        return True

    def _miss(self, topic: str, now_ms: int) -> None:
        """The cluster says that there is no such topic."""
        with self._lock:
            if self._topics.is_gone(topic, now_ms):
                self._lost_topic(topic)

    def _connect(self) -> bool:
        """Open the channels that something waits for; whether one was opened."""
        with self._lock:
            sizes = {
                node_id: self._accumulator.request_bytes.get(node_id, 0)
                for node_id in self._exchange.missing()
            }
        has_opened = has_failed = False
        for node_id, request_bytes in sizes.items():
            try:
                channel = self._links.channel(node_id, request_bytes)
            except (BrokerError, PeerError) as error:
                logger.info("broker %s cannot be reached now: %s", node_id, error)
                with self._lock:
                    self._accumulator.doubt(node_id)
                has_failed = True
                continue
            with self._lock:
                self._exchange.adopt(node_id, channel)
            has_opened = True
        if has_failed and not has_opened:  # Whoever sends to others may call again at once.
            self._leaves.wait(RETRY_MS / 1000)
        return has_opened
