"""Opens sockets to brokers: plain, or in TLS.

A broker that speaks so slowly that a handshake never ends holds nobody longer than `seconds_max`.
"""

import socket
import ssl
from typing import TYPE_CHECKING

from smq.client.clock import Clock
from smq.client.errors import AuthenticationFailed
from smq.client.secure.security import TlsFiles
from smq.client.wait import READABLE, WRITABLE, ready

if TYPE_CHECKING:
    from smq.client.secure.tls_stream import TlsStream

PORT_MAX = 65_535


def connected(host: str, port: int, seconds_max: float) -> socket.socket:
    """A socket to a broker. Raises OSError, also if what a broker named is no address."""
    if not 0 < port <= PORT_MAX:  # The resolver would take some of its bits.
        raise OSError("that is no address")
    try:
        return socket.create_connection((host, port), seconds_max)
    except ValueError as error:  # No name of a host can be so.
        raise OSError("that is no address") from error


def in_tls(
    sock: socket.socket, host: str, files: TlsFiles, seconds_max: float, clock: Clock
) -> "TlsStream":
    """The same connection in TLS, its broker's certificate verified.

    Raises AuthenticationFailed (also for a file that cannot be used), OSError; then the socket is
    closed.
    """
    from smq.client.secure.tls_context import context_of  # noqa: PLC0415  (takes its time)
    from smq.client.secure.tls_stream import TlsStream  # noqa: PLC0415

    try:
        context = context_of(files)
        secured = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except ValueError as error:  # Another process may be writing the file.
        sock.close()
        raise AuthenticationFailed(str(error)) from error
    except BaseException:
        sock.close()
        raise
    try:
        _shake_hands(secured, clock.monotonic_s() + seconds_max, clock)
    except ssl.SSLCertVerificationError as error:
        secured.close()
        raise _no_tls(host, error.verify_message) from error
    except ssl.SSLError as error:
        secured.close()
        raise _no_tls(host, error.reason or str(error)) from error
    except BaseException:
        secured.close()
        raise
    return TlsStream(secured)


def _no_tls(host: str, why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"no TLS with the broker at {host}: {why}")


def _shake_hands(secured: ssl.SSLSocket, until_s: float, clock: Clock) -> None:
    """Raises OSError when time is up."""
    secured.setblocking(False)  # noqa: FBT003  (the socket's own signature)
    while True:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            events = READABLE
        except ssl.SSLWantWriteError:
            events = WRITABLE
        else:
            return
        left_s = until_s - clock.monotonic_s()
        if left_s <= 0 or not ready({secured.fileno(): events}, left_s):
            raise TimeoutError("it does not finish the TLS handshake")
