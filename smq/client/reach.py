"""How a client reaches its broker: what everything it makes is made with."""

from collections.abc import Callable
from dataclasses import dataclass

from smq.client.cluster import DEADLINE_SECONDS, Cluster
from smq.client.door import Door


@dataclass(frozen=True, slots=True)
class Reach:
    """Bootstrap addresses, and a way to open doors to the nodes when the broker is on this host.

    open_door  by node id; raises DoorUnavailable
    """

    bootstrap: str
    open_door: Callable[[int], Door] | None = None
    deadline_seconds: float = DEADLINE_SECONDS

    def cluster(self) -> Cluster:
        """A view of the cluster, and connections, of one's own."""
        return Cluster(self.bootstrap, self.deadline_seconds)
