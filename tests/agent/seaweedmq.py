"""The names, numbers, types and labels of SeaweedMQ's API, as a line each.

`THEIRS` is what its Go module says of itself: tests/clients/seaweedmq/descriptors prints it, and
tests/clients/test_seaweedmq.py compares that with the file. `ours` reads SMQ's own descriptors.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smq.agent.proto import filer_pb2, mq_agent_pb2, mq_broker_pb2, mq_schema_pb2

RECORDED = Path(__file__).with_name("seaweedmq.txt")
THEIRS = frozenset(RECORDED.read_text().splitlines())
FIRST_OF_OURS = 1000  # SeaweedMQ's messages have no such fields.
_OWN_MESSAGES = frozenset(
    {"messaging_pb.Header", "messaging_pb.SubscribeRecordRequest.SeekMessage"}
)
_LABELS = ("optional", "repeated")


def ours(*, with_extensions: bool = False) -> frozenset[str]:
    """SMQ's lines; without the fields and messages that only SMQ has, unless asked for."""
    lines: list[str] = []
    for module in (mq_schema_pb2, mq_broker_pb2, mq_agent_pb2, filer_pb2):
        lines += _of_file(module.DESCRIPTOR, with_extensions=with_extensions)
    return frozenset(lines)


def _of_file(file: Any, *, with_extensions: bool) -> Iterator[str]:
    for message in file.message_types_by_name.values():
        yield from _of_message(message, with_extensions=with_extensions)
    for enum in file.enum_types_by_name.values():
        for value in enum.values:
            yield f"value {enum.full_name} {value.name} {value.number}"
    for service in file.services_by_name.values():
        for method in service.methods:
            taken = f"{method.input_type.full_name} {_truth(method.client_streaming)}"
            given = f"{method.output_type.full_name} {_truth(method.server_streaming)}"
            yield f"rpc {method.full_name} {taken} {given}"


def _of_message(message: Any, *, with_extensions: bool) -> Iterator[str]:
    if not with_extensions and message.full_name in _OWN_MESSAGES:
        return
    yield f"message {message.full_name}"
    for field in message.fields:
        if with_extensions or field.number < FIRST_OF_OURS:
            yield _of_field(field)
    for nested in message.nested_types:
        yield from _of_message(nested, with_extensions=with_extensions)


def _of_field(field: Any) -> str:
    named = field.message_type or field.enum_type
    kind = named.full_name if named is not None else _KINDS[field.type]
    of = "-" if field.containing_oneof is None else field.containing_oneof.name
    label = _LABELS[field.is_repeated]
    return f"field {field.full_name} {field.number} {label} {kind} {of}"


def _truth(value: bool) -> str:
    return "true" if value else "false"


_KINDS = {1: "double", 2: "float", 3: "int64", 5: "int32", 8: "bool", 9: "string", 12: "bytes"}
