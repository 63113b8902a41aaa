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
        for area in ("producer", "consumer", "metadata", "admin")
    ]

from kio.index import load_request_schema, load_response_schema

__all__ = ["NOT_CARRIED", "THEIR_NAMES", "kafka_python_class", "kafka_python_facts", "kio_class"]

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

kafka_python_facts: Callable[[str], dict[str, Any]] = load_json


def kafka_python_class(name: str) -> Any:
    for area in _AREAS:
        found = getattr(area, name, None)
        if found is not None:
            return found
    raise LookupError(name)


def kio_class(key: int, name: str, version: int) -> Any:
    load = load_request_schema if name.endswith("Request") else load_response_schema
    return load(key, version)
