"""A client's TLS connection with the face of a socket: what is read and written is plain.

    recv ─▶ TlsEngine ─▶ recv_into        send, sendmsg ─▶ TlsEngine ─▶ send

At most one piece of ciphertext waits for the socket: while it does, nothing more is encrypted. What
was received waits as ciphertext while its connection takes no requests.
"""

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property

from smq.app.process.clock import monotonic_ns
from smq.security.tls import WRITE_BYTES_MAX, TlsEngine

RECEIVE_BYTES = 256 * 1024  # Of ciphertext at once. It is copied into OpenSSL's memory.
HANDSHAKE_BYTES = 16 * 1024  # Before the handshake is complete.
OWN_BYTES_MAX = 64 * 1024  # Of TLS itself, which the client does not take: new keys.
# What all connections together may take of a turn before their logins: with what comes to it, such
# as sending their answers, nobody else waits for more than 10 ms.
NEWCOMERS_NS = 4_000_000


class SharedTurn:
    """What the connections of a shard share: the time that this turn has for handshakes and
    logins, of which the first is always taken, and memory to receive TLS into.

    now_ns   the clock that measures steps of handshakes and logins
    """

    def __init__(self) -> None:
        self.now_ns = monotonic_ns
        self._spent_ns, self._is_counting = 0, False

    @cached_property
    def room(self) -> memoryview:
        """Where one of them receives ciphertext, which it takes at once."""
        return memoryview(bytearray(RECEIVE_BYTES))

    def begin_turn(self) -> None:
        """A turn of the loop begins."""
        self._spent_ns = 0

    @property
    def is_spent(self) -> bool:
        """Whether further handshakes and logins wait for the next turn."""
        return self._spent_ns >= NEWCOMERS_NS

    def spend(self, work: Callable[[], None]) -> None:
        """Do a step of a handshake or a login; one within another counts once."""
        if self._is_counting:
            work()
            return
        began_ns, self._is_counting = self.now_ns(), True
        try:
            work()
        finally:
            self._spent_ns += self.now_ns() - began_ns
            self._is_counting = False


class TlsSocket:
    """One connection. Failures of TLS are OSErrors, as those of sockets are.

    received_bytes   of ciphertext, since the connection began
    is_due           a turn is due in which more is read: see `wants_turn`
    has_failed       the handshake ended in an error
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, shared: SharedTurn) -> None:
        self._socket, self._shared = sock, shared
        self._engine = TlsEngine(context)
        self._unsent = memoryview(b"")
        self._has_ended = self.is_due = self.has_failed = False
        self.received_bytes = 0

    @property
    def is_established(self) -> bool:
        """Whether the handshake is complete."""
        return self._engine.is_established

    @property
    def wants_turn(self) -> bool:
        """Whether there is more to read, which the socket will not announce."""
        return not self._engine.is_drained

    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the client, in DER, once the handshake is complete."""
        return self._engine.peer_certificate()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    # --- receiving -------------------------------------------------------------------------------

    def recv_into(self, view: memoryview) -> int:
        """As of a socket. Raises BlockingIOError also while the handshake goes on."""
        count = self._read(view)
        if not count and self._engine.is_drained:
            self._send_own()
            self._receive()
            count = self._read(view)
        self._send_own()
        if count > 0:
            return count
        if count < 0 or self._has_ended:
            return 0
        raise BlockingIOError

    def _receive(self) -> None:
        size = RECEIVE_BYTES if self.is_established else HANDSHAKE_BYTES
        room = self._shared.room
        count = self._socket.recv_into(room, size)
        self.received_bytes += count
        self._has_ended = not count
        self._engine.receive(room[:count])

    def _read(self, view: memoryview) -> int:
        """What was received, decrypted; 0: nothing; -1: the client has ended the connection."""
        engine = self._engine
        if not engine.is_established and not engine.is_drained and not self._shared.is_spent:
            try:
                self._shared.spend(engine.shake_hands)
            except ssl.SSLError:
                self.has_failed = True
                self._send_own()  # It says why.
                raise
        if not engine.is_established:
            return 0
        if engine.unsent_bytes > OWN_BYTES_MAX:
            raise ConnectionError("a client that asks for new keys does not take them")
        return engine.read_into(view)

    # --- sending ---------------------------------------------------------------------------------

    def send(self, data: bytes | memoryview) -> int:
        """As of a socket."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: Sequence[bytes | memoryview]) -> int:
        """As of a socket: how much was taken. It may wait here as ciphertext: see `flush`."""
        self.flush()
        taken = 0
        for buffer in buffers:
            with memoryview(buffer) as view:
                at = 0
                while at < len(view) and self._engine.unsent_bytes < WRITE_BYTES_MAX:
                    at += self._engine.write(view[at:])
                taken += at
                if at < len(view):
                    break
        self._send_own()
        return taken

    def flush(self) -> None:
        """Send the ciphertext that waits. Raises BlockingIOError if the socket does not take it."""
        while self._unsent or self._engine.unsent_bytes:
            if not self._unsent:
                self._unsent = memoryview(self._engine.take_sent())
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _send_own(self) -> None:
        """As much as the socket takes now."""
        if self._unsent or self._engine.unsent_bytes:
            with suppress(OSError):  # A failure is seen by who reads or writes next.
                self.flush()

    def close(self) -> None:
        """Say that nothing follows, if the client may hear it and the socket takes that, and close
        it."""
        if not self._has_ended:
            self._engine.end()
            self._send_own()
        self._socket.close()
