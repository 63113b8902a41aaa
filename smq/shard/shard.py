"""A shard: the logs it serves and the partitions it leads. Decides; takes `now_ms`.

The catalog says which topics exist. After each change the shard adopts its new partitions, drops
deleted ones, and enters both into the kernels' directory. No process waits for another.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import NamedTuple
from uuid import UUID

import numpy as np

from shm.kernels.base.words import (
    COUNTER_BYTES_OUT,
    COUNTER_FETCH_REQUESTS,
    COUNTER_FETCHES_FROM_SEALED,
    COUNTER_SEALED_CACHE_HITS,
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    DURABILITY_OS,
    P_NUMBER,
)
from smq.log.log import TOUCHED_MAX, Log
from smq.model.catalog import (
    BROKER,
    CLIENT_METRICS,
    QUOTA,
    Catalog,
    InternalPartition,
    Leader,
    Node,
    Topic,
)
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.live_config import in_force
from smq.model.segments import KnownEnds
from smq.model.topic_configs import topic_defaults
from smq.security.access import AccessView, NothingPublished
from smq.security.listeners import listeners_of
from smq.shard.bitmaps import Bitmaps
from smq.shard.client_metrics import ClientMetrics
from smq.shard.directory import Directory
from smq.shard.fetch_sessions import FetchSessions
from smq.shard.led import Led
from smq.shard.quotas import ClientQuotas
from smq.shard.settings import partition_settings
from smq.shard.throttle import Throttle


class Verifying(NamedTuple):
    """A request that is asking the coordinator about a producer's transaction, and its epoch."""

    request: object
    epoch: int


class Shard:
    """A node: its logs, its catalog, its directory.

    Invariant: every partition of the catalog whose log is served here is adopted in that log, and
    no other is.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (what a node has)
        self,
        node_id: int,
        config: Config,
        logs: dict[int, Log],
        nodes: Callable[[str], list[Node]],
        secret: bytes,
        access: AccessView | None = None,
    ) -> None:
        self.node_id, self.logs, self._nodes_of = node_id, logs, nodes
        self.config = self._started = config
        self.catalog = Catalog("", 0, {})
        self.catalog_version = 0
        self._led: dict[int, Led] = {}
        self._durabilities: dict[int, int] = {}
        self._changed_levels: set[int] = set()  # Logs with partitions whose level has changed.
        self.levels: set[int] = set()
        self.moved: set[tuple[int, int]] = set()
        self.full_logs: set[int] = set()  # Of which it has been said …
        self.hurried_logs: set[int] = set()  # … and that sealing hurries.
        self.fetch_sessions = FetchSessions()
        # By (partition, producer), the latest each, until the transaction's marker arrives.
        self.verifying: dict[tuple[int, int], Verifying] = {}
        self.quotas = ClientQuotas()
        self.client_metrics = ClientMetrics()
        self.throttle = Throttle(logs.values())
        self._directory = Directory(secret)
        self.access = access or AccessView(NothingPublished(), config)
        self.bitmaps: Bitmaps | None = None  # Rights in kernel form, if kernels take turns.
        if self.access.authorizer is not None and len(logs) == 1:
            allow = config.allow_everyone_if_no_acl_found
            self.bitmaps = Bitmaps(self, *logs.values(), allow_if_no_rule=allow)

    def invariants(self) -> None:
        """Raise AssertionError when the shard does not lead what the catalog says."""
        wanted = {
            number
            for topic in self.catalog.by_name.values()
            for number, log in zip(topic.partition_numbers, topic.logs, strict=True)
            if log in self.logs
        }
        assert wanted == set(self._led)
        self._directory.invariants()
        if self.bitmaps is not None:
            self.bitmaps.invariants()
        for log in self.logs.values():
            log.invariants()

    def take_catalog(self, catalog: Catalog, version: int) -> None:
        """Lead the partitions that a newer catalog gives us, and drop those that it no longer
        has."""
        config = in_force(self._started, catalog.settings.get(BROKER, {}), str(self.node_id))
        self.quotas.take(catalog.settings.get(QUOTA, {}))
        self.client_metrics.take(catalog.settings.get(CLIENT_METRICS, {}))
        changed = come = catalog.without(self.catalog)
        gone = self.catalog.without(catalog)
        if config is not self.config:
            if topic_defaults(config) != topic_defaults(self.config):
                changed = list(catalog.by_id.values())
            self._take_config(config)
        slots_before = self._slots_of(gone)
        self._drop_lost(gone, changed)  # First: the others may need their rows.
        for topic in changed:
            self._adopt(topic)
        if self.bitmaps is not None:
            self.bitmaps.forget_partitions([*slots_before, *self._slots_of(changed)])
        assert version >= self.catalog_version, "a catalog never grows older"
        self.catalog, self.catalog_version = catalog, version
        self.levels = set(self._durabilities.values())
        self._show_again()
        self._directory.take(gone, come, self._code_of)
        for log in self.logs.values():
            log.wal.files.writes_ahead = DURABILITY_DISK in self.levels

    def raise_ends(self, known: Iterable[KnownEnds], now_ms: int) -> list[Log]:
        """Have no partition end below what the manifest has of it. Returns the logs in which some
        did: they have lost records that were on disk. Before anything is appended."""
        raised: dict[int, Log] = {}
        for each in known:
            led = self._led.get(each.number)
            if led is not None and led.log.sealing.raise_end(each, now_ms):
                raised[led.log.number] = led.log
        for log in raised.values():
            log.losses.lost_synced()
            log.save_losses()
        return list(raised.values())

    def _drop_lost(self, gone: Iterable[Topic], changed: Iterable[Topic]) -> None:
        """Drop the partitions of topics that are gone and have not only changed."""
        wanted = {number for topic in changed for number in topic.partition_numbers}
        if self.catalog_version:
            known = {number for topic in gone for number in topic.partition_numbers}
        else:  # Logs may hold partitions of topics that were deleted while the shard was down.
            known = {number for log in self.logs.values() for number in log.partitions.slots}
        lost = known - wanted
        for log in self.logs.values():
            self._drop(log, sorted(lost & log.partitions.slots.keys()))

    def _take_config(self, config: Config) -> None:
        """Use other settings from now on."""
        self.config = config
        for log in self.logs.values():
            log.wal.files.kept.bytes_max = config.wal_keep_bytes

    def _adopt(self, topic: Topic) -> None:
        settings = partition_settings(topic, self.config)
        for number, log in zip(topic.partition_numbers, topic.logs, strict=True):
            if log in self.logs:
                before = self._durabilities.get(number, settings.durability)
                if before != settings.durability:
                    self._changed_levels.add(log)
                if before < settings.durability:
                    self.logs[log].raise_level(before, settings.durability)
                slot = self.logs[log].adopt(number, settings)
                self._led[number] = Led(self.logs[log], number, slot, topic)
                self._durabilities[number] = settings.durability

    def _show_again(self) -> None:
        """Publish again from the start of what is unpublished where a partition's level has
        changed: the cursor of its new level may have passed over it."""
        changed, self._changed_levels = self._changed_levels, set()
        for log in map(self.logs.__getitem__, changed):
            log.cursors[:] = log.cursors.min()
            for level in self.levels:
                self.publish(log, level)

    def _drop(self, log: Log, numbers: list[int]) -> None:
        if not numbers:
            return
        log.drop_partitions(numbers)
        for number in numbers:
            self._led.pop(number, None)
            self._durabilities.pop(number, None)
        log.checkpoint()

    def _slots_of(self, *topics: Iterable[Topic]) -> list[int]:
        """The rows in their log of the partitions led here of some topics."""
        numbers = {number for each in chain(*topics) for number in each.partition_numbers}
        return [self._led[number].slot for number in numbers if number in self._led]

    def _code_of(self, number: int) -> int | None:
        led = self._led.get(number)
        return None if led is None else led.code

    @property
    def directory(self) -> np.ndarray:
        """By which kernels find partitions: see Directory."""
        return self._directory.words

    def find(self, topic: Topic, index: int) -> Led | InternalPartition | ErrorCode:
        """The partition `index` of a topic, or why we cannot serve it."""
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.is_internal:
            leader = topic.leader(index, self.nodes())
            if leader.node.id != self.node_id:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return InternalPartition(topic, leader.epoch)
        return self._led.get(topic.partition_numbers[index], ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def find_named(self, name: str, index: int) -> Led | InternalPartition | ErrorCode:
        """The partition `index` of the topic of a name, or why we cannot serve it."""
        topic = self.catalog.find(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else self.find(topic, index)

    def nodes(self, listener: str = "") -> list[Node]:
        """All nodes, with the addresses of a listener; "": of the first."""
        return self._nodes_of(listener)

    def leader_of(self, topic: str | UUID, index: int, listener: str = "") -> Leader | None:
        """Who leads a partition of a topic, by the topic's name or id, with the node's address for
        a listener. With several listeners, and no word of which, as from an attached program,
        there is none to tell."""
        catalog = self.catalog
        found = catalog.find_by_id(topic) if isinstance(topic, UUID) else catalog.find(topic)
        if found is None or not 0 <= index < found.partition_count:
            return None
        if not listener and len(listeners_of(self.config)) > 1:
            return None
        return found.leader(index, self.nodes(listener))

    def leader_elsewhere(self, topic: str | UUID, index: int, listener: str = "") -> Leader | None:
        """As leader_of; None: we lead it, and it is closed. A client that was sent back here would
        ask again at once."""
        leader = self.leader_of(topic, index, listener)
        return None if leader is None or leader.node.id == self.node_id else leader

    def led(self) -> list[Led]:
        """All partitions this shard leads."""
        return list(self._led.values())

    def by_number(self, number: int) -> Led | None:
        """The partition with a number, if it is led here."""
        return self._led.get(number)

    def by_code(self, code: int) -> Led | None:
        """The partition with a code of the directory, if it is led here."""
        log = self.logs.get(code >> 32)
        if code < 0 or log is None:
            return None
        return self._led.get(int(log.partitions.table[code & 0xFFFFFFFF, P_NUMBER]))

    def topic_of(self, number: int) -> Topic | None:
        """The topic of a partition that is led here."""
        led = self._led.get(number)
        return None if led is None else led.topic

    def check_epoch(self, claimed: int, led: Led | InternalPartition) -> ErrorCode:
        """Compare the leader epoch a client believes in (-1: none) with ours (KIP-320)."""
        if claimed in {-1, led.epoch}:
            return ErrorCode.NONE
        is_stale = claimed < led.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_stale else ErrorCode.UNKNOWN_LEADER_EPOCH

    # --- turns -----------------------------------------------------------------------------------

    def publish(self, log: Log, level: int) -> None:
        """Raise high watermarks whose level has been reached, and record which moved."""
        assert self.logs[log.number] is log
        while level in self.levels:
            touched = log.publish(level)
            self.moved.update(zip(repeat(log.number), touched))
            if len(touched) < TOUCHED_MAX:
                return

    def take_moved(self) -> set[tuple[int, int]]:
        """The (log, slot) pairs whose HWM has moved since the last call."""
        moved, self.moved = self.moved, set()
        return moved

    def count_fetch(self, records_bytes: int) -> None:
        """Count a fetch and the bytes of records in its answer, in the first log's words."""
        words = next(iter(self.logs.values())).words
        words[COUNTER_FETCH_REQUESTS] += 1
        words[COUNTER_BYTES_OUT] += records_bytes

    def forget_fetch(self, records_bytes: int) -> None:
        """A fetch that a kernel has counted is answered anew."""
        words = next(iter(self.logs.values())).words
        words[COUNTER_FETCH_REQUESTS] -= 1
        words[COUNTER_BYTES_OUT] -= records_bytes

    @staticmethod
    def count_sealed(log: Log, records_bytes: int, *, is_cached: bool) -> None:
        """Count a partition's part of a fetch that the sealer has read, or had in its cache."""
        log.words[COUNTER_FETCHES_FROM_SEALED] += 1
        log.words[COUNTER_SEALED_CACHE_HITS] += is_cached
        log.words[COUNTER_BYTES_OUT] += records_bytes

    @staticmethod
    def count_bytes_out(log: Log, records_bytes: int) -> None:
        """Count what the log adds to a fetch that has been counted."""
        log.words[COUNTER_BYTES_OUT] += records_bytes

    def drain(self, log: Log) -> None:
        """Make room in a full log: write it, publish what is written, wait for its tables."""
        if not log.write() and not log.repair():
            return
        for level in (DURABILITY_MEMORY, DURABILITY_OS, DURABILITY_DISK):
            self.publish(log, level)
        log.filing.make_room(self.levels)
        if DURABILITY_DISK in self.levels and not log.filing.has_room():
            log.want_sync()  # No sync may have been wanted yet: the first `disk` topic is new.
            log.syncs.syncer.wait()
            self.publish(log, DURABILITY_DISK)
            log.filing.free_entries()
