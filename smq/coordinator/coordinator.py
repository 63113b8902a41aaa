"""The coordinator's state as a whole, built from the store; what handlers and commands work on.

Everything is changed in memory and in the store's open transaction alike. The process commits once
a turn, and then lets the catalog and the answers out (`smq.app.coordinator.server`). If it cannot
commit, it throws this object away and builds another one from what was committed.
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
