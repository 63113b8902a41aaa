"""Finds the broker behind an address, and whether it is on this host.

An address is bootstrap addresses, a data directory or a unix socket. A broker is on this host if
its runtime directory, by the path that the broker itself gives, has a socket under the cluster's id
that lets us in (`smq.client.door.door`). A broker on another host has no such socket here, or
another one. Only Linux is asked for it: other systems use the wire.
"""

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from shm.peer import ROOT
from shm.system import why_wire_only
from smq.client.arguments import text
from smq.client.door.door import Door, DoorUnavailable
from smq.client.errors import BrokerUnavailable, ClosedUnanswered
from smq.client.facts import broker_facts
from smq.client.kafka.cluster import DEADLINE_SECONDS, Cluster, addresses_of
from smq.client.reach import Reach
from smq.client.secure.opening import is_path
from smq.client.secure.security import PLAINTEXT, Security
from smq.model.errors import BrokerError
from smq.model.named_files import read_named

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
    bootstrap, security = way_to(address, security)
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


class Way(NamedTuple):
    """Bootstrap addresses, and how connections to them are made."""

    bootstrap: str
    security: Security


def way_to(address: str | os.PathLike[str], security: Security = PLAINTEXT) -> Way:
    """The way to the broker at bootstrap addresses, of a data directory or behind a unix socket.

    A data directory's broker is reached by its unix sockets, where it knows us by our user, unless
    `security` says who we are: that is told to nobody whom another user's file names. Raises
    TypeError, ValueError, BrokerUnavailable.
    """
    if not _is_place(address):
        return Way(bootstrap_of(address), security)
    path = Path(address).absolute()
    if _is_socket(path):
        if not security.is_plain:
            raise ValueError(f"{path} is a unix socket: there is neither TLS nor a login")
        return Way(str(path), replace(security, socket_owner=path.parent.stat().st_uid))
    if security.mechanism:
        _check_ours(path)
    found = _status_of(path)
    sockets = _sockets_of(found) if security.is_plain and not why_wire_only() else ()
    if sockets:
        owner = (path / STATUS_NAME).stat().st_uid
        return Way(",".join(sockets), replace(security, socket_owner=owner))
    return Way(str(found["bootstrap"]), security)


def cluster_at(
    address: str | os.PathLike[str],
    security: Security = PLAINTEXT,
    timeout_s: float = DEADLINE_SECONDS,
) -> Cluster:
    """The cluster there, connected. Raises TypeError, ValueError, BrokerError."""
    way = way_to(address, security)
    return Cluster(way.bootstrap, timeout_s, security=way.security)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _check_ours(data_dir: Path) -> None:
    """Raises ValueError if another user than root may have said where the broker is: a password
    would go there."""
    for path in (data_dir, data_dir / STATUS_NAME):
        try:
            owner = path.stat().st_uid  # On Windows everything is root's.
        except OSError:  # Nobody says where it is.
            return
        if owner != ROOT and sys.platform != "win32" and owner != os.geteuid():
            raise ValueError(
                f"{path} belongs to user {owner}, who would be sent the login; give the broker's "
                "address instead of its data directory"
            )


def _sockets_of(found: Mapping[str, Any]) -> Sequence[str]:
    """The unix sockets of a broker, if they are here: a data directory may be another host's."""
    sockets = found.get("sockets")
    if not isinstance(sockets, list):
        return ()
    is_here = [isinstance(each, str) and _may_be_asked(each) for each in sockets]
    return sockets if all(is_here) else ()


def _may_be_asked(path: str) -> bool:
    return is_path(path) and "," not in path and os.access(path, os.W_OK)


def bootstrap_of(address: str | os.PathLike[str]) -> str:
    """The addresses that are given, or those of the broker that serves a data directory.

    Raises TypeError, ValueError, BrokerUnavailable.
    """
    if not _is_place(address):
        addresses_of(str(address))
        return str(address)
    return str(_status_of(Path(address))["bootstrap"])


def _is_place(address: str | os.PathLike[str]) -> bool:
    """Whether it names something in the file system. Raises TypeError, ValueError."""
    if not isinstance(address, str | os.PathLike):
        raise TypeError(f"address is text or a path, not {type(address).__name__}")
    if not address:
        raise ValueError("address is empty; it should be host:port, or a broker's data directory")
    is_directory = os.path.isdir(address)  # noqa: PTH112  (Not every text can be a path.)
    return not isinstance(address, str) or is_directory or os.sep in address


def _status_of(path: Path) -> dict[str, Any]:
    """What a broker says in its data directory. Raises BrokerUnavailable."""
    try:
        found = json.loads(read_named(path / STATUS_NAME))
        return {**found, "bootstrap": found["bootstrap"]}
    except PermissionError as error:
        raise BrokerUnavailable(
            f"the data directory {path} is another user's, who alone reads it; give the broker's "
            "address, or the path of its unix socket, kafka-<node>.sock below runtime.dir"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokerUnavailable(f"no broker serves the data directory {path}") from error


def is_served_by(data_dir: Path, cluster_id: str) -> bool:
    """Whether a data directory of this host, which this user may read, is that of a running broker
    of this cluster: a directory of another host may have the same path."""
    try:
        return bool(_status_of(data_dir).get("cluster_id") == cluster_id)
    except BrokerUnavailable:
        return False


def _doors_of(cluster: Cluster) -> "partial[Door] | None":
    if why_wire_only():
        return None
    try:
        facts = cluster.retrying(lambda: broker_facts(cluster))
        runtime_dir = facts.settings.get("runtime.dir")
        if not runtime_dir:
            return None
        owner = cluster.security.socket_owner
        open_door = partial(_open_door, Path(runtime_dir), facts.cluster_id, owner)
        node_id, _ = cluster.some_broker()
        open_door(node_id).close()
    except ClosedUnanswered:  # Nor does it answer what is asked later.
        raise
    except (BrokerError, DoorUnavailable):
        return None
    return open_door


def _open_door(runtime_dir: Path, cluster_id: str, owner: int | None, node_id: int) -> Door:
    return Door.open(runtime_dir, node_id, cluster_id, owner=owner)
