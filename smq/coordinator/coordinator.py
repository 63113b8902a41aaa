"""The coordinator's whole state, built from the store. Handlers and commands work on it.

A change goes to memory and to the store's open transaction. The process commits once a turn, and
then sends the catalog and the answers (`smq.app.coordinator.server`). If a commit fails, it
discards this object and builds a new one from the committed state.
"""

from smq.coordinator.group_limits import GroupLimits
from smq.coordinator.groups import GroupRules, Groups
from smq.coordinator.inputs import Chance, Now
from smq.coordinator.producer_ids import ProducerIds
from smq.coordinator.topics import Cluster, Topics
from smq.model.config import MINUTE_MS, Config
from smq.store.store import Store


class Coordinator:
    """Topics, groups and producer ids over one store."""

    def __init__(
        self, store: Store, config: Config, cluster: Cluster, chance: Chance, now: Now
    ) -> None:
        self.store = store
        self.config = config
        self.chance = chance
        self.topics = Topics(store, config, cluster, chance)
        self.groups = Groups(store, _group_rules(config), now)
        self.producer_ids = ProducerIds(store)


def _group_rules(config: Config) -> GroupRules:
    return GroupRules(
        GroupLimits(config.group_initial_rebalance_delay_ms, config.group_max_size),
        config.group_min_session_timeout_ms,
        config.group_max_session_timeout_ms,
        config.offsets_retention_minutes * MINUTE_MS,
    )
