from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LogEntry(_message.Message):
    __slots__ = ("ts_ns", "partition_key_hash", "data", "key", "offset")
    TS_NS_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ts_ns: int
    partition_key_hash: int
    data: bytes
    key: bytes
    offset: int
    def __init__(self, ts_ns: _Optional[int] = ..., partition_key_hash: _Optional[int] = ..., data: _Optional[bytes] = ..., key: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...
