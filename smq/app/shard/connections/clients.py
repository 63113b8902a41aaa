"""The connections of a shard, from accept to close."""

import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from shm.peer import peer_of
from smq.app.process.acceptor import Acceptor, Welcome
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.loop import Loop
from smq.app.process.machine import room_for
from smq.app.shard.connections.connection import Connection, ConnectionOwner
from smq.app.shard.connections.entrance import OPEN, Entrance
from smq.app.shard.connections.limited import look
from smq.app.shard.connections.tls_socket import SharedTurn, TlsSocket
from smq.model.config import Config
from smq.security.addresses import written
from smq.security.caller import Caller
from smq.shard.shard import Shard

LOOPBACK = "127.0.0.1"
USER_PART = 4  # One part in this many of all connections may be one user's of this host.
TRUSTED_ROOM = 16  # Connections beyond the maximum, of users who may do everything, or the front.
HOST_SEND_BYTES = 512 * 1024  # For a client on this host: it reads them while caches hold them.


class Clients:
    """By descriptor in `by_fd`. `owner` serves them.

    welcome          a client has come through an entrance
    shared           what connections share in a turn
    kernel_used_ns   when a kernel last took a descriptor's input (monotonic)
    """

    def __init__(
        self,
        loop: Loop,
        shard: Shard,
        owner: ConnectionOwner,
        welcome: Callable[[Connection, Entrance], None],
        kernel_used_ns: Callable[[int], int],
    ) -> None:
        self._loop, self._config, self._owner = loop, shard.config, owner
        self._quotas = shard.quotas
        self._welcome, self._kernel_used_ns = welcome, kernel_used_ns
        self._acceptors: list[Acceptor] = []
        self.shared = SharedTurn()
        self.by_fd: dict[int, Connection] = {}
        self._users: dict[int, int] = {}  # By descriptor, of connections by unix sockets, and …
        self._counts: Counter[int] = Counter()  # … how many each user has.

    def listen(
        self,
        listener: socket.socket,
        entrance: Entrance = OPEN,
        is_welcome: Welcome = lambda _: True,
    ) -> None:
        """Accept clients on a listening socket; those that are not welcome are closed."""
        take = self._accepted_here if entrance.is_unix else self._accepted
        accepted = partial(take, entrance)
        self._acceptors.append(Acceptor(self._loop, listener, accepted, is_welcome))

    def _accepted_here(self, entrance: Entrance, sock: socket.socket, _address: str) -> None:
        """On a unix socket. Rules that name a host mean this one by its loopback address."""
        uid, users = peer_of(sock).uid, entrance.users or {}
        if not self._has_room_for(uid, is_trusted=uid in users or entrance.is_front):
            sock.close()
            return
        self._users[sock.fileno()] = uid
        self._counts[uid] += 1
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOST_SEND_BYTES)
        self._serve(Connection(self._loop, sock, Caller(LOOPBACK), self._owner), entrance)

    def _has_room_for(self, uid: int, *, is_trusted: bool) -> bool:
        """Whether a user of this host may have another connection. Who is trusted may when nobody
        else may: it is the way back in. All others have a share each."""
        count, count_max = len(self.by_fd), self._config.max_connections
        if is_trusted:
            return count < count_max + TRUSTED_ROOM
        return count < count_max and self._counts[uid] < max(1, count_max // USER_PART)

    def _accepted(self, entrance: Entrance, sock: socket.socket, address: tuple[str, int]) -> None:
        if len(self.by_fd) >= self._config.max_connections:
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, HOST_SEND_BYTES)
        caller, context = Caller(written(address[0]), address[1]), entrance.context
        spoken = sock if context is None else TlsSocket(sock, context(), self.shared)
        self._serve(Connection(self._loop, spoken, caller, self._owner), entrance)

    def _serve(self, connection: Connection, entrance: Entrance) -> None:
        connection.last_used_ns = monotonic_ns()
        self.by_fd[connection.fd] = connection
        self._welcome(connection, entrance)
        if self._quotas.is_on:
            look(connection, self._quotas)
            connection.throttle(self._quotas.connected(connection.caller.host, monotonic_ms()))
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
        for acceptor in self._acceptors:
            acceptor.stop()

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        del self.by_fd[connection.fd]
        uid = self._users.pop(connection.fd, None)
        if uid is not None:
            self._counts[uid] -= 1
            if not self._counts[uid]:
                del self._counts[uid]

    def close_idle(self) -> None:
        """Close connections that have asked for nothing for too long."""
        idle_ns = self._config.connections_max_idle_ms * 1_000_000
        oldest = monotonic_ns() - idle_ns
        for connection in list(self.by_fd.values()):
            used_ns = max(connection.last_used_ns, self._kernel_used_ns(connection.fd))
            if used_ns < oldest and not connection.slots:
                connection.close()
