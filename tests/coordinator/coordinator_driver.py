"""A whole coordinator without its process: a store, a clock, a seed; it may die at any time."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from smq.coordinator.coordinator import Coordinator
from smq.coordinator.topics import Cluster
from smq.model.config import Config
from smq.model.now import Now
from smq.store.store import Store

MiB = 1024 * 1024
CONFIG = Config(data_dir=Path("/nowhere"), shards=2, ring_bytes=16 * MiB, wal_segment_bytes=8 * MiB)


class CoordinatorDriver:
    """Turns are up to the test: `commit` and `restart`, or `restart` alone for a death."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config = CONFIG
        self.cluster = Cluster(
            "cluster", log_count=3, partitions_per_log_max=2_000, catalog_bytes_max=1 * MiB
        )
        self._chance = Random(1)
        self.now = Now(monotonic_ms=100_000_000_000, wall_ms=1_700_000_000_000)
        self.store = Store.open(path)
        self.coordinator = self._load()

    def _load(self) -> Coordinator:
        return Coordinator(self.store, self.config, self.cluster, self._chance, self.now)

    def wait(self, wait_ms: int) -> None:
        """Let time pass, and have everything looked at that is due on the way."""
        end_ms = self.now.monotonic_ms + wait_ms
        with_work = self.coordinator.groups, self.coordinator.offsets
        for _ in range(100_000):
            wake_ms = min(each.next_wake_ms() for each in with_work)
            due_ms = min(max(wake_ms, self.now.monotonic_ms), end_ms)
            self.now = Now(due_ms, self.now.wall_ms + due_ms - self.now.monotonic_ms)
            if wake_ms > due_ms:
                return
            for each in with_work:
                if each.next_wake_ms() <= due_ms:
                    each.tick(self.now)
        raise AssertionError("the groups never come to rest")

    def set_clock(self, step_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.now = self.now._replace(wall_ms=self.now.wall_ms + step_ms)

    def restart(self, *, config: dict[str, Any] | None = None) -> None:
        """The process dies; another one starts from what was committed."""
        self.store.close()
        self.config = replace(self.config, **(config or {}))
        self.store = Store.open(self._path)
        self.coordinator = self._load()

    def close(self) -> None:
        self.store.close()
