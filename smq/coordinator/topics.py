"""Creates, changes and deletes topics by Kafka's rules.

A new topic's partitions get unused numbers and are spread over all nodes, those that lead fewest
first: a node that serves several logs leads no more than the others. Everything has one replica: a
replication factor above 1 is refused, since SMQ cannot keep copies on other hosts.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from smq.coordinator.catalog_room import CatalogRoom
from smq.coordinator.config_room import ConfigRoom
from smq.coordinator.inputs import Chance, random_uuid
from smq.coordinator.log_room import LogRoom, rows_of
from smq.model import record_types, topic_schema
from smq.model.catalog import (
    INTERNAL_TOPICS,
    NAMESPACE_DEFAULT,
    Catalog,
    Moved,
    Published,
    Topic,
    node_of_log,
)
from smq.model.config import Config
from smq.model.errors import BrokerError, ErrorCode, StoreError
from smq.model.given_configs import understood
from smq.model.names import collision_key, topic_name_problem
from smq.model.now import Now
from smq.model.topic_configs import RECORD_TYPE, SCHEMA
from smq.model.topic_settings import schema_of
from smq.store.config_changes import Changer
from smq.store.store import Store

PARTITIONS_PER_REQUEST_MAX = 10_000  # Kafka's own limit.
BROKER_DEFAULT = -1
INTERNAL_STAYS = "This topic is internal: the broker keeps it as it is."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A requested topic. `assignments`: the replicas of each partition, if assigned manually."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Cluster(NamedTuple):
    """Facts that are fixed while the broker runs, and the generation in which a node has opened its
    logs."""

    id: str
    log_count: int
    partitions_per_log_max: int
    catalog_bytes_max: int
    generation_of: Callable[[int], int] = lambda _node: 0


class Topics:
    """The topics, and the catalog that other processes see. Raises StoreError: the store has more
    than fits, or partitions in logs that there are not."""

    def __init__(
        self, store: Store, config: Config, cluster: Cluster, chance: Chance, room: CatalogRoom
    ) -> None:
        self._store = store
        self._config = config
        self._chance = chance
        self._topics = {topic.name: topic for topic in store.manifest.topics()}
        self._names_by_key = {collision_key(name): name for name in self._topics}
        self._cluster = cluster
        self._logs = LogRoom(cluster.log_count, cluster.partitions_per_log_max)
        self._room, self._config_room = room, ConfigRoom()
        self._places: dict[int, tuple[Topic, int]] = {}
        self._load()
        self._changes = 0
        self.config_changes = 0
        """Grows when a topic's or the broker's configs change."""
        self._settings: Published = {}
        self._catalog: Catalog | None = None

    def _load(self) -> None:
        for topic in self._topics.values():
            last = max(rows_of(topic))
            if last >= self._cluster.log_count:
                raise StoreError(
                    "store.sqlite",
                    f"the topic {topic.name!r} has a partition in log {last}, and "
                    f"meta.json says that there are {self._cluster.log_count} logs: restore both "
                    "from one backup",
                )
            self._count(topic, +1)
        if sum(map(_line_bytes, self._topics.values())) > self._cluster.catalog_bytes_max:
            raise StoreError("store.sqlite", "its topics take more room than there is for them")
        if not self._logs.have_room({}):
            raise StoreError("store.sqlite", "a log has more partitions than there is room for")

    @property
    def problem(self) -> str:
        """A sentence about stored topics of which there should be less, or ""."""
        return self._config_room.problem(self._topics)

    @property
    def changes(self) -> int:
        """Grows with each created, changed or deleted topic, and with changed settings."""
        return self._changes

    @property
    def catalog(self) -> Catalog:
        """The current topics."""
        if self._catalog is None:
            self._catalog = Catalog(
                self._cluster.id, self._changes, dict(self._topics), self._settings
            )
        return self._catalog

    def take_settings(self, config: Config, published: Published) -> None:
        """Use other settings from now on, and publish them with the catalog."""
        self._config = config
        if published != self._settings:
            self._settings = published
            self._catalog = None
            self._changes += 1
            self.config_changes += 1

    @property
    def places(self) -> Mapping[int, tuple[Topic, int]]:
        """Topic and index of each partition number."""
        return self._places

    def create(self, wanted: NewTopic, now: Now, *, validate_only: bool = False) -> Topic:
        """Create a topic, or only validate the request. Raises BrokerError."""
        self._check_name(wanted.name)
        configs = self._understood(wanted.configs)
        logs = self._assigned_logs(wanted) if wanted.assignments else self._spread_logs(wanted)
        topic = Topic(
            wanted.name,
            random_uuid(self._chance),
            self._new_numbers(len(logs), validate_only=validate_only),
            tuple(logs),
            configs,
        )
        self._check_room(topic, None)
        if not validate_only:
            self._store.add_topic(topic, now.wall_ms)
            self._topics[topic.name] = topic
            self._names_by_key[collision_key(topic.name)] = topic.name
            self._changed(topic, +1)
        return topic

    def add_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        now: Now,
        validate_only: bool = False,
    ) -> Topic:
        """Give a topic of the catalog `count` partitions in all, or only validate the request.

        `assignments`: the replicas of each new partition, if assigned manually. Raises BrokerError.
        """
        more = self._more_partitions(topic, count, assignments)
        if assignments is None:
            logs = self._spread(more, topic.logs)
        else:
            nodes = [self._only_replica(replicas) for replicas in assignments]
            logs = self._logs_on(nodes)
        changed = replace(
            topic,
            partition_numbers=topic.partition_numbers
            + self._new_numbers(more, validate_only=validate_only),
            logs=topic.logs + tuple(logs),
        )
        self._check_room(changed, topic)
        if not validate_only:
            self._store.add_partitions(changed, topic.partition_count, now.wall_ms)
            self._replace(topic, changed)
        return changed

    def configure(
        self,
        topic: Topic,
        configs: Mapping[str, str | None],
        by: Changer,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Give a topic of the catalog these configs in place of its own, or only validate them.

        Records the differences with their author. Raises BrokerError.
        """
        own = self._understood(configs, topic.configs)
        _check_widening(topic.configs, own)
        changed = replace(topic, configs=own)
        self._check_room(changed, topic)
        if not validate_only and own != topic.configs:
            self._store.set_configs(changed)
            self._store.config_changes.note("topic", topic.name, topic.configs, own, by)
            self._replace(topic, changed)
            self.config_changes += 1
        return changed

    def check_row(self, log: int) -> None:
        """Refuse one more partition in a log without room. Raises BrokerError."""
        if not self._logs.have_room({log: 1}):
            raise _no_room()

    def check_place(self, number: int, moved: Moved) -> None:
        """Refuse leaderships of a partition for which a log or the catalog has no room. Raises
        BrokerError."""
        topic, _ = self._places[number]
        self._check_room(self._placed(number, moved), topic)

    def place(self, number: int, moved: Moved) -> None:
        """Give a partition these leaderships, for which there is room."""
        topic, _ = self._places[number]
        self._store.leaderships.save(number, moved)
        self._replace(topic, self._placed(number, moved))

    def _placed(self, number: int, moved: Moved) -> Topic:
        topic, index = self._places[number]
        logs = (*topic.logs[:index], moved.leaderships[-1].log, *topic.logs[index + 1 :])
        return replace(topic, logs=logs, moves={**topic.moves, index: moved})

    def node_of(self, log: int) -> int:
        """The node that serves a log."""
        return node_of_log(log, self._config.node_ids)

    def log_on(self, node: int) -> int:
        """The log of a node to which the next partition goes."""
        [log] = self._logs_on([node])
        return log

    def _understood(
        self, configs: Mapping[str, str | None], before: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        try:
            return understood(configs, self._config, before)
        except ValueError as problem:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(problem)) from None

    def find(self, name: str) -> Topic:
        """The topic of a name. Raises BrokerError."""
        topic = self._topics.get(name)
        if topic is None and name in INTERNAL_TOPICS:
            raise BrokerError(ErrorCode.INVALID_REQUEST, INTERNAL_STAYS)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def numbers_of(self, names: Collection[str]) -> set[int]:
        """The numbers of all partitions of these topics, as far as they exist."""
        found = (self._topics[name] for name in names if name in self._topics)
        return {number for topic in found for number in topic.partition_numbers}

    def has(self, topic: Topic) -> bool:
        """Whether this incarnation of a topic exists."""
        return self._topics.get(topic.name) is topic

    def delete(self, topic: Topic) -> None:
        """Delete a topic of the catalog."""
        assert self._topics[topic.name] is topic
        assert topic.namespace == NAMESPACE_DEFAULT
        self._store.delete_topic(topic.id)
        del self._topics[topic.name]
        del self._names_by_key[collision_key(topic.name)]
        self._changed(topic, -1)

    def ensure(self, names: Sequence[str], now: Now) -> dict[str, str | None]:
        """Create the missing topics with the broker's defaults; returns the refusal of each."""
        problems: dict[str, str | None] = dict.fromkeys(names)
        for name in names:
            try:
                if name not in self._topics:
                    self.create(NewTopic(name=name), now)
            except BrokerError as refusal:
                problems[name] = str(refusal)
        return problems

    def _check_name(self, name: str) -> None:
        problem = topic_name_problem(name)
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self._topics or name in INTERNAL_TOPICS:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._names_by_key.get(collision_key(name))
        if other is not None:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def _check_room(self, topic: Topic, before: Topic | None) -> None:
        """Refuse more than shards and catalog can hold: they could not start again.

        `before`: the topic that this one replaces.
        """
        self._config_room.check(topic, before)
        has_room = self._logs.have_room(rows_of(topic) - (rows_of(before) if before else Counter()))
        grown = _line_bytes(topic) - (_line_bytes(before) if before else 0)
        if not has_room or not self._room.has(grown):
            raise _no_room()

    def _spread_logs(self, wanted: NewTopic) -> list[int]:
        """A log for each partition, chosen by the broker."""
        factor, count = wanted.replication_factor, wanted.partition_count
        if factor == 0 or factor < BROKER_DEFAULT:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count == 0 or count < BROKER_DEFAULT:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if factor > 1:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {factor} cannot be reached: "
                "everything is on one host, and has one replica.",
            )
        if count == BROKER_DEFAULT:
            count = self._config.num_partitions
        if count > PARTITIONS_PER_REQUEST_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        return self._spread(count)

    def _spread(self, count: int, before: Sequence[int] = ()) -> list[int]:
        """Logs for so many more partitions of a topic, which has others in `before`.

        Each goes to the node with the fewest of the topic, which keeps its traffic on all of them;
        of these to the one that leads fewest, in the order of their ids. Full nodes are left out.
        """
        node_count = self._config.shards
        own = Counter(log % node_count for log in before)
        nodes = [
            (own[place], sum(self._logs.led[place::node_count]), node)
            for place, node in enumerate(self._config.node_ids)
        ]
        heapify(nodes)
        chosen: list[int] = []
        while len(chosen) < count:
            of_topic, led, node = nodes[0]
            if led >= self._room_on(node) and len(nodes) > 1:
                heappop(nodes)
                continue
            heapreplace(nodes, (of_topic + 1, led + 1, node))
            chosen.append(node)
        return self._logs_on(chosen)

    def _more_partitions(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> int:
        """How many partitions to add to a topic so that it has `count`."""
        now = topic.partition_count
        if count == now:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s)."
            )
        if count < now:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {now} partition(s); "
                f"{count} would not be an increase.",
            )
        if assignments is not None and len(assignments) != count - now:
            raise _bad_assignment(
                f"Attempted to add {count - now} additional partition(s), but only "
                f"{len(assignments)} assignment(s) were specified."
            )
        return count - now

    def _new_numbers(self, count: int, *, validate_only: bool) -> tuple[int, ...]:
        """Numbers for new partitions; arbitrary if the request is only validated."""
        first = 1 if validate_only else self._store.allocate("partition_number", count)
        return tuple(range(first, first + count))

    def _assigned_logs(self, wanted: NewTopic) -> list[int]:
        """A log for each partition, on the node that the client assigned."""
        for given, what in (
            (wanted.replication_factor, "replication factor"),
            (wanted.partition_count, "numPartitions"),
        ):
            if given != BROKER_DEFAULT:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        nodes: dict[int, int] = {}
        for partition, replicas in wanted.assignments:
            if partition in nodes:
                raise _bad_assignment(
                    f"Found multiple manual partition assignments for partition {partition}"
                )
            nodes[partition] = self._only_replica(replicas)
        if set(nodes) != set(range(len(nodes))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return self._logs_on([nodes[partition] for partition in range(len(nodes))])

    def _room_on(self, node: int) -> int:
        """How many partitions all logs of a node may lead."""
        return sum(map(self._logs.room_to_lead, self._served_by(node)))

    def _served_by(self, node: int) -> range:
        """The logs of a node."""
        place = self._config.node_ids.index(node)
        return range(place, self._cluster.log_count, self._config.shards)

    def _logs_on(self, nodes: Sequence[int]) -> list[int]:
        """For each of these nodes, one of its logs with few partitions."""
        counts = [self._logs.rows(log) for log in range(self._cluster.log_count)]
        logs: list[int] = []
        for node in nodes:
            served = self._served_by(node)
            logs.append(min(served, key=counts.__getitem__))
            counts[logs[-1]] += 1
        return logs

    def _only_replica(self, replicas: Sequence[int]) -> int:
        if not replicas:
            raise _bad_assignment("The manual partition assignment includes an empty replica list.")
        for node in replicas:
            if node not in self._config.node_ids:
                raise _bad_assignment(
                    f"The manual partition assignment includes broker {node}, "
                    "but no such broker is registered."
                )
            if replicas.count(node) > 1:
                raise _bad_assignment(
                    f"The manual partition assignment includes the broker {node} more than once."
                )
        if len(replicas) > 1:
            raise _bad_assignment("Everything is on one host, and has one replica.")
        return replicas[0]

    def _replace(self, topic: Topic, changed: Topic) -> None:
        self._count(topic, -1)
        self._topics[topic.name] = changed
        self._changed(changed, +1)

    def _changed(self, topic: Topic, sign: int) -> None:
        self._count(topic, sign)
        self._changes += 1
        self._catalog = None

    def _count(self, topic: Topic, sign: int) -> None:
        self._room.count(sign * _line_bytes(topic))
        self._config_room.count(topic, sign)
        self._logs.count(topic, sign)
        if sign > 0:
            self._places |= {
                number: (topic, index) for index, number in enumerate(topic.partition_numbers)
            }
        else:
            for number in topic.partition_numbers:
                del self._places[number]


def _check_widening(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Types may get more columns and fields: what is there has the old ones. Typed columns come
    from the record type where there is no schema."""
    record_types_ = before.get(RECORD_TYPE, ""), after.get(RECORD_TYPE, "")
    problems = {
        RECORD_TYPE: record_types.narrowing(*record_types_),
        SCHEMA: topic_schema.narrowing(schema_of(before), schema_of(after)),
    }
    for name, problem in problems.items():
        if problem:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Invalid value for {name}: {problem}")


def _line_bytes(topic: Topic) -> int:
    return len(topic.line().encode()) + 1


def _no_room() -> BrokerError:
    return BrokerError(
        ErrorCode.POLICY_VIOLATION,
        "This broker has reached its limit of topics or partitions: delete some first.",
    )


def _bad_assignment(sentence: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
