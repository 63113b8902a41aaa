"""What kafka-python and kio know of Kafka's messages."""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # importlib's, of kafka-python's making.
    from kafka.protocol.schemas import load_json

    _AREAS = [
        import_module(f"kafka.protocol.{area}")
        for area in ("producer", "consumer", "metadata", "admin", "sasl")
    ]

from kio.index import load_request_schema, load_response_schema

from smq.testing.messages import codec_module
from smq.wire.codec import Message
from smq.wire.messages.notation import Api, Field, in_newer_places

__all__ = [
    "NOT_CARRIED", "THEIR_NAMES", "THEIR_OLDER_NAMES", "default_message", "kafka_python_class",
    "kafka_python_facts", "kio_class", "put", "value_of",
]  # fmt: skip

NOT_CARRIED = {"GetTelemetrySubscriptions", "PushTelemetry"}  # By kafka-python; kio has them.

# Names that request and response have for different structures.
THEIR_NAMES = {
    "QuotaEntry": "EntryData",
    "QuotaEntity": "EntityData",
    "QuotaOp": "OpData",
    "AlteredEntry": "EntryData",
    "AlteredEntity": "EntityData",
    "DescribedEntry": "EntryData",
    "DescribedEntity": "EntityData",
    "DescribeQuorumRequestTopicData": "TopicData",
    "DescribeQuorumRequestPartitionData": "PartitionData",
}

# Structures that a newer version has under another name.
THEIR_OLDER_NAMES = {
    "OffsetFetchRequestTopics": "OffsetFetchRequestTopic",
    "OffsetFetchResponseTopics": "OffsetFetchResponseTopic",
    "OffsetFetchResponsePartitions": "OffsetFetchResponsePartition",
}

kafka_python_facts: Callable[[str], dict[str, Any]] = load_json


def default_message(api: Api, name: str, version: int) -> Message:
    """A message that says nothing; what has one row in a version has one here."""
    module = codec_module(api)
    message = getattr(module, name)()
    for each in in_newer_places(api.messages[name].fields, version):
        if each.is_single and each.is_array:
            setattr(message, each.name, [getattr(module, each.type)() if each.fields else ""])
    assert isinstance(message, Message)
    return message


def value_of(message: Any, field: Field) -> Any:
    """The value of a field, which newer versions may have elsewhere."""
    found = getattr(message, field.path[0])
    if field.path == (field.name,):
        return found
    if found is None:  # A structure that is not there.
        return int(field.default or 0)
    if len(field.path) == 1:
        return found[0]
    if isinstance(found, Message):
        return getattr(found, field.path[1])
    values = [getattr(row, field.path[1]) for row in found]
    return values if field.is_array and not field.fields else values[0]


def put(module: Any, message: Any, fields: list[Field], field: Field, value: Any) -> None:
    """Set a field, which newer versions may have elsewhere."""
    place, *inner = field.path
    [newer] = (each for each in fields if each.name == place and not each.replaced_by)
    for leaf in (each for each in newer.fields if each.name in inner):
        row = getattr(module, newer.type)
        if field.is_array and not leaf.is_array:
            value = [row(**{leaf.name: each}) for each in value]
        else:
            [only] = getattr(message, place) or [row()] if newer.is_array else [row()]
            setattr(only, leaf.name, value)
            value = [only] if newer.is_array else only
    setattr(message, place, [value] if field.replaced_by and not inner else value)


def kafka_python_class(name: str) -> Any:
    for area in _AREAS:
        found = getattr(area, name, None)
        if found is not None:
            return found
    raise LookupError(name)


def kio_class(key: int, name: str, version: int) -> Any:
    load = load_request_schema if name.endswith("Request") else load_response_schema
    return load(key, version)
