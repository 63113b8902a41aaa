"""How a client reaches its broker. A client makes everything with its Reach."""

from collections.abc import Callable
from dataclasses import dataclass

from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.door.door import Door
from smq.client.facts import BrokerFacts, broker_facts
from smq.client.kafka.cluster import DEADLINE_SECONDS, METADATA_MAX_AGE_S, Cluster
from smq.client.reference import Payloads
from smq.client.secure.security import PLAINTEXT, Security


@dataclass(frozen=True, slots=True)
class Reach:
    """Bootstrap addresses; and, if the broker is on this host, how to open doors to its nodes.

    open_door           by node id; raises DoorUnavailable
    node_id             one of the broker's nodes
    security            how connections are made
    metadata_max_age_s  how often topics are asked about again: they may have got more partitions
    clock               the clock of everything that is made with this
    """

    bootstrap: str
    open_door: Callable[[int], Door] | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    metadata_max_age_s: float = METADATA_MAX_AGE_S
    clock: Clock = SYSTEM_CLOCK
    node_id: int = 1
    security: Security = PLAINTEXT

    def cluster(self) -> Cluster:
        """A new view of the cluster, with connections of its own."""
        return Cluster(self.bootstrap, self.deadline_seconds, self.clock, self.security)

    def payloads(self) -> Payloads:
        """The broker's filer. It is located at its first use."""
        return Payloads(self._facts, self.clock, self.deadline_seconds)

    def _facts(self) -> BrokerFacts:
        with self.cluster() as cluster:
            return cluster.retrying(lambda: broker_facts(cluster))
