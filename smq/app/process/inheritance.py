"""The resources that a process inherits from the supervisor.

The supervisor owns memory and listening sockets, so they survive the death of a process, and its
successor continues with them. Each process gets only its share.

    shard i       the logs it serves, its TCP listeners, unix listeners "shard-i" and "attach-i",
                  and in the directory that all users may pass "kafka-i" and "door-i"
                  and a socket by which alone requests of clients reach the coordinator;
                  and where front and agent ask for their users, "front-i" and "agent-i"
    coordinator   unix listeners "coordinator" and "relays", and the socket to draw epochs by
    sealer        unix listener "sealer"
    front         the HTTP listener, the token of the console's actions, and sockets by which alone
                  it asks shards for users who have logged in
    agent         sockets that keep the ports of SeaweedMQ's services, and as the front those by
                  which it asks for its users
"""

import os
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from shm.segment import LogMemory
from shm.timings import Timings
from smq.model.catalog import Node, node_of_log
from smq.model.config import Config
from smq.security.listeners import Endpoint
from smq.security.principals import Principal
from smq.wire.attach import OPEN_SUFFIX

COORDINATOR = "coordinator"
RELAYS = "relays"  # Where the coordinator takes requests of clients, and whose they are.
SEALER = "sealer"
FRONT = "front"
AGENT = "agent"
SUPERVISOR = "supervisor"  # It is no process of an Inheritance, but has an end of a socket.


def shard_name(node_id: int) -> str:
    """The name of a node's process and of its unix listener."""
    return f"shard-{node_id}"


def attach_name(node_id: int) -> str:
    """The name of the unix listener where programs on this host attach to a node."""
    return f"attach-{node_id}"


def kafka_name(node_id: int) -> str:
    """The name of the unix listener where this host's users reach a node by Kafka's protocol."""
    return f"kafka-{node_id}"


def door_name(node_id: int) -> str:
    """The name of the unix listener where super users who are not the broker's user attach."""
    return f"door-{node_id}"


def front_name(node_id: int) -> str:
    """The name of the unix listener where the front asks a node for its users."""
    return f"front-{node_id}"


def agent_name(node_id: int) -> str:
    """The name of the unix listener where the agent asks a node for its users."""
    return f"agent-{node_id}"


class Stop:
    """Whether the supervisor wants this process to end.

    `fd` becomes readable at that moment, so that an event loop can wait for it.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._requested = False

    @property
    def fd(self) -> int:
        return self._read

    def on_signals(self, numbers: Iterable[signal.Signals]) -> None:
        """Let these signals request it."""
        for number in numbers:
            signal.signal(number, lambda _signal, _frame: self.request())
        # Wakes the main thread from epoll, even if another thread takes the signal.
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def request(self) -> None:
        """Ask the process to end. Safe in a signal handler; idempotent."""
        if not self._requested:
            self._requested = True
            os.write(self._write, b"\0")

    def requested(self) -> bool:
        """Whether the process was asked to end."""
        return self._requested

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self._read)
        os.close(self._write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """One process's share. In `generation` a shard opens its logs.

    `access` has users and access rules: whoever may read it could try their passwords, so that it
    is given to nobody else. `relays_fd` leads to the listener "relays", which has no name: no other
    process may say whose request it is. `front_fds` and `agent_fds` lead to the listeners of the
    nodes where front and agent say for whom they ask, likewise. `trusted` are the users of this
    host that may do everything, by id. `has_served` tells that the broker has been ready: a refusal
    would stop no start any more, but have this process restarted for ever.
    """

    config: Config
    data_dir: Path
    cluster_id: str
    runtime_dir: Path
    generation: int
    log_count: int
    nodes: ClusterBlock
    catalog: CatalogBlock
    access: CatalogBlock
    timings: Timings
    logs: dict[int, LogMemory]
    tcp_listeners: Mapping[int, Mapping[str, socket.socket]]
    addresses: Mapping[str, Mapping[int, Endpoint]]
    unix_listeners: Mapping[str, socket.socket]
    stop: Stop
    http_listener: socket.socket | None = None
    grpc_sockets: Mapping[str, socket.socket] = field(default_factory=dict)
    console_token: str = ""
    decoy_secret: bytes = b""
    trusted: Mapping[int, Principal] = field(default_factory=dict)
    relays_fd: int = -1
    front_fds: Mapping[int, int] = field(default_factory=dict)
    agent_fds: Mapping[int, int] = field(default_factory=dict)
    epoch_sockets: Mapping[str, socket.socket] = field(default_factory=dict)
    ready_fd: int = -1
    has_served: bool = False

    @property
    def relays_path(self) -> Path:
        """Where to connect to relay requests of clients to the coordinator."""
        if self.relays_fd < 0:
            return self.socket_path(COORDINATOR)
        return Path(f"/proc/self/fd/{self.relays_fd}")

    def socket_path(self, name: str) -> Path:
        """The unix listener of the process `name`."""
        return socket_path(self.runtime_dir, name)

    def known_nodes(self, listener: str = "") -> list[Node]:
        """All nodes, with the addresses of a listener; "" or an unknown one: of the first."""
        found = self.addresses.get(listener) or next(iter(self.addresses.values()))
        rack = self.config.broker_rack or None
        nodes = self.nodes.nodes()
        return [Node(node.id, *found[node.id], node.generation, rack) for node in nodes]

    def keep(self, name: str, node_id: int | None) -> "Inheritance":
        """In a fork: keep the share of the process `name`; close and unmap the rest."""
        names = _unix_names(name, node_id)
        served = {log for log in self.logs if node_of_log(log, self.config.node_ids) == node_id}
        share = replace(
            self,
            logs={log: self.logs[log] for log in served},
            tcp_listeners={i: each for i, each in self.tcp_listeners.items() if i == node_id},
            unix_listeners={k: each for k, each in self.unix_listeners.items() if k in names},
            http_listener=self.http_listener if name == FRONT else None,
            grpc_sockets=self.grpc_sockets if name == AGENT else {},
            console_token=self.console_token if name == FRONT else "",
            relays_fd=-1 if node_id is None else self.relays_fd,
            front_fds=self.front_fds if name == FRONT else {},
            agent_fds=self.agent_fds if name == AGENT else {},
            epoch_sockets={k: each for k, each in self.epoch_sockets.items() if k == name},
        )
        for fd in self._ways_closed_to(name, node_id):
            os.close(fd)
        for listener in self._sockets_of_others(name, node_id):
            listener.close()
        for log, memory in self.logs.items():
            if log not in served:
                os.close(memory.fd)
        self.logs.clear()  # Dropping the last reference unmaps them.
        return share

    def _ways_closed_to(self, name: str, node_id: int | None) -> Iterator[int]:
        """The descriptors by which a process `name` may ask for nobody."""
        if node_id is None and self.relays_fd >= 0:
            yield self.relays_fd
        if name != FRONT:
            yield from self.front_fds.values()
        if name != AGENT:
            yield from self.agent_fds.values()

    def _sockets_of_others(self, name: str, node_id: int | None) -> Iterator[socket.socket]:
        """What is listened on by other processes than `name`."""
        names = _unix_names(name, node_id)
        if self.http_listener is not None and name != FRONT:
            yield self.http_listener
        if name != AGENT:
            yield from self.grpc_sockets.values()
        others = (each for i, each in self.tcp_listeners.items() if i != node_id)
        yield from chain.from_iterable(each.values() for each in others)
        yield from (each for key, each in self.unix_listeners.items() if key not in names)
        yield from (each for key, each in self.epoch_sockets.items() if key != name)

    def stop_requested(self) -> bool:
        """Whether to drain and return from main."""
        return self.stop.requested()

    def report_ready(self) -> None:
        """Tell the supervisor, once, that this process serves."""
        if self.ready_fd >= 0:
            os.write(self.ready_fd, b"\1")
            os.close(self.ready_fd)


def _unix_names(name: str, node_id: int | None) -> set[str]:
    """The unix listeners of a process."""
    if node_id is None:
        return {name, RELAYS} if name == COORDINATOR else {name}
    doors = attach_name, kafka_name, door_name, front_name, agent_name
    return {name, *(each(node_id) for each in doors)}


def socket_path(runtime_dir: Path, name: str) -> Path:
    """The socket path of the process `name`."""
    return runtime_dir / f"{name}.sock"


def open_dir(runtime_dir: Path) -> Path:
    """The directory of the sockets that all users of this host may reach, if rights say what they
    may do there."""
    return runtime_dir.with_name(runtime_dir.name + OPEN_SUFFIX)
