"""Finds the broker behind an address, and whether it is on this host.

An address is bootstrap addresses or a data directory. A broker is on this host if its runtime
directory, by the path that the broker itself gives, has a socket under the cluster's id that lets
us in (`smq.client.door.door`). A broker on another host has no such socket here, or another one.
Only Linux is asked for it: other systems use the wire.
"""

import json
import os
from functools import partial
from pathlib import Path

from shm.system import why_wire_only
from smq.client.arguments import text
from smq.client.door.door import Door, DoorUnavailable
from smq.client.errors import BrokerUnavailable
from smq.client.facts import broker_facts
from smq.client.kafka.cluster import Cluster, addresses_of
from smq.client.reach import Reach
from smq.client.secure.security import PLAINTEXT, Security
from smq.model.errors import BrokerError

AUTO = "auto"
SHARED_MEMORY = "shared memory"
KAFKA = "kafka"
TRANSPORTS = (AUTO, SHARED_MEMORY, KAFKA)

STATUS_NAME = "status.json"  # A running broker keeps it in its data directory.


def reach_of(
    address: str | os.PathLike[str],
    transport: str,
    timeout_s: float,
    metadata_max_age_s: float,
    security: Security = PLAINTEXT,
) -> Reach:
    """How to reach a broker. Raises BrokerUnavailable, TypeError, ValueError."""
    if text("transport", transport) not in TRANSPORTS:
        raise ValueError(f"transport is {transport!r}; it should be one of {TRANSPORTS}")
    bootstrap = bootstrap_of(address)
    with Cluster(bootstrap, timeout_s, security=security) as cluster:
        open_door = None if transport == KAFKA else _doors_of(cluster)
        node_id = 1 if open_door is None else cluster.some_broker()[0]
    if open_door is None and transport == SHARED_MEMORY:
        reason = why_wire_only()
        raise BrokerUnavailable(
            f"the broker at {address} cannot be reached by shared memory"
            + (f": {reason}" if reason else "")
        )
    return Reach(
        bootstrap, open_door, timeout_s, metadata_max_age_s, node_id=node_id, security=security
    )


def bootstrap_of(address: str | os.PathLike[str]) -> str:
    """The addresses that are given, or those of the broker that serves a data directory.

    Raises TypeError, ValueError, BrokerUnavailable.
    """
    if not isinstance(address, str | os.PathLike):
        raise TypeError(f"address is text or a path, not {type(address).__name__}")
    if not address:
        raise ValueError("address is empty; it should be host:port, or a broker's data directory")
    is_directory = os.path.isdir(address)  # noqa: PTH112  (Not every text can be a path.)
    if isinstance(address, str) and not is_directory and os.sep not in address:
        addresses_of(address)
        return address
    path = Path(address)
    try:
        found = json.loads((path / STATUS_NAME).read_text())["bootstrap"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokerUnavailable(f"no broker serves the data directory {path}") from error
    return str(found)


def _doors_of(cluster: Cluster) -> "partial[Door] | None":
    if why_wire_only():
        return None
    try:
        facts = cluster.retrying(lambda: broker_facts(cluster))
        runtime_dir = facts.settings.get("runtime.dir")
        if not runtime_dir:
            return None
        open_door = partial(_open_door, Path(runtime_dir), facts.cluster_id)
        node_id, _ = cluster.some_broker()
        open_door(node_id).close()
    except (BrokerError, DoorUnavailable):
        return None
    return open_door


def _open_door(runtime_dir: Path, cluster_id: str, node_id: int) -> Door:
    return Door.open(runtime_dir, node_id, cluster_id)
