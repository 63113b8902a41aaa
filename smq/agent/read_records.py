"""A record that was read, and the answers that it is written into.

An answer joins bytes that are written already: the record's value and headers are never parsed, for
a record of a megabyte may have a hundred thousand of them. Fields of protobuf may be written one
after the other, in any order.

    SubscribeRecordResponse   its numbers, then value and headers as they are
    DataMessage               its numbers, key and value, then headers as they are
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from smq.agent.proto.mq_agent_pb2 import SubscribeRecordResponse
from smq.agent.proto.mq_broker_pb2 import DataMessage, SubscribeMessageResponse
from smq.agent.value_bytes import field_head, is_record_value, raw_value

assert SubscribeRecordResponse.HEADERS_FIELD_NUMBER == DataMessage.HEADERS_FIELD_NUMBER == 1001, (
    "headers are written once for both"
)


@dataclass(slots=True)
class ReadRecord:
    """A record. `headers`: as fields of the message that will have them."""

    key: bytes = b""
    value: bytes = b""
    ts_ns: int = 0
    offset: int = 0
    headers: bytes = b""
    _is_typed: bool | None = field(default=None, compare=False, repr=False)

    @property
    def size_bytes(self) -> int:
        """Of what it has."""
        return len(self.key) + len(self.value) + len(self.headers)

    @property
    def is_typed(self) -> bool:
        """Whether its value is a RecordValue; found out once, some milliseconds a megabyte."""
        if self._is_typed is None:
            self._is_typed = is_record_value(self.value)
        return self._is_typed

    @property
    def record_value(self) -> tuple[bytes, ...]:
        """Its value as the agent's clients get it, in pieces of which none is a copy: what is no
        RecordValue is a field of one."""
        return (self.value,) if self.is_typed else raw_value(self.value)

    def message(self) -> tuple[bytes, ...]:
        """The record as a DataMessage, in pieces of which none is a copy of its value."""
        rest = DataMessage(key=self.key, ts_ns=self.ts_ns, offset=self.offset)
        head = field_head(DataMessage.VALUE_FIELD_NUMBER, len(self.value)) if self.value else b""
        return rest.SerializeToString(), head, self.value, self.headers


class WrittenAnswer:
    """An answer in pieces that are written already, as gRPC takes a message."""

    __slots__ = ("_pieces", "_size_bytes")

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self._size_bytes = sum(map(len, pieces))

    def join(self) -> None:
        """Copy it into one piece, before gRPC asks for that in the loop."""
        self._pieces = (b"".join(self._pieces),)

    def SerializeToString(self) -> bytes:  # noqa: N802  (as messages have it)
        """All of it, once: gRPC keeps an answer while its client does not read."""
        pieces, self._pieces = self._pieces, ()
        return b"".join(pieces)

    def ByteSize(self) -> int:  # noqa: N802
        """Its size."""
        return self._size_bytes


def record_answer(record: ReadRecord, partition: int, deliveries: int) -> WrittenAnswer:
    """A SubscribeRecordResponse."""
    rest = SubscribeRecordResponse(
        key=record.key,
        ts_ns=record.ts_ns,
        offset=record.offset,
        partition=partition,
        delivery_count=deliveries,
    )
    value = field_of(SubscribeRecordResponse.VALUE_FIELD_NUMBER, record.record_value)
    return WrittenAnswer(rest.SerializeToString(), *value, record.headers)


def message_answer(record: ReadRecord) -> WrittenAnswer:
    """A SubscribeMessageResponse."""
    return WrittenAnswer(*field_of(SubscribeMessageResponse.DATA_FIELD_NUMBER, record.message()))


def field_of(number: int, pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    """A field with this content."""
    return field_head(number, sum(map(len, pieces))), *pieces
