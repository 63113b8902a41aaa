"""The names, numbers, types and labels of SeaweedMQ's API, as a line each.

`THEIRS` is what its Go module says of itself: tests/clients/seaweedmq/descriptors prints it, and
tests/clients/test_seaweedmq.py compares that with the file. `ours` reads SMQ's own descriptors, and
`their_services` are descriptors made of the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

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


def their_services() -> dict[str, ServiceDescriptor]:
    """SeaweedMQ's services, built of what its Go module says of itself, by their names."""
    lines = [line.split() for line in THEIRS]
    files = {name: FileDescriptorProto(name=name, package=name, syntax="proto3") for name in _FILES}
    files["messaging_pb"].dependency.extend(["schema_pb", "filer_pb"])
    messages: dict[str, Any] = {}
    for name in sorted(words[1] for words in lines if words[0] == "message"):
        parent, _, own = name.rpartition(".")  # Which comes first.
        is_nested = parent in messages
        home = messages[parent].nested_type if is_nested else files[parent].message_type
        messages[name] = home.add(name=own)
        if is_nested and own.endswith("Entry"):
            messages[name].options.map_entry = True
    enums: dict[str, Any] = {}
    for _, name, value, number in _sorted(lines, "value", by=3):
        package, _, own = name.rpartition(".")
        if name not in enums:
            enums[name] = files[package].enum_type.add(name=own)
        enums[name].value.add(name=value, number=int(number))
    for _, name, *said in _sorted(lines, "field", by=2):
        owner, _, own = name.rpartition(".")
        _add_field(messages[owner], own, said, enums)
    _add_calls(files, lines)
    pool = DescriptorPool()
    for file in files.values():
        pool.AddSerializedFile(file.SerializeToString())
    names = {words[1].rpartition(".")[0] for words in lines if words[0] == "rpc"}
    return {name: pool.FindServiceByName(name) for name in names}


def _sorted(lines: list[list[str]], kind: str, by: int) -> list[list[str]]:
    """The lines of a kind, by a number."""
    return sorted((each for each in lines if each[0] == kind), key=lambda words: int(words[by]))


def _add_field(message: Any, name: str, said: list[str], enums: dict[str, Any]) -> None:
    number, label, kind, oneof = said
    field = message.field.add(name=name, number=int(number))
    field.label = _PROTO_LABELS[label]
    if kind in _NUMBERS:
        field.type = _NUMBERS[kind]
    else:
        field.type = _ENUM if kind in enums else _MESSAGE
        field.type_name = f".{kind}"
    if oneof != "-":
        known = [each.name for each in message.oneof_decl]
        if oneof not in known:
            message.oneof_decl.add(name=oneof)
            known.append(oneof)
        field.oneof_index = known.index(oneof)


def _add_calls(files: dict[str, Any], lines: list[list[str]]) -> None:
    services: dict[str, Any] = {}
    for _, name, taken, takes_many, given, gives_many in (x for x in lines if x[0] == "rpc"):
        service, _, own = name.rpartition(".")
        package, _, short = service.rpartition(".")
        if service not in services:
            services[service] = files[package].service.add(name=short)
        services[service].method.add(
            name=own,
            input_type=f".{taken}",
            output_type=f".{given}",
            client_streaming=takes_many == "true",
            server_streaming=gives_many == "true",
        )


_FILES = ("schema_pb", "filer_pb", "messaging_pb")
_PROTO_LABELS = {"optional": 1, "repeated": 3}
_MESSAGE, _ENUM = 11, 14
_NUMBERS = {name: number for number, name in _KINDS.items()}
