"""The catalog as the sealer uses it: by partition number, and the lake tables that it asks for.

A new version of the catalog costs what has changed: of a topic only its numbers are noted, and a
partition's place and settings are looked up when they are needed.
"""

from itertools import repeat
from typing import NamedTuple

from smq.app.process.inheritance import Inheritance
from smq.app.sealer.tables import TableKey
from smq.model.catalog import BROKER, Catalog, Topic, node_of_log
from smq.model.config import Config
from smq.model.live_config import Changed, in_force
from smq.model.segments import SealedPartition
from smq.model.topic_configs import NO_TABLE
from smq.model.topic_settings import (
    TopicSettings,
    orphan_ms_of,
    schema_of,
    settings_of,
    table_of,
)
from smq.wire.internal.messages import Owner, PublishTable


class Place(NamedTuple):
    """A partition: its name, its topic's settings where it is led, and the node that leads it."""

    partition: SealedPartition
    settings: TopicSettings
    node: int


class Known:
    """The catalog by partition number, as of `version`.

    Invariant: the numbers are those of the catalog's topics, the tables those that they ask for.
    """

    def __init__(self) -> None:
        self.version = 0
        self.config: Config | None = None
        self.tables: dict[TableKey, PublishTable] = {}
        self.table_of: dict[int, TableKey] = {}
        self._catalog = Catalog("", 0, {})
        self._topics: dict[int, Topic] = {}
        self._node_ids: range = range(1)
        self._configs: dict[int, Config] = {}  # By node.

    def invariants(self) -> None:
        """Raise AssertionError if the class's invariant does not hold."""
        topics = self._catalog.by_name.values()
        assert self._topics == {
            number: each for each in topics for number in each.partition_numbers
        }
        with_table = [each for each in topics if table_of(each.configs) != NO_TABLE]
        assert self.tables.keys() == {_table(each) for each in with_table}
        assert self.table_of == {
            number: _table(each) for each in with_table for number in each.partition_numbers
        }

    def look(self, inheritance: Inheritance) -> None:
        """Take the catalog, if it has changed."""
        block = inheritance.catalog
        if block.version() == self.version:
            return
        version, published = block.read()
        self.take(Catalog.decode(published), version, inheritance.config)

    def take(self, catalog: Catalog, version: int, started: Config) -> None:
        """Know another version of the catalog. `started`: the config of the broker's start."""
        before, self._catalog, self.version = self._catalog, catalog, version
        keep_ms_before = self.config.filer_sweep_ms if self.config else 0
        changed: Changed = catalog.settings.get(BROKER, {})
        self.config, self._node_ids = in_force(started, changed), started.node_ids
        self._configs = {node: in_force(started, changed, str(node)) for node in self._node_ids}
        for topic in before.without(catalog):
            self._forget(topic)
        for topic in catalog.without(before):
            self._topics.update(zip(topic.partition_numbers, repeat(topic)))
            self._note_table(topic, self.config.filer_sweep_ms)
        if self.config.filer_sweep_ms != keep_ms_before:
            for name in list(self.tables):
                self._note_table(catalog.by_name[name.topic], self.config.filer_sweep_ms)

    def _forget(self, topic: Topic) -> None:
        self.tables.pop(_table(topic), None)
        for number in topic.partition_numbers:
            del self._topics[number]
            self.table_of.pop(number, None)

    def _note_table(self, topic: Topic, keep_ms: int) -> None:
        if table_of(topic.configs) != NO_TABLE:
            name, numbers = _table(topic), list(topic.partition_numbers)
            schema = schema_of(topic.configs)
            self.tables[name] = PublishTable(topic.id.hex, *name, numbers, keep_ms, schema)
            self.table_of.update(zip(numbers, repeat(name)))

    def place(self, number: int) -> Place | None:
        """A partition's place; None: its topic is gone."""
        topic = self._topics.get(number)
        if topic is None:
            return None
        index = topic.index_of(number)
        node = topic.node(index, self._node_ids)
        partition = SealedPartition(topic.namespace, topic.name, index, number)
        return Place(partition, settings_of(topic, self._configs[node]), node)

    def settings(self, number: int) -> TopicSettings | None:
        """The settings of a partition where it is led; None: its topic is gone."""
        place = self.place(number)
        return None if place is None else place.settings

    def owners(self) -> list[Owner]:
        """The topics, as the sweep of payloads needs them."""
        return list(map(self._owner, self._catalog.by_name.values()))

    def _owner(self, topic: Topic) -> Owner:
        nodes = [node_of_log(log, self._node_ids) for log in topic.logs]
        orphan_ms = orphan_ms_of(topic.configs, self._configs[nodes[-1]])
        led = list(zip(topic.partition_numbers, nodes, strict=True))
        return Owner(topic.namespace, topic.name, orphan_ms, led)


def _table(topic: Topic) -> TableKey:
    return TableKey(topic.namespace, topic.name, table_of(topic.configs))
