"""The state that outlives the processes of a simulated broker: memory, listeners, files,
generations.

It plays the supervisor. Killing one process keeps all of it; killing all loses the memory; a power
cut also loses data that is not durable.
"""

import os
import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock, Node
from shm.kernels.base.words import SPACE_UNLIMITED
from shm.segment import LogMemory
from shm.timings import Timings
from smq.app.process.inheritance import (
    COORDINATOR,
    SEALER,
    Inheritance,
    Stop,
    kafka_name,
    shard_name,
    socket_path,
)
from smq.model.catalog import node_of_log
from smq.model.config import Config
from smq.model.setting import PathOrUrl
from smq.security.listeners import UNIX, Endpoint
from smq.store.store import FILE_NAME, Store
from smq.testing.simulation.clock import SimulatedClock
from smq.testing.simulation.disk import Faults, SimulatedDisk
from smq.testing.simulation.epochs import EpochSocket
from smq.testing.simulation.network import Address, ListeningSocket, Network
from smq.testing.simulation.people import (
    HOSTS_USER,
    INSIDE,
    OUTSIDE,
    WORKER,
    Identity,
    settings,
    settle_in,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from smq.testing.simulation.store import StoreImage
    from smq.wire.internal.form import Question

CLUSTER_ID = "simulated-cluster-0000"
RUNTIME_DIR = Path("/simulated")
PARTITIONS_PER_LOG_MAX = 64
CATALOG_BYTES_MAX = 1 << 16
SEALING_SHARE = 0.25  # Of seeds; sealing takes most of their time.
OFTEN_MS = 300
LATE_MS = 1000
KEEPS_PAGES_SHARE = 0.2  # Of seeds: their file system drops no page of a file.
LITTLE_ROOM_SEGMENTS = 4  # As much as the ring.
KiB = 1024


def node_address(node_id: int, identity: Identity | None = None) -> Address:
    """A node's address for clients: who they are decides where they connect."""
    if identity is None:
        return "broker", 9091 + node_id
    if not identity.mechanism:
        return str(socket_path(RUNTIME_DIR, kafka_name(node_id))), 0
    return "broker", 9191 + node_id


class Host:
    """A machine with a broker's directory."""

    def __init__(
        self, directory: Path, clock: SimulatedClock, network: Network, chance: Random, shards: int
    ) -> None:
        self.directory, self.clock, self.network, self.chance = directory, clock, network, chance
        segment_bytes = chance.choice((4 * KiB, 8 * KiB, 32 * KiB))
        self.config = Config(
            data_dir=directory,
            host="broker",
            shards=shards,
            ring_bytes=4 * segment_bytes,
            wal_segment_bytes=segment_bytes,
            wal_bytes_max=64 * segment_bytes,
            wal_keep_bytes=chance.choice((0, 3, 64)) * segment_bytes,
            page_cache_bytes=segment_bytes,  # So little that it drops each full segment.
            message_max_bytes=2 * KiB,
            group_initial_rebalance_delay_ms=0,
            auto_create_topics_enable=False,
            filer_root=PathOrUrl(directory / "filer"),
            seal_ms=chance.choice((100, LATE_MS)),
            seal_late_ms=5000,
            seal_bytes=chance.choice((1, 256, 256, 256)) * KiB,  # Small files slow a run down.
            # Segments are merged and compacted, and replaced ones deleted, soon or not at all.
            log_retention_ms=-1,  # It goes by the wall clock, which somebody sets.
            log_retention_check_interval_ms=chance.choice((OFTEN_MS, 300_000)),
            filer_sweep_ms=chance.choice((2000, 3_600_000)),
        )
        self.log_count = shards
        self.is_secured = False
        self.generation = -1
        self.boot = 0
        self.faults = [Faults() for _ in range(shards)]
        self.store_faults = Faults()
        logs = directory / "logs"
        self.disks = [
            SimulatedDisk(logs / str(n), faults, Random(chance.getrandbits(64)))  # noqa: S311
            for n, faults in enumerate(self.faults)
        ]
        self.seals = chance.random() < SEALING_SHARE
        self.is_flooded = self.seals and self.config.seal_ms == LATE_MS
        if self.is_flooded:
            self.config = replace(self.config, wal_bytes_max=LITTLE_ROOM_SEGMENTS * segment_bytes)
        self.compacts = self.seals and self.config.log_retention_check_interval_ms == OFTEN_MS
        if copy(chance).random() < KEEPS_PAGES_SHARE:
            self.config = replace(self.config, page_cache_bytes=SPACE_UNLIMITED)
        self.store_image: StoreImage | None = None
        self.store_chance = copy(chance)  # Existing seeds replay as before this was added.
        self.after_answer: Callable[[Question[Any]], None] | None = None  # To a sealer's worker.
        self.is_up = False
        self._blocks: list[CatalogBlock | ClusterBlock | Timings] = []
        self._stop = Stop()
        self.inheritance: Inheritance
        self.listeners: dict[str, ListeningSocket] = {}

    def secure(self, chance: Random) -> None:
        """Have logins and an authorizer, from the next start on."""
        self.is_secured = True
        self.config = replace(self.config, **settings(chance))  # type: ignore[arg-type]

    def start(self, shards: int) -> None:
        """Start like a supervisor: fresh memory, listeners, a generation."""
        assert not self.is_up
        self.is_up = True
        self.config = replace(self.config, shards=shards)
        segment, ring = self.config.wal_segment_bytes, self.config.ring_bytes
        nodes = ClusterBlock.create(self.config.node_ids, 1, 0)
        catalog = CatalogBlock.create(CATALOG_BYTES_MAX)
        access = CatalogBlock.create(CATALOG_BYTES_MAX)
        timings = Timings.create(range(1, shards + 1))
        self._blocks = [nodes, catalog, access, timings]
        epochs = EpochSocket(self.clock, self.chance, self.network.next_fd(), self.take_generation)
        self.network.by_fd[epochs.fd] = epochs
        self.inheritance = Inheritance(
            config=self.config,
            data_dir=self.directory,
            cluster_id=CLUSTER_ID,
            runtime_dir=RUNTIME_DIR,
            generation=self.take_generation(),
            log_count=self.log_count,
            nodes=nodes,
            catalog=catalog,
            access=access,
            timings=timings,
            logs={
                n: LogMemory.in_process(n, ring, segment, PARTITIONS_PER_LOG_MAX)
                for n in range(self.log_count)
            },
            tcp_listeners={},
            addresses=self._addresses(shards),
            unix_listeners={},
            stop=self._stop,
            epoch_sockets={COORDINATOR: cast("socket.socket", epochs)},
            decoy_secret=b"nobody knows it",
        )
        names = [COORDINATOR, SEALER, *(shard_name(n) for n in range(1, shards + 1))]
        self.listeners = {
            name: self.network.listen((str(socket_path(RUNTIME_DIR, name)), 0)) for name in names
        }
        for node_id in range(1, shards + 1):
            self.listeners[f"tcp-{node_id}"] = self.network.listen(node_address(node_id))
            if self.is_secured:
                self._listen_to_people(node_id)
            self.set_node(node_id)

    def _addresses(self, shards: int) -> Mapping[str, Mapping[int, Endpoint]]:
        """Where the nodes are reached, by the listener that a client has come by."""
        ways = {INSIDE: None, OUTSIDE: WORKER, UNIX: HOSTS_USER} if self.is_secured else {"": None}
        return {
            listener: {each: Endpoint(*node_address(each, who)) for each in range(1, shards + 1)}
            for listener, who in ways.items()
        }

    def _listen_to_people(self, node_id: int) -> None:
        for name, identity in (f"sasl-{node_id}", WORKER), (kafka_name(node_id), HOSTS_USER):
            self.listeners[name] = self.network.listen(node_address(node_id, identity))

    def take_generation(self) -> int:
        """The next generation, durable."""
        self.generation += 1
        return self.generation

    def set_node(self, node_id: int) -> None:
        """Publish a node's current generation to the others."""
        port = node_address(node_id)[1]
        self.inheritance.nodes.set_node(Node(node_id, node_id, port, self.generation, 0))

    def leader_of(self, log: int) -> int:
        """The node that leads a log."""
        return node_of_log(log, self.config.node_ids)

    def go_down(self) -> None:
        """The supervisor dies, and all memory is lost."""
        if self.is_up:
            self.is_up = False
            self.network.close_listeners()
            for block in self._blocks:
                os.close(block.fd)
            self._blocks.clear()

    def lose_power(self) -> None:
        """Go down, and lose all data that is not durable."""
        self.boot += 1
        for disk in self.disks:
            disk.lose_power()
        if self.store_image is not None:
            self.store_image.write(self.directory / FILE_NAME)
            self.store_image = None

    def close(self) -> None:
        """Remove everything."""
        self.go_down()
        for disk in self.disks:
            disk.drop_descriptors()
        self._stop.close()
        shutil.rmtree(self.directory)


def new_store(template: Path, *, secures: bool = False) -> None:
    """A store as after a first start: created once, copied for each simulation. `secures`: with
    users and access rules."""
    template.mkdir(parents=True)
    Store.open(template / FILE_NAME).close()
    if secures:
        settle_in(template / FILE_NAME)
