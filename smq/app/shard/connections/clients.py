"""The connections of a shard, from accept to close."""

import socket
from collections.abc import Callable
from dataclasses import replace

from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.loop import Loop
from smq.app.process.machine import room_for
from smq.app.shard.connections.connection import Connection, ConnectionOwner
from smq.app.shard.connections.limited import look
from smq.model.config import Config
from smq.security.caller import Caller
from smq.security.principals import Peer
from smq.shard.shard import Shard

HOST_SEND_BYTES = 512 * 1024  # For a client on this host: it reads them while caches hold them.


class Clients:
    """By descriptor in `by_fd`. `owner` serves them.

    touch            this turn has touched a client
    kernel_used_ns   when a kernel last took a descriptor's input (monotonic)
    """

    def __init__(
        self,
        loop: Loop,
        shard: Shard,
        owner: ConnectionOwner,
        touch: Callable[[Connection], None],
        kernel_used_ns: Callable[[int], int],
    ) -> None:
        self._loop, self._config, self._owner = loop, shard.config, owner
        self._quotas, self._access = shard.quotas, shard.access
        self._touch, self._kernel_used_ns = touch, kernel_used_ns
        self._acceptor: Acceptor | None = None
        self.by_fd: dict[int, Connection] = {}

    def listen(self, listener: socket.socket) -> None:
        """Accept clients on a listening TCP socket."""
        self._acceptor = Acceptor(self._loop, listener, self._accepted)

    def _accepted(self, sock: socket.socket, address: tuple[str, int]) -> None:
        if len(self.by_fd) >= self._config.max_connections:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOST_SEND_BYTES)
        caller = Caller(*address[:2])
        caller.rights = self._access.rights_of(Peer(host=caller.host))
        connection = Connection(self._loop, sock, caller, self._owner)
        connection.last_used_ns = monotonic_ns()
        self.by_fd[connection.fd] = connection
        self._touch(connection)
        if self._quotas.is_on:
            look(connection, self._quotas)
            connection.throttle(self._quotas.connected(address[0], monotonic_ms()))
            connection.pause_if_full()

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on. Clients above a lowered maximum stay."""
        if config.max_connections > self._config.max_connections:
            room = room_for(config.max_connections)
            config = replace(config, max_connections=room)
        self._config = config

    def __len__(self) -> int:
        return len(self.by_fd)

    def stop(self) -> None:
        """Stop accepting."""
        if self._acceptor is not None:
            self._acceptor.stop()

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        del self.by_fd[connection.fd]

    def close_idle(self) -> None:
        """Close connections that have asked for nothing for too long."""
        idle_ns = self._config.connections_max_idle_ms * 1_000_000
        oldest = monotonic_ns() - idle_ns
        for connection in list(self.by_fd.values()):
            used_ns = max(connection.last_used_ns, self._kernel_used_ns(connection.fd))
            if used_ns < oldest and not connection.slots:
                connection.close()
