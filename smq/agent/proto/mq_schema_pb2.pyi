from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OffsetType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESUME_OR_EARLIEST: _ClassVar[OffsetType]
    RESET_TO_EARLIEST: _ClassVar[OffsetType]
    EXACT_TS_NS: _ClassVar[OffsetType]
    RESET_TO_LATEST: _ClassVar[OffsetType]
    RESUME_OR_LATEST: _ClassVar[OffsetType]
    EXACT_OFFSET: _ClassVar[OffsetType]
    RESET_TO_OFFSET: _ClassVar[OffsetType]

class ScalarType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BOOL: _ClassVar[ScalarType]
    INT32: _ClassVar[ScalarType]
    INT64: _ClassVar[ScalarType]
    FLOAT: _ClassVar[ScalarType]
    DOUBLE: _ClassVar[ScalarType]
    BYTES: _ClassVar[ScalarType]
    STRING: _ClassVar[ScalarType]
    TIMESTAMP: _ClassVar[ScalarType]
    DATE: _ClassVar[ScalarType]
    DECIMAL: _ClassVar[ScalarType]
    TIME: _ClassVar[ScalarType]
RESUME_OR_EARLIEST: OffsetType
RESET_TO_EARLIEST: OffsetType
EXACT_TS_NS: OffsetType
RESET_TO_LATEST: OffsetType
RESUME_OR_LATEST: OffsetType
EXACT_OFFSET: OffsetType
RESET_TO_OFFSET: OffsetType
BOOL: ScalarType
INT32: ScalarType
INT64: ScalarType
FLOAT: ScalarType
DOUBLE: ScalarType
BYTES: ScalarType
STRING: ScalarType
TIMESTAMP: ScalarType
DATE: ScalarType
DECIMAL: ScalarType
TIME: ScalarType

class Topic(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("ring_size", "range_start", "range_stop", "unix_time_ns")
    RING_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANGE_START_FIELD_NUMBER: _ClassVar[int]
    RANGE_STOP_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_NS_FIELD_NUMBER: _ClassVar[int]
    ring_size: int
    range_start: int
    range_stop: int
    unix_time_ns: int
    def __init__(self, ring_size: _Optional[int] = ..., range_start: _Optional[int] = ..., range_stop: _Optional[int] = ..., unix_time_ns: _Optional[int] = ...) -> None: ...

class Offset(_message.Message):
    __slots__ = ("topic", "partition_offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    partition_offsets: _containers.RepeatedCompositeFieldContainer[PartitionOffset]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., partition_offsets: _Optional[_Iterable[_Union[PartitionOffset, _Mapping]]] = ...) -> None: ...

class PartitionOffset(_message.Message):
    __slots__ = ("partition", "start_ts_ns", "start_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_TS_NS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: Partition
    start_ts_ns: int
    start_offset: int
    def __init__(self, partition: _Optional[_Union[Partition, _Mapping]] = ..., start_ts_ns: _Optional[int] = ..., start_offset: _Optional[int] = ...) -> None: ...

class RecordType(_message.Message):
    __slots__ = ("fields",)
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedCompositeFieldContainer[Field]
    def __init__(self, fields: _Optional[_Iterable[_Union[Field, _Mapping]]] = ...) -> None: ...

class Field(_message.Message):
    __slots__ = ("name", "field_index", "type", "is_repeated", "is_required")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELD_INDEX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    IS_REPEATED_FIELD_NUMBER: _ClassVar[int]
    IS_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    field_index: int
    type: Type
    is_repeated: bool
    is_required: bool
    def __init__(self, name: _Optional[str] = ..., field_index: _Optional[int] = ..., type: _Optional[_Union[Type, _Mapping]] = ..., is_repeated: _Optional[bool] = ..., is_required: _Optional[bool] = ...) -> None: ...

class Type(_message.Message):
    __slots__ = ("scalar_type", "record_type", "list_type")
    SCALAR_TYPE_FIELD_NUMBER: _ClassVar[int]
    RECORD_TYPE_FIELD_NUMBER: _ClassVar[int]
    LIST_TYPE_FIELD_NUMBER: _ClassVar[int]
    scalar_type: ScalarType
    record_type: RecordType
    list_type: ListType
    def __init__(self, scalar_type: _Optional[_Union[ScalarType, str]] = ..., record_type: _Optional[_Union[RecordType, _Mapping]] = ..., list_type: _Optional[_Union[ListType, _Mapping]] = ...) -> None: ...

class ListType(_message.Message):
    __slots__ = ("element_type",)
    ELEMENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    element_type: Type
    def __init__(self, element_type: _Optional[_Union[Type, _Mapping]] = ...) -> None: ...

class RecordValue(_message.Message):
    __slots__ = ("fields",)
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.MessageMap[str, Value]
    def __init__(self, fields: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("bool_value", "int32_value", "int64_value", "float_value", "double_value", "bytes_value", "string_value", "timestamp_value", "date_value", "decimal_value", "time_value", "list_value", "record_value")
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT32_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
    FLOAT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_VALUE_FIELD_NUMBER: _ClassVar[int]
    DATE_VALUE_FIELD_NUMBER: _ClassVar[int]
    DECIMAL_VALUE_FIELD_NUMBER: _ClassVar[int]
    TIME_VALUE_FIELD_NUMBER: _ClassVar[int]
    LIST_VALUE_FIELD_NUMBER: _ClassVar[int]
    RECORD_VALUE_FIELD_NUMBER: _ClassVar[int]
    bool_value: bool
    int32_value: int
    int64_value: int
    float_value: float
    double_value: float
    bytes_value: bytes
    string_value: str
    timestamp_value: TimestampValue
    date_value: DateValue
    decimal_value: DecimalValue
    time_value: TimeValue
    list_value: ListValue
    record_value: RecordValue
    def __init__(self, bool_value: _Optional[bool] = ..., int32_value: _Optional[int] = ..., int64_value: _Optional[int] = ..., float_value: _Optional[float] = ..., double_value: _Optional[float] = ..., bytes_value: _Optional[bytes] = ..., string_value: _Optional[str] = ..., timestamp_value: _Optional[_Union[TimestampValue, _Mapping]] = ..., date_value: _Optional[_Union[DateValue, _Mapping]] = ..., decimal_value: _Optional[_Union[DecimalValue, _Mapping]] = ..., time_value: _Optional[_Union[TimeValue, _Mapping]] = ..., list_value: _Optional[_Union[ListValue, _Mapping]] = ..., record_value: _Optional[_Union[RecordValue, _Mapping]] = ...) -> None: ...

class TimestampValue(_message.Message):
    __slots__ = ("timestamp_micros", "is_utc")
    TIMESTAMP_MICROS_FIELD_NUMBER: _ClassVar[int]
    IS_UTC_FIELD_NUMBER: _ClassVar[int]
    timestamp_micros: int
    is_utc: bool
    def __init__(self, timestamp_micros: _Optional[int] = ..., is_utc: _Optional[bool] = ...) -> None: ...

class DateValue(_message.Message):
    __slots__ = ("days_since_epoch",)
    DAYS_SINCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    days_since_epoch: int
    def __init__(self, days_since_epoch: _Optional[int] = ...) -> None: ...

class DecimalValue(_message.Message):
    __slots__ = ("value", "precision", "scale")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    precision: int
    scale: int
    def __init__(self, value: _Optional[bytes] = ..., precision: _Optional[int] = ..., scale: _Optional[int] = ...) -> None: ...

class TimeValue(_message.Message):
    __slots__ = ("time_micros",)
    TIME_MICROS_FIELD_NUMBER: _ClassVar[int]
    time_micros: int
    def __init__(self, time_micros: _Optional[int] = ...) -> None: ...

class ListValue(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, values: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...
