from smq.agent.proto import filer_pb2 as _filer_pb2
from smq.agent.proto import mq_schema_pb2 as _mq_schema_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindBrokerLeaderRequest(_message.Message):
    __slots__ = ("filer_group",)
    FILER_GROUP_FIELD_NUMBER: _ClassVar[int]
    filer_group: str
    def __init__(self, filer_group: _Optional[str] = ...) -> None: ...

class FindBrokerLeaderResponse(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: str
    def __init__(self, broker: _Optional[str] = ...) -> None: ...

class BrokerStats(_message.Message):
    __slots__ = ("cpu_usage_percent", "stats")
    class StatsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: TopicPartitionStats
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[TopicPartitionStats, _Mapping]] = ...) -> None: ...
    CPU_USAGE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    cpu_usage_percent: int
    stats: _containers.MessageMap[str, TopicPartitionStats]
    def __init__(self, cpu_usage_percent: _Optional[int] = ..., stats: _Optional[_Mapping[str, TopicPartitionStats]] = ...) -> None: ...

class TopicPartitionStats(_message.Message):
    __slots__ = ("topic", "partition", "publisher_count", "subscriber_count", "follower")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition: _mq_schema_pb2.Partition
    publisher_count: int
    subscriber_count: int
    follower: str
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., publisher_count: _Optional[int] = ..., subscriber_count: _Optional[int] = ..., follower: _Optional[str] = ...) -> None: ...

class PublisherToPubBalancerRequest(_message.Message):
    __slots__ = ("init", "stats")
    class InitMessage(_message.Message):
        __slots__ = ("broker",)
        BROKER_FIELD_NUMBER: _ClassVar[int]
        broker: str
        def __init__(self, broker: _Optional[str] = ...) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    init: PublisherToPubBalancerRequest.InitMessage
    stats: BrokerStats
    def __init__(self, init: _Optional[_Union[PublisherToPubBalancerRequest.InitMessage, _Mapping]] = ..., stats: _Optional[_Union[BrokerStats, _Mapping]] = ...) -> None: ...

class PublisherToPubBalancerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BalanceTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BalanceTopicsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicRetention(_message.Message):
    __slots__ = ("retention_seconds", "enabled")
    RETENTION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    retention_seconds: int
    enabled: bool
    def __init__(self, retention_seconds: _Optional[int] = ..., enabled: _Optional[bool] = ...) -> None: ...

class ConfigureTopicRequest(_message.Message):
    __slots__ = ("topic", "partition_count", "retention", "message_record_type", "key_columns", "schema_format")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RECORD_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition_count: int
    retention: TopicRetention
    message_record_type: _mq_schema_pb2.RecordType
    key_columns: _containers.RepeatedScalarFieldContainer[str]
    schema_format: str
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition_count: _Optional[int] = ..., retention: _Optional[_Union[TopicRetention, _Mapping]] = ..., message_record_type: _Optional[_Union[_mq_schema_pb2.RecordType, _Mapping]] = ..., key_columns: _Optional[_Iterable[str]] = ..., schema_format: _Optional[str] = ...) -> None: ...

class ConfigureTopicResponse(_message.Message):
    __slots__ = ("broker_partition_assignments", "retention", "message_record_type", "key_columns", "schema_format")
    BROKER_PARTITION_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RECORD_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    broker_partition_assignments: _containers.RepeatedCompositeFieldContainer[BrokerPartitionAssignment]
    retention: TopicRetention
    message_record_type: _mq_schema_pb2.RecordType
    key_columns: _containers.RepeatedScalarFieldContainer[str]
    schema_format: str
    def __init__(self, broker_partition_assignments: _Optional[_Iterable[_Union[BrokerPartitionAssignment, _Mapping]]] = ..., retention: _Optional[_Union[TopicRetention, _Mapping]] = ..., message_record_type: _Optional[_Union[_mq_schema_pb2.RecordType, _Mapping]] = ..., key_columns: _Optional[_Iterable[str]] = ..., schema_format: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_mq_schema_pb2.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[_mq_schema_pb2.Topic, _Mapping]]] = ...) -> None: ...

class TopicExistsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ...) -> None: ...

class TopicExistsResponse(_message.Message):
    __slots__ = ("exists",)
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    exists: bool
    def __init__(self, exists: _Optional[bool] = ...) -> None: ...

class LookupTopicBrokersRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ...) -> None: ...

class LookupTopicBrokersResponse(_message.Message):
    __slots__ = ("topic", "broker_partition_assignments")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_PARTITION_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    broker_partition_assignments: _containers.RepeatedCompositeFieldContainer[BrokerPartitionAssignment]
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., broker_partition_assignments: _Optional[_Iterable[_Union[BrokerPartitionAssignment, _Mapping]]] = ...) -> None: ...

class BrokerPartitionAssignment(_message.Message):
    __slots__ = ("partition", "leader_broker", "follower_broker")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_BROKER_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_BROKER_FIELD_NUMBER: _ClassVar[int]
    partition: _mq_schema_pb2.Partition
    leader_broker: str
    follower_broker: str
    def __init__(self, partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., leader_broker: _Optional[str] = ..., follower_broker: _Optional[str] = ...) -> None: ...

class GetTopicConfigurationRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ...) -> None: ...

class GetTopicConfigurationResponse(_message.Message):
    __slots__ = ("topic", "partition_count", "broker_partition_assignments", "created_at_ns", "last_updated_ns", "retention", "message_record_type", "key_columns", "schema_format")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    BROKER_PARTITION_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_NS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RECORD_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FORMAT_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition_count: int
    broker_partition_assignments: _containers.RepeatedCompositeFieldContainer[BrokerPartitionAssignment]
    created_at_ns: int
    last_updated_ns: int
    retention: TopicRetention
    message_record_type: _mq_schema_pb2.RecordType
    key_columns: _containers.RepeatedScalarFieldContainer[str]
    schema_format: str
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition_count: _Optional[int] = ..., broker_partition_assignments: _Optional[_Iterable[_Union[BrokerPartitionAssignment, _Mapping]]] = ..., created_at_ns: _Optional[int] = ..., last_updated_ns: _Optional[int] = ..., retention: _Optional[_Union[TopicRetention, _Mapping]] = ..., message_record_type: _Optional[_Union[_mq_schema_pb2.RecordType, _Mapping]] = ..., key_columns: _Optional[_Iterable[str]] = ..., schema_format: _Optional[str] = ...) -> None: ...

class GetTopicPublishersRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ...) -> None: ...

class GetTopicPublishersResponse(_message.Message):
    __slots__ = ("publishers",)
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    publishers: _containers.RepeatedCompositeFieldContainer[TopicPublisher]
    def __init__(self, publishers: _Optional[_Iterable[_Union[TopicPublisher, _Mapping]]] = ...) -> None: ...

class GetTopicSubscribersRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ...) -> None: ...

class GetTopicSubscribersResponse(_message.Message):
    __slots__ = ("subscribers",)
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    subscribers: _containers.RepeatedCompositeFieldContainer[TopicSubscriber]
    def __init__(self, subscribers: _Optional[_Iterable[_Union[TopicSubscriber, _Mapping]]] = ...) -> None: ...

class TopicPublisher(_message.Message):
    __slots__ = ("publisher_name", "client_id", "partition", "connect_time_ns", "last_seen_time_ns", "broker", "is_active", "last_published_offset", "last_acked_offset")
    PUBLISHER_NAME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_ACKED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    publisher_name: str
    client_id: str
    partition: _mq_schema_pb2.Partition
    connect_time_ns: int
    last_seen_time_ns: int
    broker: str
    is_active: bool
    last_published_offset: int
    last_acked_offset: int
    def __init__(self, publisher_name: _Optional[str] = ..., client_id: _Optional[str] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., connect_time_ns: _Optional[int] = ..., last_seen_time_ns: _Optional[int] = ..., broker: _Optional[str] = ..., is_active: _Optional[bool] = ..., last_published_offset: _Optional[int] = ..., last_acked_offset: _Optional[int] = ...) -> None: ...

class TopicSubscriber(_message.Message):
    __slots__ = ("consumer_group", "consumer_id", "client_id", "partition", "connect_time_ns", "last_seen_time_ns", "broker", "is_active", "current_offset", "last_received_offset")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_RECEIVED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    consumer_id: str
    client_id: str
    partition: _mq_schema_pb2.Partition
    connect_time_ns: int
    last_seen_time_ns: int
    broker: str
    is_active: bool
    current_offset: int
    last_received_offset: int
    def __init__(self, consumer_group: _Optional[str] = ..., consumer_id: _Optional[str] = ..., client_id: _Optional[str] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., connect_time_ns: _Optional[int] = ..., last_seen_time_ns: _Optional[int] = ..., broker: _Optional[str] = ..., is_active: _Optional[bool] = ..., current_offset: _Optional[int] = ..., last_received_offset: _Optional[int] = ...) -> None: ...

class AssignTopicPartitionsRequest(_message.Message):
    __slots__ = ("topic", "broker_partition_assignments", "is_leader", "is_draining")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_PARTITION_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    broker_partition_assignments: _containers.RepeatedCompositeFieldContainer[BrokerPartitionAssignment]
    is_leader: bool
    is_draining: bool
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., broker_partition_assignments: _Optional[_Iterable[_Union[BrokerPartitionAssignment, _Mapping]]] = ..., is_leader: _Optional[bool] = ..., is_draining: _Optional[bool] = ...) -> None: ...

class AssignTopicPartitionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SubscriberToSubCoordinatorRequest(_message.Message):
    __slots__ = ("init", "ack_assignment", "ack_un_assignment")
    class InitMessage(_message.Message):
        __slots__ = ("consumer_group", "consumer_group_instance_id", "topic", "max_partition_count", "rebalance_seconds")
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        MAX_PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
        REBALANCE_SECONDS_FIELD_NUMBER: _ClassVar[int]
        consumer_group: str
        consumer_group_instance_id: str
        topic: _mq_schema_pb2.Topic
        max_partition_count: int
        rebalance_seconds: int
        def __init__(self, consumer_group: _Optional[str] = ..., consumer_group_instance_id: _Optional[str] = ..., topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., max_partition_count: _Optional[int] = ..., rebalance_seconds: _Optional[int] = ...) -> None: ...
    class AckUnAssignmentMessage(_message.Message):
        __slots__ = ("partition",)
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        partition: _mq_schema_pb2.Partition
        def __init__(self, partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ...) -> None: ...
    class AckAssignmentMessage(_message.Message):
        __slots__ = ("partition",)
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        partition: _mq_schema_pb2.Partition
        def __init__(self, partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ...) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    ACK_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ACK_UN_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    init: SubscriberToSubCoordinatorRequest.InitMessage
    ack_assignment: SubscriberToSubCoordinatorRequest.AckAssignmentMessage
    ack_un_assignment: SubscriberToSubCoordinatorRequest.AckUnAssignmentMessage
    def __init__(self, init: _Optional[_Union[SubscriberToSubCoordinatorRequest.InitMessage, _Mapping]] = ..., ack_assignment: _Optional[_Union[SubscriberToSubCoordinatorRequest.AckAssignmentMessage, _Mapping]] = ..., ack_un_assignment: _Optional[_Union[SubscriberToSubCoordinatorRequest.AckUnAssignmentMessage, _Mapping]] = ...) -> None: ...

class SubscriberToSubCoordinatorResponse(_message.Message):
    __slots__ = ("assignment", "un_assignment")
    class Assignment(_message.Message):
        __slots__ = ("partition_assignment",)
        PARTITION_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
        partition_assignment: BrokerPartitionAssignment
        def __init__(self, partition_assignment: _Optional[_Union[BrokerPartitionAssignment, _Mapping]] = ...) -> None: ...
    class UnAssignment(_message.Message):
        __slots__ = ("partition",)
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        partition: _mq_schema_pb2.Partition
        def __init__(self, partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ...) -> None: ...
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    UN_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    assignment: SubscriberToSubCoordinatorResponse.Assignment
    un_assignment: SubscriberToSubCoordinatorResponse.UnAssignment
    def __init__(self, assignment: _Optional[_Union[SubscriberToSubCoordinatorResponse.Assignment, _Mapping]] = ..., un_assignment: _Optional[_Union[SubscriberToSubCoordinatorResponse.UnAssignment, _Mapping]] = ...) -> None: ...

class ControlMessage(_message.Message):
    __slots__ = ("is_close", "publisher_name")
    IS_CLOSE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_NAME_FIELD_NUMBER: _ClassVar[int]
    is_close: bool
    publisher_name: str
    def __init__(self, is_close: _Optional[bool] = ..., publisher_name: _Optional[str] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class DataMessage(_message.Message):
    __slots__ = ("key", "value", "ts_ns", "ctrl", "offset", "headers", "sequence")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TS_NS_FIELD_NUMBER: _ClassVar[int]
    CTRL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    ts_ns: int
    ctrl: ControlMessage
    offset: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    sequence: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., ts_ns: _Optional[int] = ..., ctrl: _Optional[_Union[ControlMessage, _Mapping]] = ..., offset: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., sequence: _Optional[int] = ...) -> None: ...

class PublishMessageRequest(_message.Message):
    __slots__ = ("init", "data")
    class InitMessage(_message.Message):
        __slots__ = ("topic", "partition", "ack_interval", "follower_broker", "publisher_name")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ACK_INTERVAL_FIELD_NUMBER: _ClassVar[int]
        FOLLOWER_BROKER_FIELD_NUMBER: _ClassVar[int]
        PUBLISHER_NAME_FIELD_NUMBER: _ClassVar[int]
        topic: _mq_schema_pb2.Topic
        partition: _mq_schema_pb2.Partition
        ack_interval: int
        follower_broker: str
        publisher_name: str
        def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., ack_interval: _Optional[int] = ..., follower_broker: _Optional[str] = ..., publisher_name: _Optional[str] = ...) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    init: PublishMessageRequest.InitMessage
    data: DataMessage
    def __init__(self, init: _Optional[_Union[PublishMessageRequest.InitMessage, _Mapping]] = ..., data: _Optional[_Union[DataMessage, _Mapping]] = ...) -> None: ...

class PublishMessageResponse(_message.Message):
    __slots__ = ("ack_ts_ns", "error", "should_close", "error_code", "assigned_offset", "base_offset", "sequence")
    ACK_TS_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SHOULD_CLOSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ack_ts_ns: int
    error: str
    should_close: bool
    error_code: int
    assigned_offset: int
    base_offset: int
    sequence: int
    def __init__(self, ack_ts_ns: _Optional[int] = ..., error: _Optional[str] = ..., should_close: _Optional[bool] = ..., error_code: _Optional[int] = ..., assigned_offset: _Optional[int] = ..., base_offset: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class PublishFollowMeRequest(_message.Message):
    __slots__ = ("init", "data", "flush", "close")
    class InitMessage(_message.Message):
        __slots__ = ("topic", "partition")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        topic: _mq_schema_pb2.Topic
        partition: _mq_schema_pb2.Partition
        def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ...) -> None: ...
    class FlushMessage(_message.Message):
        __slots__ = ("ts_ns",)
        TS_NS_FIELD_NUMBER: _ClassVar[int]
        ts_ns: int
        def __init__(self, ts_ns: _Optional[int] = ...) -> None: ...
    class CloseMessage(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    init: PublishFollowMeRequest.InitMessage
    data: DataMessage
    flush: PublishFollowMeRequest.FlushMessage
    close: PublishFollowMeRequest.CloseMessage
    def __init__(self, init: _Optional[_Union[PublishFollowMeRequest.InitMessage, _Mapping]] = ..., data: _Optional[_Union[DataMessage, _Mapping]] = ..., flush: _Optional[_Union[PublishFollowMeRequest.FlushMessage, _Mapping]] = ..., close: _Optional[_Union[PublishFollowMeRequest.CloseMessage, _Mapping]] = ...) -> None: ...

class PublishFollowMeResponse(_message.Message):
    __slots__ = ("ack_ts_ns",)
    ACK_TS_NS_FIELD_NUMBER: _ClassVar[int]
    ack_ts_ns: int
    def __init__(self, ack_ts_ns: _Optional[int] = ...) -> None: ...

class SubscribeMessageRequest(_message.Message):
    __slots__ = ("init", "ack", "seek")
    class InitMessage(_message.Message):
        __slots__ = ("consumer_group", "consumer_id", "client_id", "topic", "partition_offset", "offset_type", "filter", "follower_broker", "sliding_window_size")
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_OFFSET_FIELD_NUMBER: _ClassVar[int]
        OFFSET_TYPE_FIELD_NUMBER: _ClassVar[int]
        FILTER_FIELD_NUMBER: _ClassVar[int]
        FOLLOWER_BROKER_FIELD_NUMBER: _ClassVar[int]
        SLIDING_WINDOW_SIZE_FIELD_NUMBER: _ClassVar[int]
        consumer_group: str
        consumer_id: str
        client_id: str
        topic: _mq_schema_pb2.Topic
        partition_offset: _mq_schema_pb2.PartitionOffset
        offset_type: _mq_schema_pb2.OffsetType
        filter: str
        follower_broker: str
        sliding_window_size: int
        def __init__(self, consumer_group: _Optional[str] = ..., consumer_id: _Optional[str] = ..., client_id: _Optional[str] = ..., topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition_offset: _Optional[_Union[_mq_schema_pb2.PartitionOffset, _Mapping]] = ..., offset_type: _Optional[_Union[_mq_schema_pb2.OffsetType, str]] = ..., filter: _Optional[str] = ..., follower_broker: _Optional[str] = ..., sliding_window_size: _Optional[int] = ...) -> None: ...
    class AckMessage(_message.Message):
        __slots__ = ("ts_ns", "key", "nack", "offset")
        TS_NS_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        NACK_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        ts_ns: int
        key: bytes
        nack: bool
        offset: int
        def __init__(self, ts_ns: _Optional[int] = ..., key: _Optional[bytes] = ..., nack: _Optional[bool] = ..., offset: _Optional[int] = ...) -> None: ...
    class SeekMessage(_message.Message):
        __slots__ = ("offset", "offset_type")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        OFFSET_TYPE_FIELD_NUMBER: _ClassVar[int]
        offset: int
        offset_type: _mq_schema_pb2.OffsetType
        def __init__(self, offset: _Optional[int] = ..., offset_type: _Optional[_Union[_mq_schema_pb2.OffsetType, str]] = ...) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    init: SubscribeMessageRequest.InitMessage
    ack: SubscribeMessageRequest.AckMessage
    seek: SubscribeMessageRequest.SeekMessage
    def __init__(self, init: _Optional[_Union[SubscribeMessageRequest.InitMessage, _Mapping]] = ..., ack: _Optional[_Union[SubscribeMessageRequest.AckMessage, _Mapping]] = ..., seek: _Optional[_Union[SubscribeMessageRequest.SeekMessage, _Mapping]] = ...) -> None: ...

class SubscribeMessageResponse(_message.Message):
    __slots__ = ("ctrl", "data")
    class SubscribeCtrlMessage(_message.Message):
        __slots__ = ("error", "is_end_of_stream", "is_end_of_topic")
        ERROR_FIELD_NUMBER: _ClassVar[int]
        IS_END_OF_STREAM_FIELD_NUMBER: _ClassVar[int]
        IS_END_OF_TOPIC_FIELD_NUMBER: _ClassVar[int]
        error: str
        is_end_of_stream: bool
        is_end_of_topic: bool
        def __init__(self, error: _Optional[str] = ..., is_end_of_stream: _Optional[bool] = ..., is_end_of_topic: _Optional[bool] = ...) -> None: ...
    CTRL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ctrl: SubscribeMessageResponse.SubscribeCtrlMessage
    data: DataMessage
    def __init__(self, ctrl: _Optional[_Union[SubscribeMessageResponse.SubscribeCtrlMessage, _Mapping]] = ..., data: _Optional[_Union[DataMessage, _Mapping]] = ...) -> None: ...

class SubscribeFollowMeRequest(_message.Message):
    __slots__ = ("init", "ack", "close")
    class InitMessage(_message.Message):
        __slots__ = ("topic", "partition", "consumer_group")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        topic: _mq_schema_pb2.Topic
        partition: _mq_schema_pb2.Partition
        consumer_group: str
        def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., consumer_group: _Optional[str] = ...) -> None: ...
    class AckMessage(_message.Message):
        __slots__ = ("ts_ns",)
        TS_NS_FIELD_NUMBER: _ClassVar[int]
        ts_ns: int
        def __init__(self, ts_ns: _Optional[int] = ...) -> None: ...
    class CloseMessage(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    init: SubscribeFollowMeRequest.InitMessage
    ack: SubscribeFollowMeRequest.AckMessage
    close: SubscribeFollowMeRequest.CloseMessage
    def __init__(self, init: _Optional[_Union[SubscribeFollowMeRequest.InitMessage, _Mapping]] = ..., ack: _Optional[_Union[SubscribeFollowMeRequest.AckMessage, _Mapping]] = ..., close: _Optional[_Union[SubscribeFollowMeRequest.CloseMessage, _Mapping]] = ...) -> None: ...

class SubscribeFollowMeResponse(_message.Message):
    __slots__ = ("ack_ts_ns",)
    ACK_TS_NS_FIELD_NUMBER: _ClassVar[int]
    ack_ts_ns: int
    def __init__(self, ack_ts_ns: _Optional[int] = ...) -> None: ...

class FetchMessageRequest(_message.Message):
    __slots__ = ("topic", "partition", "start_offset", "max_bytes", "max_messages", "max_wait_ms", "min_bytes", "consumer_group", "consumer_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition: _mq_schema_pb2.Partition
    start_offset: int
    max_bytes: int
    max_messages: int
    max_wait_ms: int
    min_bytes: int
    consumer_group: str
    consumer_id: str
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., start_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., consumer_group: _Optional[str] = ..., consumer_id: _Optional[str] = ...) -> None: ...

class FetchMessageResponse(_message.Message):
    __slots__ = ("messages", "high_water_mark", "log_start_offset", "end_of_partition", "error", "error_code", "next_offset")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATER_MARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OF_PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DataMessage]
    high_water_mark: int
    log_start_offset: int
    end_of_partition: bool
    error: str
    error_code: int
    next_offset: int
    def __init__(self, messages: _Optional[_Iterable[_Union[DataMessage, _Mapping]]] = ..., high_water_mark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., end_of_partition: _Optional[bool] = ..., error: _Optional[str] = ..., error_code: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ClosePublishersRequest(_message.Message):
    __slots__ = ("topic", "unix_time_ns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    unix_time_ns: int
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., unix_time_ns: _Optional[int] = ...) -> None: ...

class ClosePublishersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CloseSubscribersRequest(_message.Message):
    __slots__ = ("topic", "unix_time_ns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    unix_time_ns: int
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., unix_time_ns: _Optional[int] = ...) -> None: ...

class CloseSubscribersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetUnflushedMessagesRequest(_message.Message):
    __slots__ = ("topic", "partition", "start_buffer_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_BUFFER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition: _mq_schema_pb2.Partition
    start_buffer_offset: int
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ..., start_buffer_offset: _Optional[int] = ...) -> None: ...

class GetUnflushedMessagesResponse(_message.Message):
    __slots__ = ("message", "error", "end_of_stream")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    END_OF_STREAM_FIELD_NUMBER: _ClassVar[int]
    message: _filer_pb2.LogEntry
    error: str
    end_of_stream: bool
    def __init__(self, message: _Optional[_Union[_filer_pb2.LogEntry, _Mapping]] = ..., error: _Optional[str] = ..., end_of_stream: _Optional[bool] = ...) -> None: ...

class GetPartitionRangeInfoRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition: _mq_schema_pb2.Partition
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition: _Optional[_Union[_mq_schema_pb2.Partition, _Mapping]] = ...) -> None: ...

class GetPartitionRangeInfoResponse(_message.Message):
    __slots__ = ("offset_range", "timestamp_range", "record_count", "active_subscriptions", "error")
    OFFSET_RANGE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_RANGE_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    offset_range: OffsetRangeInfo
    timestamp_range: TimestampRangeInfo
    record_count: int
    active_subscriptions: int
    error: str
    def __init__(self, offset_range: _Optional[_Union[OffsetRangeInfo, _Mapping]] = ..., timestamp_range: _Optional[_Union[TimestampRangeInfo, _Mapping]] = ..., record_count: _Optional[int] = ..., active_subscriptions: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class OffsetRangeInfo(_message.Message):
    __slots__ = ("earliest_offset", "latest_offset", "high_water_mark")
    EARLIEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LATEST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATER_MARK_FIELD_NUMBER: _ClassVar[int]
    earliest_offset: int
    latest_offset: int
    high_water_mark: int
    def __init__(self, earliest_offset: _Optional[int] = ..., latest_offset: _Optional[int] = ..., high_water_mark: _Optional[int] = ...) -> None: ...

class TimestampRangeInfo(_message.Message):
    __slots__ = ("earliest_timestamp_ns", "latest_timestamp_ns")
    EARLIEST_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    LATEST_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    earliest_timestamp_ns: int
    latest_timestamp_ns: int
    def __init__(self, earliest_timestamp_ns: _Optional[int] = ..., latest_timestamp_ns: _Optional[int] = ...) -> None: ...
