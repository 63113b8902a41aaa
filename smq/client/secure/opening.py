"""Opens sockets to brokers: plain, or in TLS.

A broker that speaks so slowly that a handshake never ends holds nobody longer than `seconds_max`.
"""

import socket
import ssl
import struct
import sys
from typing import TYPE_CHECKING

from shm.peer import check_ours
from smq.client.clock import Clock
from smq.client.errors import AuthenticationFailed, ClosedUnanswered
from smq.client.secure.security import TlsFiles
from smq.client.wait import READABLE, WRITABLE, ready

if TYPE_CHECKING:
    from smq.client.secure.tls_stream import TlsStream

PORT_MAX = 65_535
_OF_ALERTS = (
    "see whether this listener speaks TLS (security.protocol), and whether it wants a certificate "
    "that it knows (ssl.keystore.location)"
)


def connected(
    host: str, port: int, seconds_max: float, socket_owner: int | None = None
) -> socket.socket:
    """A socket to a broker; port 0 is for a unix socket with this path, of this user's broker.

    Raises OSError, also if what a broker named is no address.
    """
    if socket_owner is not None and is_path(host) and port == 0:
        return _connected_here(host, seconds_max, socket_owner)
    if not 0 < port <= PORT_MAX:  # The resolver would take some of its bits.
        raise OSError("that is no address")
    try:
        sock = socket.create_connection((host, port), seconds_max)
    except ValueError as error:  # No name of a host can be so.
        raise OSError("that is no address") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def is_path(host: str) -> bool:
    """Whether it is the path of a unix socket, and no host."""
    return host.startswith("/")


if sys.platform == "win32":

    def _connected_here(_path: str, _seconds_max: float, _owner: int) -> socket.socket:
        raise OSError("Python has no unix sockets here")

else:

    def _connected_here(path: str, seconds_max: float, owner: int) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A timeout of Python's would make it non-blocking, and a full backlog an error.
            limit = struct.pack("ll", int(seconds_max), int(seconds_max % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            sock.connect(path)
            check_ours(sock, owner)  # Records go to nobody else, whoever made the path.
            sock.settimeout(seconds_max)
        except BaseException:
            sock.close()
            raise
        return sock


def in_tls(
    sock: socket.socket, host: str, files: TlsFiles, seconds_max: float, clock: Clock
) -> "TlsStream":
    """The same connection in TLS, its broker's certificate verified.

    Raises AuthenticationFailed (also for a file that cannot be used), ClosedUnanswered, OSError;
    then the socket is closed.
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
        raise _no_tls(host, error.verify_message, _advice(error.verify_code)) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:  # The broker may restart.
        secured.close()
        raise ClosedUnanswered(
            _sentence(host, error.reason or str(error)), advice=_OF_ALERTS
        ) from error
    except ssl.SSLError as error:
        secured.close()
        raise _no_tls(host, error.reason or str(error), _OF_ALERTS) from error
    except BaseException:
        secured.close()
        raise
    return TlsStream(secured)


def certificate_refused(host: str, error: OSError | str) -> AuthenticationFailed | None:
    """What an alert says that comes after the handshake: in TLS 1.3 a client is through with it
    before its certificate is looked at."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    is_meant = "CERTIFICATE" in reason or "UNKNOWN_CA" in reason
    return _no_tls(host, reason, _OF_ALERTS) if "ALERT" in reason and is_meant else None


def _no_tls(host: str, why: str, advice: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"{_sentence(host, why)}; {advice}")


def _sentence(host: str, why: str) -> str:
    return f"no TLS with the broker at {host}: {why.rstrip('.')}"


def _advice(verify_code: int) -> str:
    """What to do about a certificate that OpenSSL does not accept (X509_V_ERR_…)."""
    if verify_code in {9, 10}:
        return "the broker needs a certificate that is valid now (ssl.keystore.location there)"
    if verify_code in {62, 64}:
        return (
            "use a host name of the certificate, or give the broker one for this name (`smq certs "
            "--host` makes one for a test)"
        )
    return "name the authority that has signed it (ssl.truststore.location, or ssl.ca.location)"


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
