"""How a client reaches its broker: what everything it makes is made with."""

from collections.abc import Callable
from dataclasses import dataclass

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.door.door import Door
from smq.client.facts import BrokerFacts, broker_facts
from smq.client.kafka.cluster import DEADLINE_SECONDS, METADATA_MAX_AGE_S, Cluster
from smq.client.reference import Payloads


@dataclass(frozen=True, slots=True)
class Reach:
    """Bootstrap addresses, and a way to open doors to the nodes when the broker is on this host.

    open_door           by node id; raises DoorUnavailable
    metadata_max_age_s  after which topics are asked about again, unasked: they may have grown
    clock               what everything made with this tells the time by
    """

    bootstrap: str
    open_door: Callable[[int], Door] | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    metadata_max_age_s: float = METADATA_MAX_AGE_S
    clock: Clock = SYSTEM_CLOCK

    def cluster(self) -> Cluster:
        """A view of the cluster, and connections, of one's own."""
        return Cluster(self.bootstrap, self.deadline_seconds, self.clock)

    def payloads(self) -> Payloads:
        """The broker's filer, which is looked for when it is first used."""
        return Payloads(self._facts, self.clock)

    def _facts(self) -> BrokerFacts:
        with self.cluster() as cluster:
            return cluster.retrying(lambda: broker_facts(cluster))
