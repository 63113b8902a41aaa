"""`smq.connect`: a client of a broker, which opens producers and consumers."""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from shm.system import at_fork
from smq.client.arguments import duration, text, text_by_name, topic_name, whole_number
from smq.client.consuming.consumer import Consumer
from smq.client.consuming.consumer_settings import (
    BATCH_BYTES_MAX,
    DEFAULT_ASSIGNORS,
    INFLATED_BYTES_MAX,
    ISOLATION_LEVEL,
    POLL_INTERVAL_S_MAX,
    SESSION_TIMEOUT_S,
    ConsumerSettings,
)
from smq.client.errors import Closed
from smq.client.facts import broker_facts
from smq.client.kafka import admin
from smq.client.kafka.cluster import (
    DEADLINE_SECONDS,
    METADATA_MAX_AGE_S,
    Cluster,
    TopicFacts,
)
from smq.client.kafka.connection import CLIENT_ID
from smq.client.kafka.offset_facts import RESUME, PartitionOffsets, offsets_of
from smq.client.kafka.offsets import Begin
from smq.client.locate import AUTO, KAFKA, SHARED_MEMORY, reach_of
from smq.client.producing.parts import Options
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.client.reference import Payloads, Source
from smq.client.secure.security import check_servers, security_of
from smq.model.offset_types import WantedPlace
from smq.model.references import CONTENT_TYPE_DEFAULT, Reference
from smq.wire.compression import Codec

KiB, MiB = 1024, 1024 * 1024
BATCH_BYTES = 640 * KiB  # A topic's largest batch in two, not three; a larger one is no faster.
BUFFER_BYTES = 32 * MiB  # Kafka's buffer.memory.
BLOCK_S = 60.0  # Kafka's max.block.ms.
DELIVERY_TIMEOUT_S = 120.0  # Kafka's delivery.timeout.ms.
TRANSACTION_TIMEOUT_S = 60.0  # Kafka's transaction.timeout.ms.
TRANSACTION_LINGER_MS = 100  # No reader sees a record before the commit, which waits for nothing.
INT31_END = 2**31

Result = TypeVar("Result")


def connect(  # noqa: PLR0913  (how a client reaches its broker)
    address: str | os.PathLike[str],
    *,
    transport: str = AUTO,
    client_id: str = CLIENT_ID,
    timeout_s: float = DEADLINE_SECONDS,
    metadata_max_age_s: float = METADATA_MAX_AGE_S,
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
) -> "Client":
    """A client of the broker at bootstrap addresses ("host:port,…"), of a data directory, or
    behind a unix socket of Kafka's protocol, by the socket's path.

    transport           "shared memory", "kafka", or "auto": shared memory if the broker runs on
                        this host for this user, or has it among its super users; else Kafka's
                        protocol
    timeout_s           how long a call waits for a broker that is away or does not answer, or for
                        an endpoint of tokens
    metadata_max_age_s  how often producers and consumers look for new partitions of their topics
    config              who you are, and which broker is the right one: properties as Kafka's
                        clients take them ("security.protocol", "sasl.…", "ssl.…"), or the path of
                        a file of them; what is missing comes from SMQ_CLIENT_… in the environment.
                        A mapping's "bootstrap.servers", if it has them, are the address, and its
                        "oauth_cb" is called for tokens: it returns one, and when that ends in
                        seconds since 1970

    Raises BrokerUnavailable (no broker answers now), AuthenticationFailed, TypeError, ValueError.
    """
    text("client_id", client_id)
    timeout_s = duration("timeout_s", timeout_s)
    metadata_max_age_s = duration("metadata_max_age_s", metadata_max_age_s, above=0)
    security = security_of(config)
    check_servers(address, config)
    reach = reach_of(address, transport, timeout_s, metadata_max_age_s, security)
    return Client(reach, client_id)


class Client:
    """A client of a broker. Threads may share it. Forked or pickled copies connect again."""

    def __init__(self, reach: Reach, client_id: str = CLIENT_ID) -> None:
        self._reach = reach
        self._client_id = client_id
        self._lock = threading.RLock()
        self._cluster: Cluster | None = None
        self._is_closed = False
        self._opened: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()
        self._payloads = Payloads(
            lambda: self._ask(broker_facts), reach.clock, reach.deadline_seconds
        )
        _clients.add(self)

    @property
    def transport(self) -> str:
        """How records travel: 'shared memory' or 'kafka'. All else uses Kafka's protocol."""
        return KAFKA if self._reach.open_door is None else SHARED_MEMORY

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> int:
        """Create a topic; return its number of partitions, which is by default the broker's.

        `configs` are Kafka's and SMQ's (docs/topic_configs.md). On return the topic has leaders.
        Raises TypeError, ValueError, BrokerError: TOPIC_ALREADY_EXISTS, INVALID_CONFIG …
        """
        if partitions is None:
            count = admin.DEFAULT_OF_THE_BROKER
        else:
            count = whole_number("partitions", partitions, 1, INT31_END)
        name, configs = topic_name("name", name), text_by_name("configs", configs)
        return self._ask(lambda cluster: admin.create_topic(cluster, name, count, configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises NoSuchTopic."""
        topic_name("name", name)
        self._ask(lambda cluster: admin.delete_topic(cluster, name))

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name."""
        return {each.name: len(each.leaders) for each in self._topics()}

    def topic_ids(self) -> dict[str, UUID]:
        """The id of each topic, by name: one that is created again has another."""
        return {each.name: each.topic_id for each in self._topics()}

    def _topics(self) -> list[TopicFacts]:
        found = self._ask(lambda cluster: cluster.retrying(cluster.topics))
        return [each for each in found if not each.is_internal]

    def offsets(
        self, topic: str, *, group: str | None = None, start: WantedPlace = RESUME
    ) -> dict[int, PartitionOffsets]:
        """Each partition's ends, how far a group is, and where a reader would start.

        `start` has one of the seven offset types. Raises NoSuchTopic, TypeError, ValueError.
        """
        topic_name("topic", topic)
        return self._ask(lambda cluster: offsets_of(cluster, topic, group, start))

    def upload(
        self,
        topic: str,
        source: Source,
        *,
        content_type: str = CONTENT_TYPE_DEFAULT,
        move: bool = False,
    ) -> Reference:
        """Upload a payload that records of a topic may refer to: a file, bytes, or a stream.

        A path names a file. On this host its bytes are copied into the filer by the kernel. With
        `move` the file itself becomes the payload and loses its name; do not write to it any more.
        On return the payload is complete and durable. It is deleted after the topic's
        smq.reference.orphan.ms unless a record refers to it.
        Raises NoSuchTopic, TypeError, ValueError, OSError, StoreError.
        """
        topic_name("topic", topic)
        self._ask(lambda cluster: cluster.retrying(lambda: cluster.topic(topic)))
        return self._payloads.upload(topic, source, content_type=content_type, move=move)

    def producer(  # noqa: PLR0913  (each is a setting)
        self,
        *,
        compression: str = "none",
        linger_ms: int = 0,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        block_s: float = BLOCK_S,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        transactional_id: str | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> Producer:
        """An idempotent producer, or one that sends in transactions.

        compression         none, gzip, snappy, lz4 or zstd
        linger_ms           how long a record waits for others to share its batch; with 0, only
                            while other records of its topic are in flight
        batch_bytes         the largest batch, before compression; a single record may be larger
        buffer_bytes        how much may wait to be sent or acknowledged; above it `send` blocks …
        block_s             … for this long, then raises BufferFull; with 0 it raises at once
        delivery_timeout_s  a record that is not acknowledged in time fails with BrokerUnavailable
        transactional_id    the producer sends in transactions (`Producer.transaction`), by a name
                            that outlives it: opening it again with that name aborts the former
                            one's open transaction, and fences it. Records wait for the commit,
                            a full batch or, if linger_ms is 0, 100 ms
        transaction_timeout_s  a transaction that is open for longer is aborted, and its producer
                            fenced; transaction.max.timeout.ms bounds it

        Raises BrokerUnavailable, TypeError, ValueError; with a transactional_id BrokerError:
        INVALID_TRANSACTION_TIMEOUT.
        """
        self._check_open()
        codecs = {codec.name.lower(): codec for codec in Codec}
        if text("compression", compression) not in codecs:
            raise ValueError(f"compression is {compression!r}; it should be one of {[*codecs]}")
        if transactional_id is not None and text("transactional_id", transactional_id) == "":
            raise ValueError("transactional_id: an empty string is no name; None is for none")
        lingers_ms = whole_number("linger_ms", linger_ms, 0, INT31_END)
        if transactional_id is not None and not lingers_ms:
            lingers_ms = TRANSACTION_LINGER_MS
        timeout_s = duration("transaction_timeout_s", transaction_timeout_s, above=0)
        options = Options(
            client_id=self._client_id,
            compression=codecs[compression],
            linger_ms=lingers_ms,
            batch_bytes=whole_number("batch_bytes", batch_bytes, KiB, INT31_END),
            buffer_bytes=whole_number("buffer_bytes", buffer_bytes, 0, 2**63),
            block_s=duration("block_s", block_s),
            delivery_timeout_s=duration("delivery_timeout_s", delivery_timeout_s),
            transactional_id=transactional_id,
            transaction_timeout_ms=max(1, int(1000 * timeout_s)),
        )
        producer = Producer(self._reach, options)
        self._opened.add(producer)
        return producer

    def consumer(  # noqa: PLR0913  (each is a setting)
        self,
        topics: str | Sequence[str] = (),
        *,
        group: str | None = None,
        group_instance_id: str | None = None,
        start: Begin = "latest",
        assignors: Sequence[str] = DEFAULT_ASSIGNORS,
        auto_commit_s: float | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        poll_interval_s_max: float = POLL_INTERVAL_S_MAX,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        inflated_bytes_max: int = INFLATED_BYTES_MAX,
        spin_us: int = 0,
        isolation_level: str = ISOLATION_LEVEL,
        topic_ids: Mapping[str, UUID] = {},
    ) -> Consumer:
        """A consumer of one or more topics, or of the partitions that `assign` names.

        group                the consumers of a group share the partitions, and commit their offsets
        group_instance_id    makes this a static member, by a name of its own: opened again within
                             session_timeout_s it gets its partitions back without a rebalance
        start                where partitions without a committed offset begin: "earliest",
                             "latest", an offset, a datetime with its time zone, or by an OffsetType
        assignors            how the group may share partitions: range, roundrobin,
                             cooperative-sticky; the first that all members know is used
        auto_commit_s        how often to commit the positions, and at the end; None: never
        session_timeout_s    without a heartbeat for this long a member is out of the group; polls
                             raise BrokerError if the broker does not allow the value
        poll_interval_s_max  without a poll for this long it is out of the group too
        batch_bytes_max      how much a poll takes from a log's ring, or fetches of a partition; one
                             batch is always taken
        inflated_bytes_max   how far a batch, or its columns, may inflate: a poll raises
                             BatchTooLarge before a larger one, and ends once so much is inflated
        spin_us              how long to poll before sleeping: lower latency, at the cost of a core
        isolation_level      "read_committed": neither records of aborted transactions nor, until
                             it is decided, records after the start of an open one;
                             "latest" and `lag` then mean the last stable offset
        topic_ids            ids by topic: polls raise NoSuchTopic where another has the name

        Raises NoSuchTopic, BrokerUnavailable, TypeError, ValueError.
        """
        self._check_open()
        settings = ConsumerSettings(
            group=group,
            group_instance_id=group_instance_id,
            start=start,
            assignors=assignors,
            auto_commit_s=auto_commit_s,
            session_timeout_s=session_timeout_s,
            poll_interval_s_max=poll_interval_s_max,
            batch_bytes_max=batch_bytes_max,
            inflated_bytes_max=inflated_bytes_max,
            spin_us=spin_us,
            isolation_level=isolation_level,
            topic_ids=topic_ids,
        )
        consumer = Consumer(self._reach, topics, settings)
        self._opened.add(consumer)
        return consumer

    def close(self) -> None:
        """Close the client, and its consumers and producers.

        All are closed, even if some raise; then the first error is raised.
        """
        self._close_all(lambda each: each.close())

    def _close_all(self, close: Callable[[Producer | Consumer], object]) -> None:
        self._is_closed = True
        errors: list[Exception] = []
        try:
            for each in list(self._opened):
                try:
                    close(each)
                except Exception as error:  # noqa: BLE001  (raised below, after the others)
                    errors.append(error)
        finally:
            with self._lock:
                if self._cluster is not None:
                    self._cluster.close()
        if errors:
            raise errors[0]

    def _ask(self, work: Callable[[Cluster], Result]) -> Result:
        with self._lock:
            self._check_open()
            if self._cluster is None:
                self._cluster = self._reach.cluster()
            cluster = self._cluster
            # The broker may have restarted since the last call, and not all work can be repeated.
            # So it begins on a connection that has just answered.
            cluster.retrying(lambda: cluster.metadata([]))
            return work(cluster)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the client has been closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(Exception):  # The block's own error propagates.
            self._close_all(lambda each: each.__exit__(kind, error, trace))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled: a client that connects again in the other process."""
        return Client, (self._reach, self._client_id)

    def _leave_to_parent(self) -> None:
        """In a forked child: reconnect, with a new lock."""
        self._lock = threading.RLock()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        self._opened = weakref.WeakSet()


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for client in list(_clients):
        client._leave_to_parent()  # noqa: SLF001  (of this file)


at_fork(after_in_child=_leave_all_to_parent)
