"""The calls of SeaweedMQ's broker service that are about topics."""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import compress
from typing import Any

import grpc

from smq.agent.layouts import PARTITIONS_MAX, range_of
from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import RecordType
from smq.agent.records import fields_of, record_type_of
from smq.agent.topic_names import KAFKA, TopicName
from smq.app.agent.broker import BrokerSide
from smq.app.agent.kafka_consumers import consumers_of
from smq.app.agent.live import Live, LivePublisher, LiveSubscriber
from smq.app.agent.methods import Context, Handler
from smq.app.agent.refusals import CallRefused, Code, NotAllowed
from smq.app.agent.topics import KnownTopic, KnownTopics
from smq.app.agent.translation import assignments, partition_message, topic_message, topic_name
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.topic_changes import alter_topic, grow_topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.record_types import text_of
from smq.model.topic_configs import KEY_COLUMNS, NAMESPACE, RECORD_TYPE, SCHEMA_FORMAT
from smq.security.acls import Operation, ResourceType
from smq.security.audit import DENIALS
from smq.security.authorizer import Choice
from smq.store.config_changes import ConfigChanges

RETENTION, FOR_EVER = "retention.ms", "-1"
MS_NS = 1_000_000
RETENTION_SECONDS_MAX = 2**63 // 1000 - 1


class TopicCalls:
    """Answers what is asked about topics. `told`: the address of this door, as clients know it."""

    def __init__(
        self,
        topics: KnownTopics,
        broker: BrokerSide,
        changes: ConfigChanges,
        told: str,
        live: tuple[Live[LivePublisher], Live[LiveSubscriber]],
    ) -> None:
        self._topics, self._broker, self._changes = topics, broker, changes
        self._told = told
        self._publishers, self._subscribers = live
        self._asking = asyncio.Lock()  # Who asks for all groups asks alone.

    def handlers(self) -> dict[str, Handler]:
        """The calls, by name."""
        return {
            "FindBrokerLeader": self._find_leader,
            "BalanceTopics": self._balance,
            "ListTopics": self._list,
            "TopicExists": self._exists,
            "ConfigureTopic": self._configure,
            "LookupTopicBrokers": self._look_up,
            "GetTopicConfiguration": self._describe,
            "GetTopicPublishers": self._list_publishers,
            "GetTopicSubscribers": self._list_subscribers,
        }

    async def _find_leader(self, _: Any, __: Context) -> pb.FindBrokerLeaderResponse:  # noqa: ANN401
        return pb.FindBrokerLeaderResponse(broker=self._told)

    async def _balance(self, _: Any, call: Context) -> pb.BalanceTopicsResponse:  # noqa: ANN401
        """Leaders cannot move: all is as balanced as it gets."""
        call.check()
        return pb.BalanceTopicsResponse()

    async def _list(self, _: Any, call: Context) -> pb.ListTopicsResponse:  # noqa: ANN401
        choose = call.rights.choice(Operation.DESCRIBE, ResourceType.TOPIC)
        return await asyncio.to_thread(_listed, self._topics.all(), choose)

    async def _exists(
        self, request: pb.TopicExistsRequest, call: Context
    ) -> pb.TopicExistsResponse:
        found = self._seen(call, topic_name(request.topic))
        return pb.TopicExistsResponse(exists=found is not None)

    def _seen(self, call: Context, name: TopicName) -> KnownTopic | None:
        """A topic; None: there is none that the caller may know of."""
        return self._topics.find_or_none(name) if call.sees(name.kafka_name) else None

    async def _look_up(
        self, request: pb.LookupTopicBrokersRequest, call: Context
    ) -> pb.LookupTopicBrokersResponse:
        topic = self._topics.asked(call, topic_name(request.topic))
        return pb.LookupTopicBrokersResponse(
            topic=request.topic, broker_partition_assignments=assignments(topic, self._told)
        )

    async def _describe(
        self, request: pb.GetTopicConfigurationRequest, call: Context
    ) -> pb.GetTopicConfigurationResponse:
        topic = self._topics.asked(call, topic_name(request.topic))
        changed = self._changes.newest(1, "topic", topic.kafka_name)
        changed_ns = [each.changed_ms * MS_NS for each in changed]
        return pb.GetTopicConfigurationResponse(
            topic=request.topic,
            partition_count=topic.layout.partition_count,
            broker_partition_assignments=assignments(topic, self._told),
            created_at_ns=topic.layouts[0].began_ns,
            last_updated_ns=max([topic.layout.began_ns, *changed_ns]),
            **self._facts(topic),
        )

    async def _configure(
        self, request: pb.ConfigureTopicRequest, call: Context
    ) -> pb.ConfigureTopicResponse:
        topic = await self.configured(request, call)
        return pb.ConfigureTopicResponse(
            broker_partition_assignments=assignments(topic, self._told), **self._facts(topic)
        )

    async def configured(self, request: pb.ConfigureTopicRequest, call: Context) -> KnownTopic:
        """The topic as it is asked for: created, or changed as far as it differs.

        Changes are made in the caller's name. Raises NotAllowed, REFUSALS.
        """
        try:
            return await self._configured(request, call)
        except BrokerError as error:
            if error.code not in DENIALS:
                raise
            name = topic_name(request.topic)
            raise NotAllowed(f"the rights for that on the topic {name.kafka_name} lack") from error

    async def _configured(self, request: pb.ConfigureTopicRequest, call: Context) -> KnownTopic:
        name, count = topic_name(request.topic), request.partition_count
        if not 0 <= count <= PARTITIONS_MAX:
            raise ValueError(
                f"partition_count is {count}; SeaweedMQ's ring has slots for {PARTITIONS_MAX}"
            )
        configs = _configs(request)
        topic = self._seen(call, name)
        if topic is None:
            topic = await self._created(name, count, configs, call)
        if count > topic.layout.partition_count:
            await self._grow(name, count, call)
        new = {key: value for key, value in configs.items() if topic.configs.get(key) != value}
        if new:
            change = partial(alter_topic, name=name.kafka_name, new=new, unset=())
            await self._broker.ask(change, call.asker)
        return self._topics.find(name)

    async def _grow(self, name: TopicName, count: int, call: Context) -> None:
        """Have so many partitions in all: others may ask for the same at the same time."""
        try:
            await self._broker.ask(
                partial(grow_topic, name=name.kafka_name, count=count), call.asker
            )
        except BrokerError as error:
            if error.code != ErrorCode.INVALID_PARTITIONS:
                raise
            if self._topics.find(name).layout.partition_count < count:
                raise

    async def _created(
        self, name: TopicName, count: int, configs: dict[str, str], call: Context
    ) -> KnownTopic:
        rights = call.rights
        if not (
            rights.cluster(Operation.CREATE) or rights.asks_topic(Operation.CREATE, name.kafka_name)
        ):
            raise NotAllowed(f"this needs CREATE on the topic {name.kafka_name}, or on the cluster")
        if self._topics.has_kafka_name(name.kafka_name):
            raise CallRefused(
                grpc.StatusCode.ALREADY_EXISTS,
                f"{name} would be Kafka's topic {name.kafka_name}, which there is already, in "
                "another namespace or hidden; choose another name",
                Code.TOPIC_EXISTS,
            )
        if name.namespace != KAFKA:
            configs = configs | {NAMESPACE: name.namespace}
        partitions = count or admin.DEFAULT_OF_THE_BROKER
        create = partial(
            admin.request_topic, name=name.kafka_name, partition_count=partitions, configs=configs
        )
        try:
            await self._broker.ask(create, call.asker)
        except BrokerError as error:
            # Another caller was faster; a topic of his may be hidden from this one.
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not call.sees(name.kafka_name):
                raise
        # In our own name: who creates a topic may not have a right to look at it.
        await self._broker.ask(partial(admin.wait_for_topic, name=name.kafka_name))
        return self._topics.find(name)

    def _facts(self, topic: KnownTopic) -> dict[str, Any]:
        """What both the answers say of a topic."""
        retention_ms = int(self._topics.setting(topic, RETENTION))
        fields = topic.fields
        columns = topic.configs.get(KEY_COLUMNS, "")
        return {
            "retention": pb.TopicRetention(
                retention_seconds=max(0, retention_ms) // 1000, enabled=retention_ms >= 0
            ),
            "message_record_type": record_type_of(fields) if fields else None,
            "key_columns": columns.split(",") if columns else [],
            "schema_format": topic.configs.get(SCHEMA_FORMAT, ""),
        }

    async def _list_publishers(
        self, request: pb.GetTopicPublishersRequest, call: Context
    ) -> pb.GetTopicPublishersResponse:
        topic = self._topics.asked(call, topic_name(request.topic))
        found = self._publishers.of(topic.id)
        return pb.GetTopicPublishersResponse(publishers=map(self._publisher, found))

    def _publisher(self, each: LivePublisher) -> pb.TopicPublisher:
        return pb.TopicPublisher(
            publisher_name=each.name,
            client_id=each.client_id,
            partition=partition_message(each.partition),
            connect_time_ns=each.connected_ns,
            last_seen_time_ns=each.seen_ns,
            broker=self._told,
            is_active=True,
            last_published_offset=each.published_offset,
            last_acked_offset=each.acked_offset,
        )

    async def _list_subscribers(
        self, request: pb.GetTopicSubscribersRequest, call: Context
    ) -> pb.GetTopicSubscribersResponse:
        topic = self._topics.asked(call, topic_name(request.topic))
        all_found = [*self._subscribers.of(topic.id)]
        names = [each.group for each in all_found]
        choice = call.rights.choice(Operation.DESCRIBE, ResourceType.GROUP)
        found = compress(all_found, await asyncio.to_thread(choice, names))
        subscribers = [*map(self._subscriber, found)]
        async with self._asking:
            subscribers += await self._broker.ask(
                partial(self._kafkas_subscribers, topic=topic), call.asker
            )
        return pb.GetTopicSubscribersResponse(subscribers=subscribers)

    def _kafkas_subscribers(self, cluster: Cluster, topic: KnownTopic) -> list[pb.TopicSubscriber]:
        count = topic.layout.partition_count
        return [
            pb.TopicSubscriber(
                consumer_group=each.group,
                consumer_id=each.member,
                client_id=each.client_id,
                partition=partition_message(range_of(topic.layout, each.partition)),
                broker=self._told,
                is_active=True,
                current_offset=max(0, each.committed),
            )
            for each in consumers_of(cluster, topic.kafka_name)
            if each.partition < count  # Others came later.
        ]

    def _subscriber(self, each: LiveSubscriber) -> pb.TopicSubscriber:
        return pb.TopicSubscriber(
            consumer_group=each.group,
            consumer_id=each.consumer_id,
            client_id=each.client_id,
            partition=partition_message(each.partition),
            connect_time_ns=each.connected_ns,
            last_seen_time_ns=each.seen_ns,
            broker=self._told,
            is_active=True,
            current_offset=each.position,
            last_received_offset=each.received_offset,
        )


def _listed(names: Iterator[TopicName], choose: Choice) -> pb.ListTopicsResponse:
    """In a thread: names and rules may be very many."""
    found = [*names]
    shown = choose([each.kafka_name for each in found])
    return pb.ListTopicsResponse(topics=map(topic_message, compress(found, shown)))


def _configs(request: pb.ConfigureTopicRequest) -> dict[str, str]:
    """The configs that a request asks for; what it does not say stays as it is."""
    configs = dict(_typed(request.message_record_type))
    if request.HasField("retention"):
        retention = request.retention
        if not 0 <= retention.retention_seconds <= RETENTION_SECONDS_MAX:
            raise ValueError(f"retention_seconds is {retention.retention_seconds}")
        kept_ms = str(1000 * retention.retention_seconds)
        configs[RETENTION] = kept_ms if retention.enabled else FOR_EVER
    if request.key_columns:
        configs[KEY_COLUMNS] = ",".join(request.key_columns)
    if request.schema_format:
        configs[SCHEMA_FORMAT] = request.schema_format
    return configs


def _typed(record_type: RecordType) -> Iterator[tuple[str, str]]:
    if record_type.fields:
        yield RECORD_TYPE, text_of(fields_of(record_type))
