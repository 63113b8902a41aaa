"""The topics as SeaweedMQ names them: from the catalog in shared memory, and the layouts' times."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from shm.catalog import CatalogBlock
from smq.agent.layouts import PARTITIONS_MAX, RingLayout, RingRange, partition_of
from smq.agent.topic_names import TopicName, name_of
from smq.app.agent.gate import Call
from smq.app.agent.refusals import no_topic
from smq.model.catalog import QUOTA, Catalog, Topic
from smq.model.client_quotas import Quotas
from smq.model.config import Config
from smq.model.record_types import RecordField, parse_record_type
from smq.model.topic_configs import NAMESPACE, RECORD_TYPE, own_or_default
from smq.store.layouts import Layouts

LAYOUTS_KEPT_MAX = 10_000


class KnownTopic(NamedTuple):
    """A topic at one moment. `layouts`: the newest is the last."""

    name: TopicName
    id: UUID
    configs: Mapping[str, str]
    layouts: tuple[RingLayout, ...]
    numbers: tuple[int, ...] = ()
    """Of its partitions, in the store."""

    @property
    def kafka_name(self) -> str:
        """Kafka's name of it."""
        return self.name.kafka_name

    @property
    def layout(self) -> RingLayout:
        """The layout of now."""
        return self.layouts[-1]

    @property
    def fields(self) -> tuple[RecordField, ...]:
        """The fields of its record type; none: any RecordValue is one of its records."""
        return parse_record_type(self.configs.get(RECORD_TYPE, ""))

    def partition_of(self, wanted: RingRange) -> int:
        """The partition of a range. Raises UnknownRange."""
        return partition_of(self.layouts, wanted)


class KnownTopics:
    """The topics of now. Reads shared memory, and the store for layouts that are new to it."""

    def __init__(self, block: CatalogBlock, layouts: Layouts, config: Config) -> None:
        self._block, self._stored, self._config = block, layouts, config
        self._version, self._catalog = -1, Catalog("", 0, {})
        self._kept: dict[tuple[UUID, int], tuple[RingLayout, ...]] = {}

    def all(self) -> Iterator[TopicName]:
        """The names of all topics, in the order of Kafka's."""
        found = self._now().by_name
        return (name_of(name, found[name].configs.get(NAMESPACE, "")) for name in sorted(found))

    def find(self, name: TopicName) -> KnownTopic:
        """A topic. Raises CallRefused."""
        topic = self.find_or_none(name)
        if topic is None:
            raise no_topic(name)
        return topic

    def asked(self, call: Call, name: TopicName, group: str = "") -> KnownTopic:
        """A topic, and a group, with which a call has the rights that it needs. Raises CallRefused,
        NotAllowed."""
        call.check(name, group)
        return self.find(name)

    def find_or_none(self, name: TopicName) -> KnownTopic | None:
        """A topic; None: there is none of this name and namespace."""
        topic = self._now().by_name.get(name.kafka_name)
        if topic is None or name_of(topic.name, topic.configs.get(NAMESPACE, "")) != name:
            return None
        numbers = topic.partition_numbers
        return KnownTopic(name, topic.id, topic.configs, self._layouts(topic), numbers)

    def is_there(self, topic: KnownTopic) -> bool:
        """Whether it is still a topic, and no other one of its name."""
        return self.configs_of(topic) is not None

    def configs_of(self, topic: KnownTopic) -> Mapping[str, str] | None:
        """The configs that a topic has now; None: it is gone."""
        found = self._now().by_name.get(topic.kafka_name)
        return found.configs if found is not None and found.id == topic.id else None

    def has_kafka_name(self, name: str) -> bool:
        """Whether Kafka has a topic of this name, in whatever namespace."""
        return self._now().find(name) is not None

    def quotas(self) -> Quotas:
        """The quotas of clients."""
        return self._now().settings.get(QUOTA, {})

    def setting(self, topic: KnownTopic, name: str) -> str:
        """A config of a topic, or what holds without it."""
        return own_or_default(name, topic.configs, self._config)

    def setting_now(self, topic: KnownTopic, name: str) -> str:
        """The same, as it is now; as it was for one that is gone."""
        configs = self.configs_of(topic)
        return self.setting(topic if configs is None else topic._replace(configs=configs), name)

    def _now(self) -> Catalog:
        if self._block.has_moved(self._version):
            self._version, published = self._block.read()
            self._catalog = Catalog.decode(published) if published else Catalog("", 0, {})
        return self._catalog

    def _layouts(self, topic: Topic) -> tuple[RingLayout, ...]:
        count = topic.partition_count
        if count > PARTITIONS_MAX:
            raise ValueError(
                f"{topic.name} has {count} partitions; SeaweedMQ's ring has slots for "
                f"{PARTITIONS_MAX}"
            )
        key = topic.id, count
        found = self._kept.get(key)
        if found is None:
            found = tuple(RingLayout(*each) for each in self._stored.of(topic.id))
            if not found or found[-1].partition_count != count:  # It is going, or growing: again.
                raise no_topic(topic.name)
            if len(self._kept) >= LAYOUTS_KEPT_MAX:
                self._kept.clear()
            self._kept[key] = found
        return found
