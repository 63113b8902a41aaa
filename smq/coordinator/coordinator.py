"""The coordinator's whole state, built from the store. Handlers and commands work on it.

A change goes to memory and to the store's open transaction. The process commits once a turn, and
then sends the catalog and the answers (`smq.app.coordinator.server`). If a commit fails, it
discards this object and builds a new one from the committed state.
"""

from smq.coordinator.access import AccessControl
from smq.coordinator.catalog_room import CatalogRoom
from smq.coordinator.cleaning import Cleaning
from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.groups import GroupRules, Groups
from smq.coordinator.inputs import Chance
from smq.coordinator.moves import Moves
from smq.coordinator.mutations import Mutations
from smq.coordinator.offsets import CommittedOffsets
from smq.coordinator.producer_ids import ProducerIds
from smq.coordinator.settings import Settings
from smq.coordinator.topics import Cluster, Topics
from smq.coordinator.transactions.orders import LedPartition, Places
from smq.coordinator.transactions.transactions import TransactionRules, Transactions
from smq.model.config import Config
from smq.model.now import Now
from smq.model.topic_settings import settings_of
from smq.store.store import Store

LED_MAX = 10_000  # A megabyte.


class Coordinator:
    """Topics, groups, offsets, producer ids, transactions and moves over one store. Raises
    StoreError: the store has more than fits (smq.coordinator.topics)."""

    def __init__(
        self, store: Store, config: Config, cluster: Cluster, chance: Chance, now: Now
    ) -> None:
        self.store = store
        store.clamp_times(now.monotonic_ms)
        room = CatalogRoom(cluster.catalog_bytes_max)
        self.settings = Settings(store, config, room)
        config = self.settings.config
        self.chance = chance
        self._led: dict[int, LedPartition] = {}  # As they were found since the last change.
        self._led_changes = 0
        self.access = AccessControl(store, config)
        self.mutations = Mutations()
        self.topics = Topics(store, config, cluster, chance, room)
        self.settings.check_room()
        self.groups = Groups(store, _group_rules(config), now)
        self.producer_ids = ProducerIds(store)
        places = Places(self._find_place, lambda: self.topics.config_changes)
        self.transactions = Transactions(
            store, _transaction_rules(config), self.producer_ids, places, now
        )
        parts = self.settings, self.topics, self.groups, self.transactions
        self.offsets = CommittedOffsets(store, *parts, self._find_place, now)
        self.cleaning = Cleaning(store)
        generation_of = cluster.generation_of
        self.moves = Moves(store, self.topics, self.transactions, self.access, generation_of)
        self.moves.give_up_unfinished(now)
        self.take_settings()

    @property
    def config(self) -> Config:
        """The settings in force for everything that serves all nodes."""
        return self.settings.config

    @property
    def problems(self) -> list[str]:
        """A sentence for what the store has and this version would not take."""
        return [*self.settings.problems, *filter(None, [self.topics.problem])]

    def take_settings(self) -> None:
        """Use and publish the settings in force. To be called after each change."""
        self._lacks_room = self.settings.lacks_room
        self.topics.take_settings(self.config, self.settings.published)
        self.groups.take_rules(_group_rules(self.config))
        self.transactions.take_rules(_transaction_rules(self.config))

    def take_freed_room(self) -> None:
        """Put in force what there was no room for. To be called after topics have changed."""
        if self._lacks_room:
            self.take_settings()

    def _find_place(self, number: int) -> LedPartition | None:
        changes = self.topics.changes
        if changes != self._led_changes or len(self._led) >= LED_MAX:
            self._led, self._led_changes = {}, changes
        known = self._led.get(number)
        if known is None and (known := self._place_of(number)) is not None:
            self._led[number] = known
        return known

    def _place_of(self, number: int) -> LedPartition | None:
        found = self.topics.places.get(number)
        if found is None:
            return None
        topic, partition = found
        node = topic.node(partition, self.config.node_ids)
        durability = settings_of(topic, self.settings.of_node(node)).durability
        return LedPartition(topic.name, partition, node, durability == "disk")


def _transaction_rules(config: Config) -> TransactionRules:
    return TransactionRules(
        config.transaction_max_timeout_ms, config.transactional_id_expiration_ms
    )


def _group_rules(config: Config) -> GroupRules:
    return GroupRules(
        GroupLimits(config.group_initial_rebalance_delay_ms, config.group_max_size),
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
    )
