"""The catalog: an immutable snapshot of all topics, published by the coordinator.

The coordinator encodes a new snapshot after each change and publishes it in shared memory
(`shm.catalog`); other processes decode it when the version word moves. A topic that did not change
keeps its line, and a decoder keeps its object.

A partition's number is never used again (`Topic.partition_numbers`). Frames and files refer to
partitions by number, so a topic created under an old name sees none of the old one's bytes. A
partition is led in one log (`Topic.logs`); of N nodes the one at k mod N serves log k, and leads
its partitions (`Topic.leader`). A partition may move to another log: `Topic.moves` has the logs
that have led it, each of which keeps what it has.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import NAMESPACE_URL, UUID, uuid5
from weakref import WeakValueDictionary

NAMESPACE_DEFAULT = "kafka"

BROKER, CLIENT_METRICS, GROUP, QUOTA = "broker", "client-metrics", "group", "quota"
"""Types of resources that have settings beside topics."""
Published = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Settings that were changed while the broker runs: by type of resource, resource and name."""
AnyNode = TypeVar("AnyNode")


class Node(NamedTuple):
    """A shard as Metadata describes it: a Kafka broker. It opened its logs in its `generation`."""

    id: int
    host: str
    port: int
    generation: int
    rack: str | None = None


class Leader(NamedTuple):
    """The node that leads a partition, and the partition's leader epoch (KIP-320)."""

    node: Node
    epoch: int


class Leadership(NamedTuple):
    """The offsets [start, end) of a partition that one log has led; `end` is None: it leads now.

    `epoch`: the leader epoch in which it began. Starts of its node may have raised it since, to
    less than the next leadership's.
    """

    epoch: int
    log: int
    start: int
    end: int | None


class Moved(NamedTuple):
    """A partition that has moved, or is to: which logs have led it, and whether it is moving.

    epoch        at least this is the leader's: of its newest leadership, or, while it moves, the
                 highest in which it may lead or have led
    target       the log that it moves to; None: it does not move
    attempt      how often it was to move
    leaderships  oldest first, with growing epochs, each from where the one before ends. The first
                 may stand for several that lie below all that any log still has
    """

    epoch: int
    target: int | None
    attempt: int
    leaderships: tuple[Leadership, ...]

    def invariants(self) -> None:
        """Assert that the leaderships follow each other, and that the last one alone is open."""
        *ended, newest = self.leaderships
        assert newest.end is None
        assert self.epoch >= newest.epoch
        assert self.target != newest.log
        for one, following in zip(ended, self.leaderships[1:], strict=True):
            assert one.epoch < following.epoch
            assert one.end is not None
            assert one.start <= one.end == following.start


FIRST_EPOCH = 0  # A partition's that has never moved: what its node's generation says is higher.


def node_of_log(log: int, nodes: Sequence[AnyNode]) -> AnyNode:
    """The node (or id) that serves a log; `nodes` are all of them, in order."""
    return nodes[log % len(nodes)]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Topic:
    """One incarnation of a topic. A topic deleted and created again has a new id and new numbers.

    Immutable, as is all it holds: its line is encoded once.

    `configs` holds only what was set for this topic; defaults are in `smq.model.topic_configs`.
    `moves` has, by index, the partitions that have moved or are to; their newest log is in `logs`.
    """

    name: str
    id: UUID
    partition_numbers: tuple[int, ...]
    logs: tuple[int, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE_DEFAULT
    moves: Mapping[int, Moved] = field(default_factory=dict)
    # What smq.model.topic_settings derives, by the broker's config.
    derived: list[tuple[object, object]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _line: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert len(self.partition_numbers) == len(self.logs) > 0

    @property
    def partition_count(self) -> int:
        return len(self.logs)

    @property
    def is_internal(self) -> bool:
        """Whether it is an internal topic: listed, always empty, never written."""
        return self.partition_numbers[0] < 0

    def index_of(self, number: int) -> int:
        """The index of a partition by its number. Raises ValueError if it has none such."""
        index = bisect_left(self.partition_numbers, number)  # They grow, but for internal topics.
        if self.partition_numbers[index : index + 1] == (number,):
            return index
        return self.partition_numbers.index(number)

    def node(self, index: int, nodes: Sequence[AnyNode]) -> AnyNode:
        """The node (or id) that leads a partition; `nodes` are all of them, in order."""
        return node_of_log(self.logs[index], nodes)

    def leader(self, index: int, nodes: Sequence[Node]) -> Leader:
        """Who leads a partition, and in which epoch: at least the generation in which the node
        opened the partition's log.

        A node that starts while a partition moves takes no new epoch for it. So its generation does
        not count then: a client that has seen an epoch ignores all lower ones.
        """
        node = self.node(index, nodes)
        moved = self.moves.get(index)
        if moved is None:
            return Leader(node, node.generation)
        is_moving = moved.target is not None
        return Leader(node, moved.epoch if is_moving else max(moved.epoch, node.generation))

    def moved(self, index: int) -> Moved:
        """The leaderships of a partition, also of one that has never moved."""
        never = Leadership(FIRST_EPOCH, self.logs[index], 0, None)
        return self.moves.get(index) or Moved(FIRST_EPOCH, None, 0, (never,))

    def epochs_before(self, index: int, epoch: int) -> list[tuple[int, int]]:
        """The epochs below one in which other logs have led a partition, each with the offset where
        it began, oldest first. The leader knows those of its own leadership itself."""
        *ended, _ = self.moved(index).leaderships
        return [(each.epoch, each.start) for each in ended if each.epoch < epoch]

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
            moves = (sorted(self.moves.items()),) if self.moves else ()
            self._line.append(json.dumps((*fields, *moves), separators=(",", ":")))
        return self._line[0]


# By line, as long as a catalog has them: however many there are, the next one finds them.
_decoded: WeakValueDictionary[str, Topic] = WeakValueDictionary()


def _topic_of_line(line: str) -> Topic:
    topic = _decoded.get(line)
    if topic is None:
        namespace, name, topic_id, numbers, logs, configs, *moves = json.loads(line)
        places = tuple(numbers), tuple(logs)
        moved = {index: _moved(*fields) for each in moves for index, fields in each}
        topic = Topic(name, UUID(hex=topic_id), *places, configs, namespace, moved)
        _decoded[line] = topic
    return topic


def _moved(epoch: int, target: int | None, attempt: int, rows: Sequence[Sequence[int]]) -> Moved:
    return Moved(epoch, target, attempt, tuple(Leadership(*row) for row in rows))


INTERNAL_PARTITIONS = 50  # Kafka's defaults of offsets.topic.num.partitions and its sister.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_INTERNAL_CONFIGS = {
    "__consumer_offsets": _COMPACTED | {"compression.type": "producer"},
    "__transaction_state": _COMPACTED | {"compression.type": "uncompressed"},
}


def _internal(name: str, first_number: int) -> Topic:
    numbers = range(first_number, first_number - INTERNAL_PARTITIONS, -1)
    places = tuple(range(INTERNAL_PARTITIONS))
    topic_id = uuid5(NAMESPACE_URL, f"smq:{name}")
    return Topic(name, topic_id, tuple(numbers), places, _INTERNAL_CONFIGS[name])


# Kafka keeps committed offsets and transactions in topics of these names; here the coordinator's
# store has them. No log holds these partitions: their numbers are negative.
INTERNAL_TOPICS = {
    name: _internal(name, -1 - place * INTERNAL_PARTITIONS)
    for place, name in enumerate(_INTERNAL_CONFIGS)
}
_INTERNAL_BY_ID = {topic.id: topic for topic in INTERNAL_TOPICS.values()}


class InternalPartition(NamedTuple):
    """A partition of an internal topic, where its leader is asked: in no log, and always empty.

    `epoch`: its leader epoch, the only one that it remembers.
    """

    topic: Topic
    epoch: int


class Catalog:
    """All topics and dynamic settings at one version. Immutable.

    `by_name` and `by_id` have the users' topics; find(), find_by_id() and all() know the internal
    ones too. A user's topic from before a name was internal keeps it.
    """

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

    def find(self, name: str) -> Topic | None:
        """The topic of a name, internal ones included."""
        return self.by_name.get(name) or INTERNAL_TOPICS.get(name)

    def find_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with an id, internal ones included."""
        return self.by_id.get(topic_id) or _INTERNAL_BY_ID.get(topic_id)

    def all(self) -> Iterator[Topic]:
        """Every topic, internal ones included."""
        yield from self.by_name.values()
        yield from (t for name, t in INTERNAL_TOPICS.items() if name not in self.by_name)

    def without(self, other: "Catalog") -> list[Topic]:
        """The users' topics that are absent or different in another catalog."""
        known = other.by_name
        return [topic for name, topic in self.by_name.items() if known.get(name) is not topic]

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
