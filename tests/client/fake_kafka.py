"""A Kafka small enough to read: real sockets, topics in lists, faults on demand.

Every node leads some partitions and refuses the others. `faults` holds what the next requests of an
API meet: an error code, or "close" for a connection that ends instead of an answer; "close after"
does the work first. Nodes that are `asleep` accept, and answer nothing until they are woken.

With `users` nothing but a login is taken from who has not logged in; with `tls` all is in TLS.
"""

import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from struct import pack_into
from typing import TYPE_CHECKING, Any
from uuid import UUID

from smq.model.errors import BrokerError, ErrorCode
from smq.security.decoys import Decoys
from smq.security.mechanisms import LoginServers
from smq.wire.api import WireApi
from smq.wire.codec import ZERO_UUID, Writer
from smq.wire.generated import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_offsets,
    metadata,
    offset_fetch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from smq.wire.generated.apis import API_BY_KEY
from smq.wire.headers import read_request_header, write_response_header
from smq.wire.records import Record, read_batches, write_batch
from smq.wire.structure_code import snake

if TYPE_CHECKING:
    import ssl

    from smq.security.sasl import SaslServer
    from smq.testing.credentials import UsersInMemory

LONG_POLL_SECONDS_MAX = 0.2
PRODUCE = b"\0\0"  # The key of its API, as a request begins.
BROKER = 4  # A kind of resource.
BEFORE_LOGIN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


class FakePartition:
    """Batches with their offsets, and the sequences of producers."""

    def __init__(self, leader: int) -> None:
        self.leader, self.leader_epoch = leader, -1
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self.sequences: dict[int, int] = {}
        self.fetch_error = ErrorCode.NONE

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        (batch,) = read_batches(data)
        if batch.base_sequence < self.sequences.get(batch.producer_id, 0):
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        if batch.base_sequence > self.sequences.get(batch.producer_id, 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.sequences[batch.producer_id] = batch.base_sequence + batch.record_count
        patched = bytearray(data)
        pack_into(">q", patched, 0, self.end)
        self.batches.append(bytes(patched))
        self.end += batch.record_count
        return ErrorCode.NONE, self.end - batch.record_count

    def records(self) -> list[Any]:
        return [r for batch in read_batches(b"".join(self.batches)) for r in batch.records()]

    def from_offset(self, offset: int) -> bytes:
        found = (data for data in self.batches if next(read_batches(data)).last_offset >= offset)
        return b"".join(found)


class FakeKafka:
    """Some nodes with ids from 1, each with a port and a thread for each connection."""

    def __init__(self, node_count: int = 1) -> None:
        self.users: UsersInMemory | None = None
        self.tls: ssl.SSLContext | None = None
        self.login_lasts_ms = 0
        self.logged_in: list[str] = []
        self._login = threading.local()  # A connection has a thread.
        self.topics: dict[str, list[FakePartition]] = {}
        self.committed: dict[str, dict[str, dict[int, int]]] = {}
        self.faults: dict[str, deque[ErrorCode | str]] = defaultdict(deque)
        self.requests: list[tuple[int, str]] = []
        self.hidden_apis: set[str] = set()
        self.last_versions: dict[str, int] = {}  # Of those that know less than we do.
        self.topic_ids: dict[str, UUID] = {}
        self.settings: dict[str, str] = {}  # Of all brokers.
        self.topic_settings = {"retention.ms": "7"}
        self.takes_records = threading.Event()  # Else Produce requests wait.
        self.takes_records.set()
        self.asleep: set[int] = set()
        self._changed = threading.Condition()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(node_count)]
        self._connections: list[socket.socket] = []
        self._producers = 0
        self._ids = count(1)
        for node_id, listener in enumerate(self._listeners, 1):
            threading.Thread(target=self._accept, args=(node_id, listener), daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in self._listeners)

    def add_topic(self, name: str, partition_count: int = 1) -> list[FakePartition]:
        nodes = len(self._listeners)
        self.topic_ids[name] = UUID(int=next(self._ids))
        self.topics[name] = [FakePartition(1 + each % nodes) for each in range(partition_count)]
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        with self._changed:
            del self.topics[name], self.topic_ids[name]
            self._changed.notify_all()

    def append(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """A batch of these, as a producer's would be."""
        with self._changed:
            there = self.topics[topic][partition]
            sequence = there.sequences.get(1, 0)
            there.append(write_batch(records, producer_id=1, base_sequence=sequence))
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        """Whether something became true in time."""
        with self._changed:
            return self._changed.wait_for(condition, seconds_max)

    def wake(self) -> None:
        """All that is asleep answers what it was asked."""
        with self._changed:
            self.asleep.clear()
            self._changed.notify_all()

    def close(self) -> None:
        self.wake()
        self._shut(self._listeners)
        self.hang_up()

    def hang_up(self) -> None:
        """End all connections, as a broker does that is started anew."""
        self._shut(self._connections)

    @staticmethod
    def _shut(sockets: list[socket.socket]) -> None:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, node_id: int, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                self._connections.append(connection)
                threading.Thread(
                    target=self._serve, args=(node_id, connection), daemon=True
                ).start()

    def _serve(self, node_id: int, connection: socket.socket) -> None:
        if self.tls is not None:
            try:
                connection = self.tls.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                return
            self._connections.append(connection)
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(int.from_bytes(size))
                if request[:2] == PRODUCE:
                    self.takes_records.wait()
                with self._changed:
                    self._changed.wait_for(lambda: node_id not in self.asleep)
                answer = self._answer(node_id, request)
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, node_id: int, data: bytes) -> bytes | None:
        header, at = read_request_header(data, 0)
        api = API_BY_KEY[header.api_key]
        codec = import_module(f"smq.wire.generated.{snake(api.name)}")
        request = getattr(codec, f"read_{snake(api.name)}_request")(data, at, header.api_version)
        with self._changed:
            self.requests.append((node_id, api.name))
            is_known = self.users is None or getattr(self._login, "user", None) is not None
            if not is_known and api.name not in BEFORE_LOGIN:
                return None
            fault = self.faults[api.name].popleft() if self.faults[api.name] else ErrorCode.NONE
            if fault == "close":
                return None
            code = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
            response = HANDLERS[api.name](self, node_id, request, code)
            self.twist(api, header.api_version, response)
            self._changed.notify_all()
        if fault == "close after":
            return None
        writer = Writer()
        write_response_header(header.correlation_id, api.key, header.api_version, writer)
        write = getattr(codec, f"write_{snake(api.name)}_response")
        write(response, header.api_version, writer)
        return b"".join(bytes(piece) for piece in writer.framed() if isinstance(piece, bytes))

    def twist(self, api: WireApi[Any, Any], version: int, response: Any) -> None:
        """Change an answer before it is sent; for others to override."""

    def sasl_handshake(self, _node: int, request: Any, _code: ErrorCode) -> Any:
        if self.users is None:
            return sasl_handshake.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        known = ["SCRAM-SHA-256", "PLAIN"]
        code = ErrorCode.NONE
        if request.mechanism in known:
            servers = LoginServers(self.users, Decoys(b""), lambda: "nonce")
            self._login.server = servers.begin(request.mechanism)
        else:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return sasl_handshake.SaslHandshakeResponse(error_code=code, mechanisms=known)

    def sasl_authenticate(self, _node: int, request: Any, _code: ErrorCode) -> Any:
        server: SaslServer = self._login.server
        try:
            answer = server.respond(request.auth_bytes)
            said = answer() if callable(answer) else answer
        except BrokerError as error:
            return sasl_authenticate.SaslAuthenticateResponse(
                error_code=error.code, error_message=error.message or "invalid credentials"
            )
        if server.user is not None:
            self._login.user = server.user
            self.logged_in.append(server.user)
        return sasl_authenticate.SaslAuthenticateResponse(
            auth_bytes=said, session_lifetime_ms=self.login_lasts_ms
        )

    def api_versions(self, _node: int, _request: Any, code: ErrorCode) -> Any:
        return api_versions.ApiVersionsResponse(
            error_code=code,
            api_keys=[
                api_versions.ApiVersion(
                    api_key=each.key,
                    min_version=each.first_version,
                    max_version=self.last_versions.get(each.name, each.last_version),
                )
                for each in API_BY_KEY.values()
                if each.name not in self.hidden_apis
            ],
        )

    def metadata(self, _node: int, request: Any, code: ErrorCode) -> Any:
        names = list(self.topics) if request.topics is None else [t.name for t in request.topics]
        brokers = [
            metadata.MetadataResponseBroker(
                node_id=node_id, host="127.0.0.1", port=each.getsockname()[1]
            )
            for node_id, each in enumerate(self._listeners, 1)
        ]
        topics = [self._topic_metadata(name, code) for name in names]
        return metadata.MetadataResponse(brokers=brokers, topics=topics, cluster_id="fake")

    def _topic_metadata(self, name: str, code: ErrorCode) -> Any:
        if name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return metadata.MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=self.topic_ids.get(name, ZERO_UUID),
            is_internal=name.startswith("__"),
            partitions=[
                metadata.MetadataResponsePartition(
                    partition_index=index, leader_id=each.leader, leader_epoch=each.leader_epoch
                )
                for index, each in enumerate(self.topics.get(name, []))
            ],
        )

    def init_producer_id(self, _node: int, _request: Any, code: ErrorCode) -> Any:
        self._producers += 1
        return init_producer_id.InitProducerIdResponse(
            error_code=code, producer_id=self._producers, producer_epoch=0
        )

    def produce(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        (topic,) = request.topic_data
        answers = []
        for each in topic.partition_data:
            error, partition = code, self.topics[topic.name][each.index]
            base_offset = -1
            if partition.leader != node_id:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if error == ErrorCode.NONE:
                error, base_offset = partition.append(bytes(each.records))
            answers.append(
                produce.PartitionProduceResponse(
                    index=each.index, error_code=error, base_offset=base_offset
                )
            )
        answer = produce.TopicProduceResponse(name=topic.name, partition_responses=answers)
        return produce.ProduceResponse(responses=[answer])

    def fetch(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        self._changed.wait_for(
            lambda: any(
                partition is None or each.fetch_offset != partition.end
                for topic in request.topics
                for each, partition in self._wanted(topic)
            ),
            min(request.max_wait_ms / 1000, LONG_POLL_SECONDS_MAX),
        )
        answers = [self._fetch_topic(node_id, topic, code) for topic in request.topics]
        return fetch.FetchResponse(responses=answers)

    def _wanted(self, topic: Any) -> list[tuple[Any, FakePartition | None]]:
        """What is fetched of a topic; None: there is no such partition."""
        names = {topic_id: name for name, topic_id in self.topic_ids.items()}
        there = self.topics.get(topic.topic or names.get(topic.topic_id, ""), [])
        return [
            (each, there[each.partition] if each.partition < len(there) else None)
            for each in topic.partitions
        ]

    def _fetch_topic(self, node_id: int, topic: Any, code: ErrorCode) -> Any:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.topic_id != ZERO_UUID:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        answers = []
        for each, partition in self._wanted(topic):
            if partition is None:
                answers.append(
                    fetch.PartitionData(
                        partition_index=each.partition, error_code=unknown, records=b""
                    )
                )
                continue
            error = code or partition.fetch_error
            if not partition.start <= each.fetch_offset <= partition.end:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            if partition.leader != node_id:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            answers.append(
                fetch.PartitionData(
                    partition_index=each.partition,
                    error_code=error,
                    records=b"" if error else partition.from_offset(each.fetch_offset),
                )
            )
        return fetch.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=answers
        )

    def list_offsets(self, _node: int, request: Any, code: ErrorCode) -> Any:
        (topic,) = request.topics
        answers = [
            list_offsets.ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=code,
                timestamp=max(-1, each.timestamp),
                offset=offset_at(self.topics[topic.name][each.partition_index], each.timestamp),
            )
            for each in topic.partitions
        ]
        answer = list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=answers)
        return list_offsets.ListOffsetsResponse(topics=[answer])

    def create_topics(self, _node: int, request: Any, code: ErrorCode) -> Any:
        (wanted,) = request.topics
        if wanted.name in self.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        if code == ErrorCode.NONE:
            self.add_topic(wanted.name, max(1, wanted.num_partitions))
        result = create_topics.CreatableTopicResult(
            name=wanted.name, error_code=code, error_message=code.name.lower() if code else None
        )
        return create_topics.CreateTopicsResponse(topics=[result])

    def delete_topics(self, _node: int, request: Any, code: ErrorCode) -> Any:
        (wanted,) = request.topics
        if code == ErrorCode.NONE:
            del self.topics[wanted.name], self.topic_ids[wanted.name]
        result = delete_topics.DeletableTopicResult(name=wanted.name, error_code=code)
        return delete_topics.DeleteTopicsResponse(responses=[result])

    def describe_configs(self, _node: int, request: Any, code: ErrorCode) -> Any:
        (wanted,) = request.resources
        is_broker = wanted.resource_type == BROKER
        configs = [
            describe_configs.DescribeConfigsResourceResult(name=name, value=value, config_source=1)
            for name, value in (self.settings if is_broker else self.topic_settings).items()
        ]
        configs += [
            describe_configs.DescribeConfigsResourceResult(
                name="cleanup.policy", value="delete", config_source=5
            ),
        ]
        result = describe_configs.DescribeConfigsResult(
            error_code=code, resource_type=2, resource_name=wanted.resource_name, configs=configs
        )
        return describe_configs.DescribeConfigsResponse(results=[result])

    def find_coordinator(self, _node: int, _request: Any, code: ErrorCode) -> Any:
        last = len(self._listeners)
        found = find_coordinator.Coordinator(error_code=code, node_id=last)
        return find_coordinator.FindCoordinatorResponse(coordinators=[found])

    def list_groups(self, node_id: int, _request: Any, code: ErrorCode) -> Any:
        mine = self.committed if node_id == len(self._listeners) else {}
        found = [list_groups.ListedGroup(group_id=each) for each in mine]
        return list_groups.ListGroupsResponse(error_code=code, groups=found)

    def offset_fetch(self, node_id: int, request: Any, code: ErrorCode) -> Any:
        if node_id != len(self._listeners):
            code = ErrorCode.NOT_COORDINATOR
        topics = [
            offset_fetch.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=offset
                    )
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in self.committed.get(request.groups[0].group_id, {}).items()
        ]
        group = offset_fetch.OffsetFetchResponseGroup(error_code=code, topics=topics)
        return offset_fetch.OffsetFetchResponse(groups=[group])


Handler = Callable[[FakeKafka, int, Any, ErrorCode], Any]
HANDLERS: dict[str, Handler] = {
    "ApiVersions": FakeKafka.api_versions,
    "Metadata": FakeKafka.metadata,
    "InitProducerId": FakeKafka.init_producer_id,
    "Produce": FakeKafka.produce,
    "Fetch": FakeKafka.fetch,
    "ListOffsets": FakeKafka.list_offsets,
    "CreateTopics": FakeKafka.create_topics,
    "DeleteTopics": FakeKafka.delete_topics,
    "DescribeConfigs": FakeKafka.describe_configs,
    "FindCoordinator": FakeKafka.find_coordinator,
    "ListGroups": FakeKafka.list_groups,
    "OffsetFetch": FakeKafka.offset_fetch,
    "SaslHandshake": FakeKafka.sasl_handshake,
    "SaslAuthenticate": FakeKafka.sasl_authenticate,
}


def offset_at(partition: FakePartition, timestamp: int) -> int:
    if timestamp == -1:
        return partition.end
    if timestamp == -2:
        return partition.start
    found = [each.offset for each in partition.records() if each.timestamp_ms >= timestamp]
    return found[0] if found else -1


@contextmanager
def fake_kafka(node_count: int = 1) -> Iterator[FakeKafka]:
    fake = FakeKafka(node_count)
    try:
        yield fake
    finally:
        fake.close()
