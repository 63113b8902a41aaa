"""How a producer reaches brokers: it asks for metadata and its id, and opens channels to leaders.

Thread-safe: its own lock is held while a broker is asked.
"""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from smq.client.door.door import Door, DoorUnavailable
from smq.client.kafka.admin import message_bytes_max
from smq.client.kafka.cluster import SILENT_SECONDS_MAX, Cluster, check
from smq.client.kafka.questions import INIT_PRODUCER_ID
from smq.client.producing.channel.channel import Channel
from smq.client.producing.channel.wire_channel import WireChannel
from smq.client.reach import Reach
from smq.wire.generated.init_producer_id import InitProducerIdRequest

MESSAGE_BYTES_MAX_DEFAULT = 1_048_588  # Kafka's default, for a broker that does not tell.

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class ProducerTopic(NamedTuple):
    """The facts of a topic that a producer needs."""

    leaders: tuple[int, ...]
    message_bytes_max: int


class Links:
    """Connects when it is first used."""

    def __init__(self, reach: Reach, *, is_transactional: bool = False) -> None:
        self._reach = reach
        # A door takes no records of transactions: shards must ask the coordinator about them.
        self._open_door = None if is_transactional else reach.open_door
        self.metadata_max_age_ms = int(1000 * reach.metadata_max_age_s)
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None

    def _ask(self, work: Callable[[Cluster], Result]) -> Result:
        with self._lock:
            if self._cluster is None:
                self._cluster = self._reach.cluster()
            return work(self._cluster)

    def new_producer(self) -> tuple[int, int]:
        """A producer id and its epoch. Raises BrokerError."""

        def ask(cluster: Cluster) -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=None)
            response = cluster.anyone().ask(INIT_PRODUCER_ID, request)
            check(response.error_code)
            return response.producer_id, response.producer_epoch

        return self._ask(lambda cluster: cluster.retrying(lambda: ask(cluster)))

    def topic(self, name: str) -> ProducerTopic:
        """A topic's metadata; retries transient errors. Raises NoSuchTopic, BrokerError."""
        return self._ask(lambda cluster: cluster.retrying(lambda: _topic(cluster, name)))

    def topic_now(self, name: str) -> ProducerTopic:
        """A topic's current metadata, in one attempt. Raises NoSuchTopic, BrokerError."""
        seconds = min(SILENT_SECONDS_MAX, self._reach.deadline_seconds)

        def ask(cluster: Cluster) -> ProducerTopic:
            cluster.forget()  # The caller may ask because a connection is broken.
            return cluster.within(seconds, lambda: _topic(cluster, name))

        return self._ask(ask)

    def channel(self, node_id: int, request_bytes: int = 0) -> Channel:
        """A new channel to a broker, for requests of up to this size. Raises BrokerError."""
        reach = self._reach
        ends_s = reach.clock.monotonic_s() + reach.deadline_seconds
        door = self._door(node_id)
        if door is not None and door.request_bytes_max >= request_bytes:
            return door
        if door is not None:
            logger.info("to broker %s over the wire: %s bytes at once", node_id, request_bytes)
            door.close()
        host, port = self._ask(lambda cluster: cluster.address(node_id))
        left_s = ends_s - reach.clock.monotonic_s()
        return WireChannel(host, port, reach.clock, reach.security, left_s)

    def _door(self, node_id: int) -> Door | None:
        if self._open_door is None:
            return None
        try:
            return self._open_door(node_id)
        except DoorUnavailable as reason:
            logger.info("producing to broker %s over the wire: %s", node_id, reason)
            return None

    def close(self) -> None:
        """Close the connections; of a forked process: its copies."""
        if self._cluster is not None:
            self._cluster.close()


def _topic(cluster: Cluster, name: str) -> ProducerTopic:
    leaders = cluster.topic(name).leaders
    most = message_bytes_max(cluster, name)
    return ProducerTopic(leaders, MESSAGE_BYTES_MAX_DEFAULT if most is None else most)
