"""Programs of this host that attach to a shard, until they have a session or are sent away.

hello ─(credentials, cluster, node, limits)→ answer with descriptors → a session
"""

import os
import select
import socket
from collections.abc import Container, Iterable
from typing import Protocol

from shm.peer import PeerIdentity, peer_of
from shm.session import SessionMemory
from smq.app.process.acceptor import Acceptor
from smq.app.process.loop import Loop
from smq.model.config import FRAME_OVERHEAD_BYTES, Config
from smq.model.errors import PeerError
from smq.model.setting import KiB, MiB
from smq.wire.attach import HELLO_BYTES, AttachReply, Hello

INBOX_BYTES_MIN = 4 * MiB  # Several batches of a megabyte in flight; unused pages take no memory.
ANSWERS_BYTES = 256 * KiB  # To 2,000 requests. A client that takes none is no longer served.
HELLO_MS_MAX = 1000
ATTACHING_MAX = 64  # Programs that have sent no hello yet: each takes a descriptor.


class SessionHolder(Protocol):
    """Has the sessions."""

    def count(self) -> int:
        """The number of attached programs."""

    def attached(self, sock: socket.socket, pid: int, memory: SessionMemory) -> None:
        """A program has its descriptors."""

    def note(self, sentence: str) -> None:
        """Tell the operator."""


def inbox_bytes(config: Config) -> int:
    """The inbox's size: twice the largest batch with its request, or several smaller ones.

    It leaves a compressing producer room for growth, a sixth at most. Topics may allow larger
    batches than the broker does: these do not fit, since kernels take no such inbox, and their
    senders use a socket.
    """
    batch = config.message_max_bytes + config.message_max_bytes // 6
    request = batch + FRAME_OVERHEAD_BYTES + 64 * KiB
    return max(INBOX_BYTES_MIN, 1 << (2 * request - 1).bit_length())


class Attaching:
    """Those who attach to one shard. `descriptors` go to each of them, beside its own memory."""

    def __init__(
        self,
        loop: Loop,
        identity: Hello,
        config: Config,
        descriptors: list[int],
        holder: SessionHolder,
    ) -> None:
        self._loop, self._identity = loop, identity
        self._descriptors, self._holder = descriptors, holder
        self.waiting: set[socket.socket] = set()
        self._acceptors: list[Acceptor] = []
        self._trusted: Container[int] = ()
        self.take_settings(config)

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on. Attached programs keep theirs."""
        self._inbox_bytes, self._max = inbox_bytes(config), config.max_sessions

    def listen(self, listeners: Iterable[socket.socket], trusted: Container[int] = ()) -> None:
        """Accept clients on listening unix sockets: of our own user, of root and of these users,
        who may do everything. What is mapped shows all partitions of a log, and stays mapped."""
        self._trusted = trusted
        self._acceptors += (Acceptor(self._loop, each, self._accepted) for each in listeners)

    def stop(self) -> None:
        """Let nobody in."""
        for acceptor in self._acceptors:
            acceptor.stop()
        for sock in list(self.waiting):
            self._turn_away(sock)

    def _accepted(self, sock: socket.socket, _address: str) -> None:
        if len(self.waiting) >= ATTACHING_MAX:
            sock.close()
            return
        self.waiting.add(sock)
        self._loop.register(sock.fileno(), select.EPOLLIN, lambda _: self._greet(sock))
        self._loop.call_later(HELLO_MS_MAX, lambda: self._give_up(sock))

    def _turn_away(self, sock: socket.socket) -> None:
        """Refuse this program."""
        if sock in self.waiting:
            self.waiting.discard(sock)
            self._loop.unregister(sock.fileno())
            sock.close()

    def _greet(self, sock: socket.socket) -> None:
        """Answer a hello."""
        peer = peer_of(sock)
        try:
            said = sock.recv(HELLO_BYTES)
            refusal = self._refusal(Hello.decode(said), peer) if said else ""
            if refusal:
                self._may_not(sock, refusal)
                sock.send(AttachReply(0, refusal).encode())
            elif said:  # Else it has hung up.
                self._begin(sock, peer.pid)
        except OSError:
            pass
        except PeerError as reason:
            self._may_not(sock, str(reason))
        finally:
            self._turn_away(sock)

    def _give_up(self, sock: socket.socket) -> None:
        if sock in self.waiting:
            self._may_not(sock, f"it has said nothing for {HELLO_MS_MAX} ms")
            self._turn_away(sock)

    def _may_not(self, sock: socket.socket, reason: str) -> None:
        pid, uid = peer_of(sock)
        self._holder.note(f"process {pid} of user {uid} may not attach: {reason}")

    def _refusal(self, hello: Hello, peer: PeerIdentity) -> str:
        if not (peer.is_ours or peer.uid in self._trusted):
            return "this broker belongs to another user"
        if hello != self._identity:
            return "this is another broker or node"
        if self._holder.count() >= self._max:
            return f"{self._max} programs are attached already, as many as max.sessions allows"
        return ""

    def _begin(self, sock: socket.socket, pid: int) -> None:
        """Hand over the descriptors. Raises OSError if that is not possible at once."""
        memory = SessionMemory.create(self._inbox_bytes, ANSWERS_BYTES)
        descriptors = [memory.fd, *self._descriptors]
        try:
            socket.send_fds(sock, [AttachReply(len(descriptors)).encode()], descriptors)
        finally:
            os.close(memory.fd)
        self.waiting.discard(sock)
        self._loop.unregister(sock.fileno())
        self._holder.attached(sock, pid, memory)
