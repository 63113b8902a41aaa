"""What all participants of a simulation share: time, network, host, processes, and the ledger.

Clients report here what they were told, and it is compared at once with what was promised.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from shm.kernels.base.words import P_HIGH_WATERMARK
from smq.app.process.inheritance import shard_name
from smq.model.catalog import Catalog, Topic
from smq.testing.simulation.clock import MS, SimulatedClock
from smq.testing.simulation.host import Host
from smq.testing.simulation.leaders import Leaders
from smq.testing.simulation.ledger import Broken, Incarnation, Ledger, said
from smq.testing.simulation.network import Network
from smq.testing.simulation.people import Identity, identity_of
from smq.testing.simulation.permits import Permits
from smq.testing.simulation.processes import CoordinatorProcess, ShardProcess, SimProcess

if TYPE_CHECKING:
    from shm.catalog import CatalogBlock

TOPICS = 3
LATE_MS = 400  # The longest delivery of an answer over a slow connection.
LOST_MS = 500  # As long a request whose answer was lost may be on its way.


def name_of(topic: int) -> str:
    """The name of the n-th topic."""
    return f"topic-{topic}"


class Environment:
    """One simulation, without those who act in it. `directory` has only a store, with users if it
    is secured."""

    def __init__(self, seed: int, directory: Path, *, secures: bool = False) -> None:
        self.seed, self.secures = seed, secures
        self.permits = Permits()
        self.clock = SimulatedClock()
        self.chance = Random(f"world {seed}")  # noqa: S311
        self.network = Network(self.clock, seed)
        logs = self.chance.choice((1, 1, 2, 2, 3))
        self.host = Host(directory, self.clock, self.network, self.chance, logs)
        if secures:
            self.host.secure(Random(f"secured {seed}"))  # noqa: S311
        self.processes: dict[str, SimProcess] = {}
        self.ledger = Ledger()
        self.leaders = Leaders(self.ledger)
        self.trail: list[str] = []
        self.tells_details = False
        self._disturbed_ns = 0
        self._catalog = Catalog("", 0, {})
        self._catalog_version = 0
        self._catalog_block: CatalogBlock | None = None

    def say(self, what: str) -> None:
        """Log an event for a failure's report."""
        self.trail.append(f"[{self.clock.elapsed_ms():9.3f}] {what}")

    def detail(self, what: Callable[[], str]) -> None:
        """Log a detail, if the report is wanted."""
        if self.tells_details:
            self.say(what())

    def say_notices(self) -> None:
        """Log the processes' notices to the operator."""
        for process in self.processes.values():
            for line in process.said:
                told = line.strip().replace(f"{self.host.directory}/", "")
                self.trail.append(f"{process.name} says: {told}")

    def disturb(self, ms: float) -> None:
        """For this long, clients may learn of anything late."""
        self._disturbed_ns = max(self._disturbed_ns, self.clock.now_ns + int(ms * MS))

    @property
    def quiet_ns(self) -> int:
        """Requests whose answers were lost before this time have no effect any more."""
        past_ns = self.clock.now_ns - LOST_MS * MS
        return past_ns if self._disturbed_ns < past_ns else 0

    def late_ms(self, since_ns: int) -> float:
        """How long something takes that was possible since then, but for disturbances."""
        return (self.clock.now_ns - max(since_ns, self._disturbed_ns)) / MS

    def identity_of(self, client: str) -> Identity | None:
        """Who a client is that may do everything; None: nobody asks."""
        return identity_of(client, self.seed) if self.secures else None

    def topic(self, name: str) -> Topic | None:
        """The topic as in the catalog now."""
        return self._catalog.by_name.get(name) if self._reads_catalog() else None

    def log_of(self, incarnation: Incarnation, partition: int) -> int:
        """The log in which a partition is led, by the newest catalog that could be read."""
        self._reads_catalog()
        topic = self._catalog.by_name.get(incarnation.topic.name)
        is_its = topic is not None and topic.id == incarnation.topic.id
        return (topic if topic is not None and is_its else incarnation.topic).logs[partition]

    def _reads_catalog(self) -> bool:
        """Whether there is a catalog now; `_catalog` is the newest one."""
        block = self.host.inheritance.catalog
        if not self.host.is_up or not block.version():
            return False
        if self._catalog_block is not block or block.has_moved(self._catalog_version):
            self._catalog_version, published = block.read()
            self._catalog_block, self._catalog = block, Catalog.decode(published)
        return True

    def check_leaders(self, process: SimProcess) -> None:
        """A process has had a turn. Raises Broken."""
        if isinstance(process, CoordinatorProcess):
            if self._reads_catalog():
                self.leaders.published(self._catalog)
        elif isinstance(process, ShardProcess):
            self.leaders.turned(process.shard)

    def compacts(self, name: str) -> bool:
        """Whether topics of a name are compacted: two names are, in some runs with sealing."""
        return self.host.compacts and name != name_of(0)

    def leading_process(self, log: int) -> ShardProcess | None:
        """The process that leads a log; None: it is dead."""
        process = self.processes.get(shard_name(self.host.leader_of(log)))
        return process if isinstance(process, ShardProcess) else None

    def acked(
        self, incarnation: Incarnation, partition: int, values: list[bytes], offset: int
    ) -> None:
        """A producer got an ack: its records are visible, at least until the next failure."""
        for i, value in enumerate(values):
            incarnation.claim(partition, offset + i, value, "what is acked")
            self.ledger.acked_ns[value] = self.clock.now_ns
        topic = incarnation.topic
        process = self.leading_process(self.log_of(incarnation, partition))
        if incarnation.is_dying or process is None:
            return
        led = process.shard.by_number(topic.partition_numbers[partition])
        if led is None or self.ledger.is_damaged:
            return
        shown = int(led.log.partitions.table[led.slot, P_HIGH_WATERMARK])
        if shown < offset + len(values) and incarnation.claims[partition]:
            raise Broken(
                f"{incarnation.where(partition)}: offset {offset + len(values) - 1} is acked, "
                f"and what is visible ends at {shown}"
            )

    def fetched(self, seen: list[bytes], sent_ns: int, wait_ms: int, least: int) -> None:
        """A consumer got these records. They must not be late if they existed."""
        now_ns = self.clock.now_ns
        if not wait_ms or least > 1 or now_ns < sent_ns + wait_ms * MS:
            return
        for value in seen:
            late_ms = self.late_ms(max(self.ledger.acked_ns.get(value, now_ns), sent_ns))
            if late_ms > LATE_MS:
                raise Broken(
                    f"a fetch that waits for {wait_ms} ms is told of {said(value)} when its time "
                    f"is over, {late_ms:.0f} ms after the record was there"
                )
