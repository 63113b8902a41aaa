"""A producer's second thread: it asks for topics' metadata, and connects to their leaders.

A broker that does not answer blocks the thread that asks it. So the sender's thread does not ask:
it `request`s, and continues with its connected brokers.

A broker that does not take our login, or that does not prove who it is, may do so in a second: a
password or a certificate is being replaced. If it still does not then, what waits for it fails with
the reason.
"""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from smq.client.clock import Clock
from smq.client.errors import AuthenticationFailed, NoSuchTopic
from smq.client.producing.batching.answers import RETRY_MS
from smq.client.producing.channel.channel import Channel
from smq.client.producing.channel.links import Links
from smq.client.producing.outbox import Outbox
from smq.client.producing.parts import Parts
from smq.model.errors import BrokerError, PeerError

LOGIN_RETRY_MS = 1000  # Kafka's reconnect.backoff.max.ms: no broker gets a flood of failed logins.
FORGOTTEN_MS = 10 * LOGIN_RETRY_MS  # A refusal that is older says nothing of the next one.

logger = logging.getLogger(__name__)


K = TypeVar("K")


class FailedLogins(Generic[K]):
    """Who has refused us, since when, and when the last time (monotonic ms)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[K, tuple[int, int, AuthenticationFailed]] = {}

    def note(self, key: K, reason: AuthenticationFailed) -> bool:
        """Whether it has refused us for LOGIN_RETRY_MS by now, each time."""
        now_ms = self._clock.monotonic_ms()
        first_ms, last_ms, known = self._known.get(key, (now_ms, now_ms, reason))
        if now_ms - last_ms > FORGOTTEN_MS:
            first_ms = now_ms
        if reason is not known:
            last_ms = now_ms
        self._known[key] = first_ms, last_ms, reason
        return last_ms - first_ms >= LOGIN_RETRY_MS

    def recent(self, key: K) -> AuthenticationFailed | None:
        """The last refusal, if it is too early to ask again."""
        _, last_ms, reason = self._known.get(key, (0, 0, None))
        is_early = self._clock.monotonic_ms() < last_ms + LOGIN_RETRY_MS
        return reason if is_early else None

    def forget(self, key: K) -> None:
        """It has taken us."""
        self._known.pop(key, None)


class MetadataThread:
    """The producer's lock is not held while a broker is asked.

    ended   is called when the thread has ended, for whatever reason
    enlist  adds partitions to the transaction; whether there were any. None: there are none
    """

    def __init__(
        self,
        parts: Parts,
        links: Links,
        outbox: Outbox,
        *,
        ended: Callable[[], None],
        enlist: Callable[[], bool] | None = None,
    ) -> None:
        self._state, self._clock, self._topics = parts.state, parts.clock, parts.topics
        self._accumulator, self._exchange = parts.accumulator, parts.exchange
        self._links, self._outbox, self._ended, self._enlist = links, outbox, ended, enlist
        self._refreshed_ms = -RETRY_MS
        self._refusals = FailedLogins[int](self._clock)  # By node.
        self._untold = FailedLogins[str](self._clock)  # By topic.
        self._requested, self._is_ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="smq-metadata", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request(self) -> None:
        """Have it ask for stale metadata and open the channels that are missing."""
        self._requested.set()

    def end(self) -> None:
        """End the thread and close its connections: now, or when the broker asked has answered."""
        self._is_ending.set()
        self._requested.set()

    def join(self, seconds_max: float) -> None:
        """Wait for its end, no longer than this."""
        self._thread.join(seconds_max)

    def _run(self) -> None:
        try:
            while self._requested.wait() and not self._is_ending.is_set():
                self._requested.clear()
                self._do_round()
        finally:
            self._links.close()
            self._ended()

    def _do_round(self) -> None:
        has_enlisted = self._enlist is not None and self._enlist()
        if not (self._refresh() or self._connect() or has_enlisted):
            return
        with self._state.lock:
            if not self._exchange.is_closed:
                self._exchange.wake()

    def _refresh(self) -> bool:
        """Ask for stale metadata, at most once in RETRY_MS; returns whether a broker was asked."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._refreshed_ms < RETRY_MS:
            return False
        with self._state.lock:
            stale = self._accumulator.queues.stale_topics() | self._topics.aged(now_ms)
        if not stale:
            return False
        for topic in sorted(stale):
            if self._is_ending.is_set():
                break
            self._learn(topic, now_ms)
        self._refreshed_ms = self._clock.monotonic_ms()
        return True

    def _learn(self, topic: str, now_ms: int) -> None:
        if (refusal := self._untold.recent(topic)) is not None:
            self._shut_out(topic, now_ms, refusal)
            return
        try:
            facts = self._links.topic_now(topic)
        except NoSuchTopic:
            self._miss(topic, now_ms)
        except AuthenticationFailed as error:
            self._shut_out(topic, now_ms, error)
        except (BrokerError, PeerError) as error:
            logger.info("no metadata of topic %s for now: %s", topic, error)
            with self._state.lock:
                self._accumulator.queues.note_no_metadata(topic, error)
        else:
            self._untold.forget(topic)
            with self._state.lock:
                self._outbox.learn(topic, facts)

    def _shut_out(self, topic: str, now_ms: int, error: AuthenticationFailed) -> None:
        """No broker tells us of a topic: its records can go to the leaders that are known only."""
        logger.info("no metadata of topic %s: %s", topic, error)
        is_over = self._untold.note(topic, error)
        with self._state.lock:
            if not is_over:
                self._accumulator.queues.note_no_metadata(topic, error)
            elif topic in self._accumulator.queues.stale_topics():
                self._outbox.drop_unauthenticated(topic, error)
            else:
                self._topics.postpone(topic, now_ms)

    def _miss(self, topic: str, now_ms: int) -> None:
        """The cluster reports that there is no such topic."""
        with self._state.lock:
            if self._topics.is_gone(topic, now_ms):
                self._outbox.drop_topic(topic)

    def _connect(self) -> bool:
        """Open the channels that are missing; returns whether one was opened."""
        with self._state.lock:
            sizes = {
                node_id: self._accumulator.lost.request_bytes(node_id)
                for node_id in self._exchange.missing()
            }
        has_opened = has_failed = False
        for node_id, request_bytes in sizes.items():
            try:
                channel = self._channel(node_id, request_bytes)
            except (BrokerError, PeerError) as error:
                logger.info("broker %s cannot be reached now: %s", node_id, error)
                self._fail_to_reach(node_id, error)
                has_failed = True
                continue
            with self._state.lock:
                self._exchange.adopt(node_id, channel)
            has_opened = True
        if has_failed and not has_opened:  # The sender may request this again at once.
            self._is_ending.wait(RETRY_MS / 1000)
        return has_opened

    def _channel(self, node_id: int, request_bytes: int) -> Channel:
        """A new channel. A broker that refused us is not asked again before LOGIN_RETRY_MS."""
        if (refusal := self._refusals.recent(node_id)) is not None:
            raise refusal
        channel = self._links.channel(node_id, request_bytes)
        self._refusals.forget(node_id)
        return channel

    def _fail_to_reach(self, node_id: int, error: BrokerError | PeerError) -> None:
        refusal = error if isinstance(error, AuthenticationFailed) else None
        is_over = refusal is not None and self._refusals.note(node_id, refusal)
        with self._state.lock:
            self._accumulator.queues.mark_unreachable(node_id, error)
            if refusal is not None and is_over:
                self._accumulator.fail_unauthenticated(lambda each: each.leader == node_id, refusal)
                self._outbox.wake()
