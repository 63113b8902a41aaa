"""The generated codecs against the table, against themselves, and against two other libraries."""

from io import BytesIO
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from kio.serial import entity_reader, entity_writer

from smq.testing.messages import MESSAGES, codec_module, random_message
from smq.wire.codec import ZERO_UUID, Malformed, Message, Writer
from smq.wire.generate import FOLDER, generate
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.messages.notation import Api, Field
from smq.wire.messages.tables import APIS
from smq.wire.structure_code import snake
from tests.wire.oracles import (
    NOT_CARRIED,
    THEIR_NAMES,
    THEIR_OLDER_NAMES,
    default_message,
    kafka_python_class,
    kio_class,
    value_of,
)

SAMPLES = 12
each_message = pytest.mark.parametrize(
    ("api", "name"), MESSAGES, ids=[name for _, name in MESSAGES]
)


def written(api: Api, message: Message, version: int) -> bytes:
    writer = Writer()
    name = snake(type(message).__name__)
    getattr(codec_module(api), f"write_{name}")(message, version, writer)
    return writer.to_bytes()


def read(api: Api, name: str, data: bytes, version: int) -> Message:
    message = getattr(codec_module(api), f"read_{snake(name)}")(data, 0, version)
    assert isinstance(message, Message)
    return message


def samples(api: Api, name: str) -> list[tuple[int, Message]]:
    random = Random(name)
    return [
        (version, random_message(random, api, name, version))
        for version in api.versions
        for _ in range(SAMPLES)
    ]


def test_the_generated_files_are_those_of_the_table() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.py")} == generate()


@each_message
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_a_message_read_back_is_the_same(api: Api, name: str, seed: int) -> None:
    random = Random(seed)
    for version in api.versions:
        message = random_message(random, api, name, version)
        data = written(api, message, version)
        reader = getattr(codec_module(api), f"_read_{snake(name)}")
        assert reader(data, 0, version) == (message, len(data))


@each_message
def test_default_messages_have_no_tagged_fields(api: Api, name: str) -> None:
    for version in api.versions:
        message = default_message(api, name, version)
        data = written(api, message, version)
        if version >= api.flexible_from:
            assert data[-1] == 0
        assert read(api, name, data, version) == message


@each_message
@settings(max_examples=20, deadline=None)
@given(garbage=st.binary(max_size=200))
def test_garbage_gives_a_message_or_malformed(api: Api, name: str, garbage: bytes) -> None:
    for version in api.versions:
        try:
            read(api, name, garbage, version)
        except Malformed:
            continue


@each_message
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**64), place=st.floats(0, 1), byte=st.integers(0, 255))
def test_cut_and_garbled_messages_give_a_message_or_malformed(
    api: Api, name: str, seed: int, place: float, byte: int
) -> None:
    random = Random(seed)
    for version in api.versions:
        data = bytearray(written(api, random_message(random, api, name, version), version))
        if not data:
            continue
        at = min(len(data) - 1, int(place * len(data)))
        with pytest.raises(Malformed):
            read(api, name, bytes(data[:at]), version)
        data[at] = byte
        try:
            read(api, name, bytes(data), version)
        except Malformed:
            continue


@each_message
def test_bytes_after_a_message_are_ignored_as_kafka_does(api: Api, name: str) -> None:
    for version, message in samples(api, name)[::SAMPLES]:
        assert read(api, name, written(api, message, version) + b"more", version) == message


@each_message
def test_unknown_tagged_fields_are_skipped(api: Api, name: str) -> None:
    for version in range(api.flexible_from, api.versions.stop):
        message = default_message(api, name, version)
        data = written(api, message, version)
        assert data[-1] == 0
        unknown = data[:-1] + b"\x02\x63\x03abc\x90\x4e\x00"
        assert read(api, name, unknown, version) == message


@each_message
def test_kafka_python_reads_and_writes_the_same(api: Api, name: str) -> None:
    if api.name in NOT_CARRIED:
        pytest.skip("kafka-python has no such message; kio has")
    theirs = kafka_python_class(name)
    for version, message in samples(api, name):
        if name == "ApiVersionsResponse":
            message.error_code = 0  # type: ignore[attr-defined]  # Else it reads version 0 only.
        data = written(api, message, version)
        decoded = theirs.decode(data, version=version)
        assert plain(message, api.messages[name].fields, version) == plain(
            decoded, api.messages[name].fields, version
        )
        assert foreign(theirs, message, api.messages[name].fields, version).encode() == data


@each_message
def test_kio_reads_and_writes_the_same(api: Api, name: str) -> None:
    for version, message in samples(api, name):
        schema = kio_class(api.key, name, version)
        data = written(api, message, version)
        decoded, size = entity_reader(schema)(data, 0)
        assert size == len(data)
        output = BytesIO()
        entity_writer(schema)(output, decoded)
        assert output.getvalue() == data


def foreign(theirs: Any, message: Any, fields: list[Field], version: int) -> Any:
    """Our message as one of kafka-python's."""
    values = {}
    for field in fields:
        if version not in field.versions:
            continue
        value = value_of(message, field)
        if field.tag is not None and value == getattr(type(message)(), field.name):
            continue
        if field.fields and value is not None:
            name = THEIR_NAMES.get(field.type, field.type)
            older = getattr(theirs, THEIR_OLDER_NAMES.get(name, name), None)
            inner = getattr(theirs, name, older)
            if field.is_array:
                value = [foreign(inner, item, field.fields, version) for item in value]
            else:
                value = foreign(inner, value, field.fields, version)
        name = foreign_name(field, theirs)
        values[name] = bits(value) if name == "authorized_operations" else value
    return theirs(version=version, **values)


def plain(message: Any, fields: list[Field], version: int) -> dict[str, Any]:
    """The fields of a version as plain values, from our object or kafka-python's."""
    values = {}
    for field in fields:
        if version not in field.versions:
            continue
        is_ours = isinstance(message, Message)
        value = (
            value_of(message, field) if is_ours else getattr(message, foreign_name(field, message))
        )
        if field.fields and value is not None:
            if field.is_array:
                value = [plain(item, field.fields, version) for item in value]
            else:
                value = plain(value, field.fields, version)
        elif is_bitfield(field) and isinstance(value, int):
            value = bits(value)
        elif isinstance(value, memoryview):
            value = bytes(value)
        values[field.name] = list(value) if isinstance(value, tuple) else value
    return values


def is_bitfield(field: Field) -> bool:
    return field.name.endswith("authorized_operations") and field.type == "int32"


def foreign_name(field: Field, theirs: Any) -> str:
    """Metadata's bit fields have a shorter name there."""
    is_short = is_bitfield(field) and hasattr(theirs, "authorized_operations")
    return "authorized_operations" if is_short else field.name


def bits(value: int) -> set[int] | None:
    """A bit field as kafka-python has it: the bits that are set, None for the absent one."""
    return None if value == -(2**31) else {bit for bit in range(32) if value >> bit & 1}


def test_a_uuid_that_is_zero_is_a_tagged_default() -> None:
    partition = FetchPartition(replica_directory_id=ZERO_UUID)
    request = FetchRequest(topics=[FetchTopic(partitions=[partition])])
    api = APIS[1]
    assert api.name == "Fetch"
    assert read(api, "FetchRequest", written(api, request, 18), 18) == request
