from smq.agent.proto import mq_broker_pb2 as _mq_broker_pb2
from smq.agent.proto import mq_schema_pb2 as _mq_schema_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartPublishSessionRequest(_message.Message):
    __slots__ = ("topic", "partition_count", "record_type", "publisher_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECORD_TYPE_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: _mq_schema_pb2.Topic
    partition_count: int
    record_type: _mq_schema_pb2.RecordType
    publisher_name: str
    def __init__(self, topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition_count: _Optional[int] = ..., record_type: _Optional[_Union[_mq_schema_pb2.RecordType, _Mapping]] = ..., publisher_name: _Optional[str] = ...) -> None: ...

class StartPublishSessionResponse(_message.Message):
    __slots__ = ("error", "session_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    error: str
    session_id: int
    def __init__(self, error: _Optional[str] = ..., session_id: _Optional[int] = ...) -> None: ...

class ClosePublishSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class ClosePublishSessionResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class PublishRecordRequest(_message.Message):
    __slots__ = ("session_id", "key", "value", "sequence", "headers")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    key: bytes
    value: _mq_schema_pb2.RecordValue
    sequence: int
    headers: _containers.RepeatedCompositeFieldContainer[_mq_broker_pb2.Header]
    def __init__(self, session_id: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[_Union[_mq_schema_pb2.RecordValue, _Mapping]] = ..., sequence: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[_mq_broker_pb2.Header, _Mapping]]] = ...) -> None: ...

class PublishRecordResponse(_message.Message):
    __slots__ = ("ack_sequence", "error", "base_offset", "last_offset", "partition", "error_code", "sequence")
    ACK_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ack_sequence: int
    error: str
    base_offset: int
    last_offset: int
    partition: int
    error_code: int
    sequence: int
    def __init__(self, ack_sequence: _Optional[int] = ..., error: _Optional[str] = ..., base_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., partition: _Optional[int] = ..., error_code: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class SubscribeRecordRequest(_message.Message):
    __slots__ = ("init", "ack_sequence", "ack_key", "nack", "offset", "seek", "ack_partition")
    class InitSubscribeRecordRequest(_message.Message):
        __slots__ = ("consumer_group", "consumer_group_instance_id", "topic", "partition_offsets", "offset_type", "offset_ts_ns", "filter", "max_subscribed_partitions", "sliding_window_size")
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_GROUP_INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        PARTITION_OFFSETS_FIELD_NUMBER: _ClassVar[int]
        OFFSET_TYPE_FIELD_NUMBER: _ClassVar[int]
        OFFSET_TS_NS_FIELD_NUMBER: _ClassVar[int]
        FILTER_FIELD_NUMBER: _ClassVar[int]
        MAX_SUBSCRIBED_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        SLIDING_WINDOW_SIZE_FIELD_NUMBER: _ClassVar[int]
        consumer_group: str
        consumer_group_instance_id: str
        topic: _mq_schema_pb2.Topic
        partition_offsets: _containers.RepeatedCompositeFieldContainer[_mq_schema_pb2.PartitionOffset]
        offset_type: _mq_schema_pb2.OffsetType
        offset_ts_ns: int
        filter: str
        max_subscribed_partitions: int
        sliding_window_size: int
        def __init__(self, consumer_group: _Optional[str] = ..., consumer_group_instance_id: _Optional[str] = ..., topic: _Optional[_Union[_mq_schema_pb2.Topic, _Mapping]] = ..., partition_offsets: _Optional[_Iterable[_Union[_mq_schema_pb2.PartitionOffset, _Mapping]]] = ..., offset_type: _Optional[_Union[_mq_schema_pb2.OffsetType, str]] = ..., offset_ts_ns: _Optional[int] = ..., filter: _Optional[str] = ..., max_subscribed_partitions: _Optional[int] = ..., sliding_window_size: _Optional[int] = ...) -> None: ...
    class SeekMessage(_message.Message):
        __slots__ = ("offset", "offset_type", "partition")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        OFFSET_TYPE_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        offset: int
        offset_type: _mq_schema_pb2.OffsetType
        partition: int
        def __init__(self, offset: _Optional[int] = ..., offset_type: _Optional[_Union[_mq_schema_pb2.OffsetType, str]] = ..., partition: _Optional[int] = ...) -> None: ...
    INIT_FIELD_NUMBER: _ClassVar[int]
    ACK_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACK_KEY_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    ACK_PARTITION_FIELD_NUMBER: _ClassVar[int]
    init: SubscribeRecordRequest.InitSubscribeRecordRequest
    ack_sequence: int
    ack_key: bytes
    nack: bool
    offset: int
    seek: SubscribeRecordRequest.SeekMessage
    ack_partition: int
    def __init__(self, init: _Optional[_Union[SubscribeRecordRequest.InitSubscribeRecordRequest, _Mapping]] = ..., ack_sequence: _Optional[int] = ..., ack_key: _Optional[bytes] = ..., nack: _Optional[bool] = ..., offset: _Optional[int] = ..., seek: _Optional[_Union[SubscribeRecordRequest.SeekMessage, _Mapping]] = ..., ack_partition: _Optional[int] = ...) -> None: ...

class SubscribeRecordResponse(_message.Message):
    __slots__ = ("key", "value", "ts_ns", "error", "is_end_of_stream", "is_end_of_topic", "offset", "partition", "headers", "delivery_count")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TS_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_END_OF_STREAM_FIELD_NUMBER: _ClassVar[int]
    IS_END_OF_TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: _mq_schema_pb2.RecordValue
    ts_ns: int
    error: str
    is_end_of_stream: bool
    is_end_of_topic: bool
    offset: int
    partition: int
    headers: _containers.RepeatedCompositeFieldContainer[_mq_broker_pb2.Header]
    delivery_count: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[_mq_schema_pb2.RecordValue, _Mapping]] = ..., ts_ns: _Optional[int] = ..., error: _Optional[str] = ..., is_end_of_stream: _Optional[bool] = ..., is_end_of_topic: _Optional[bool] = ..., offset: _Optional[int] = ..., partition: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[_mq_broker_pb2.Header, _Mapping]]] = ..., delivery_count: _Optional[int] = ...) -> None: ...
