"""The catalog: an immutable snapshot of all topics, published by the coordinator.

The coordinator encodes a new snapshot after each change and publishes it in shared memory
(`shm.catalog`); other processes decode it when the version word moves. A topic that did not change
keeps its line, and a decoder keeps its object.

A partition's number is never used again (`Topic.partition_numbers`). Frames and files refer to
partitions by number, so a topic created under an old name sees none of the old one's bytes. A
partition belongs to one log for life (`Topic.logs`); node 1 + k mod N serves log k.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from uuid import UUID

NAMESPACE_DEFAULT = "kafka"

BROKER, CLIENT_METRICS, GROUP, QUOTA = "broker", "client-metrics", "group", "quota"
"""Types of resources that have settings beside topics."""
Published = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Settings that were changed while the broker runs: by type of resource, resource and name."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One incarnation of a topic. A topic deleted and created again has a new id and new numbers.

    Immutable, as is all it holds: its line is encoded once.

    `configs` holds only what was set for this topic; defaults are in `smq.model.topic_configs`.
    """

    name: str
    id: UUID
    partition_numbers: tuple[int, ...]
    logs: tuple[int, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE_DEFAULT
    _line: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert len(self.partition_numbers) == len(self.logs) > 0

    @property
    def partition_count(self) -> int:
        return len(self.logs)

    def line(self) -> str:
        """This topic as one line of JSON. Made once: each new catalog has all lines."""
        if not self._line:
            fields = (
                self.namespace,
                self.name,
                self.id.hex,
                self.partition_numbers,
                self.logs,
                dict(self.configs),
            )
            self._line.append(json.dumps(fields, separators=(",", ":")))
        return self._line[0]


@lru_cache(maxsize=65536)
def _topic_of_line(line: str) -> Topic:
    namespace, name, topic_id, numbers, logs, configs = json.loads(line)
    return Topic(name, UUID(hex=topic_id), tuple(numbers), tuple(logs), configs, namespace)


class Catalog:
    """All topics and dynamic settings at one version. Immutable."""

    __slots__ = ("by_id", "by_name", "cluster_id", "settings", "version")

    def __init__(
        self,
        cluster_id: str,
        version: int,
        topics: Mapping[str, Topic],
        settings: Published | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.version = version
        self.settings = settings or {}
        self.by_name = topics
        self.by_id = {topic.id: topic for topic in topics.values()}

    def encode(self) -> bytes:
        """The bytes to publish: a line for the cluster, then a line for each topic."""
        head = json.dumps([self.cluster_id, self.version, self.settings])
        return "\n".join([head, *(topic.line() for topic in self.by_name.values())]).encode()

    @staticmethod
    def decode(published: bytes) -> "Catalog":
        """The snapshot that `encode` wrote; unchanged topics are the same objects."""
        head, *lines = published.decode().split("\n")
        cluster_id, version, settings = json.loads(head)
        topics = (_topic_of_line(line) for line in lines)
        return Catalog(cluster_id, version, {topic.name: topic for topic in topics}, settings)

    @staticmethod
    def decode_settings(published: bytes) -> Published:
        """Only the settings of the snapshot that `encode` wrote."""
        settings: Published = json.loads(published.split(b"\n", 1)[0])[2]
        return settings

    @staticmethod
    def leader(log: int, node_count: int) -> int:
        """The id of the node that serves a log."""
        return 1 + log % node_count
