"""A store from elsewhere is loaded once, as a coordinator and its shards load it at each start.

What tables may say is checked row by row (smq.store.content). That rows fit together, and what is
made of them, only who loads them knows: a broker whose coordinator ends at each start serves
nobody, and nobody is told why.
"""

import random
from contextlib import closing
from pathlib import Path

from shm.catalog import CATALOG_BYTES_MAX
from shm.layout import PARTITIONS_PER_LOG_MAX
from smq.app.process.clock import now
from smq.app.supervisor.datadir import Meta
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.topics import Cluster
from smq.model.catalog import Catalog
from smq.model.config import Config
from smq.model.config_rules import fitted
from smq.model.errors import StoreError
from smq.model.setting import GiB
from smq.shard.settings import partition_settings
from smq.store.store import Store


def check_it_loads(path: Path, meta: Meta) -> None:
    """Raises StoreError for a store that no broker can serve. What a load changes is dropped."""
    with closing(Store.open(path)) as store:
        try:
            _load(store, meta)
        except StoreError:
            raise
        except Exception as reason:
            raise StoreError(
                str(path),
                f"no broker can load it ({reason!r:.200}): somebody has changed this database",
            ) from reason


def _load(store: Store, meta: Meta) -> None:
    config, _ = fitted(Config(shards=1), 1, GiB)
    cluster = Cluster(meta.cluster_id, meta.log_count, PARTITIONS_PER_LOG_MAX, CATALOG_BYTES_MAX)
    loaded = Coordinator(store, config, cluster, random.SystemRandom(), now())
    published = loaded.topics.catalog.encode()
    if len(published) > CATALOG_BYTES_MAX:
        raise ValueError("its topics take more room than there is for them")
    for topic in Catalog.decode(published).by_name.values():
        partition_settings(topic, loaded.config)
