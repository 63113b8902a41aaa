"""Listening sockets: TCP for clients, unix for our own processes. The supervisor opens all of them.

They stay open while a process behind them restarts, so connections queue up instead of being
refused.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smq.app.process.clock import monotonic_ms, sleep
from smq.app.process.inheritance import socket_path
from smq.app.supervisor.datadir import CLUSTER_ID
from smq.model.config import Config, bracketed
from smq.security.listeners import Endpoint, grpc_ports, http_host, listeners_of
from smq.wire.attach import OPEN_SUFFIX

TCP_BACKLOG = 1024  # Clients that reconnect at once after a restart.
# A killed process closes its files one by one: it may release the data's lock, for which the next
# start has waited, before its connections and its port.
PORT_WAIT_MS = 1000
_POLL_S = 0.01
UNIX_BACKLOG = 128  # Our own processes, some of them attaching again and again.
UNIX_PATH_BYTES_MAX = 107  # sun_path, less its final zero.
PRIVATE, PASSABLE = 0o700, 0o711  # Modes of a directory: who passes it still needs a name in it.
_EVERYBODY = 0o666  # The mode of a socket: to connect is to write.


def open_tcp_listeners(config: Config) -> dict[int, dict[str, socket.socket]]:
    """The listeners of each node, by name. Raises SystemExit with a sentence."""
    option = "--listeners" if config.listeners else "--port"
    return {
        node_id: {
            each.name: _open_tcp(each.listens.host, each.listen_port(index), option)
            for each in listeners_of(config)
        }
        for index, node_id in enumerate(config.node_ids)
    }


def addresses_of(
    config: Config, tcp_listeners: Mapping[int, Mapping[str, socket.socket]]
) -> dict[str, dict[int, Endpoint]]:
    """Where clients reach each listener, by node."""
    return {
        each.name: {
            node_id: each.advertised(index, sockets[each.name].getsockname()[1])
            for index, (node_id, sockets) in enumerate(tcp_listeners.items())
        }
        for each in listeners_of(config)
    }


def open_http_listener(config: Config) -> socket.socket | None:
    """The front's listener, if it is configured. Raises SystemExit with a sentence."""
    if config.http_port < 0:
        return None
    return _open_tcp(http_host(config), config.http_port, "--http-port")


def reserve_grpc_ports(config: Config) -> dict[str, socket.socket]:
    """Sockets that keep the ports of SeaweedMQ's services, by their settings: gRPC takes no
    listener that is handed to it, and binds the port again beside these. Raises SystemExit."""
    return {
        name: _open_tcp(config.grpc_host, port, "--" + name.replace(".", "-"), _reserved)
        for name, port in grpc_ports(config).items()
    }


def _open_tcp(
    host: str,
    port: int,
    option: str,
    opened: Callable[[int, tuple[Any, ...]], socket.socket] | None = None,
) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as reason:
        raise SystemExit(f"smq: there is no address {host!r} to listen on ({reason})") from reason
    deadline_ms = monotonic_ms() + PORT_WAIT_MS
    while True:
        try:
            return (opened or _listening)(family, address)
        except OSError as reason:
            if reason.errno != errno.EADDRINUSE or monotonic_ms() >= deadline_ms:
                raise SystemExit(f"smq: {_cannot_listen(host, port, option, reason)}") from reason
        sleep(_POLL_S)


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    return _bound(family, address, socket.SO_REUSEADDR, listens=True)


def _reserved(family: int, address: tuple[Any, ...]) -> socket.socket:
    """A socket that keeps its port from others, and lets another process of ours listen to it."""
    if address[1]:  # A socket of this kind would not notice another one.
        _bound(family, address, socket.SO_REUSEADDR, listens=True).close()
    return _bound(family, address, socket.SO_REUSEPORT, listens=False)


def _bound(family: int, address: tuple[Any, ...], option: int, *, listens: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    bound.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        bound.bind(address)
        if listens:
            bound.listen(TCP_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _cannot_listen(host: str, port: int, option: str, reason: OSError) -> str:
    if reason.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {host} is in use{_by_whom(port)}; "
            f"stop it, or choose another with {option}"
        )
    if reason.errno == errno.EACCES:
        return f"this user may not listen on port {port}; choose one above 1023 with {option}"
    if reason.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose another with --host"
    return f"cannot listen on {bracketed(host)}:{port}: {reason}"


def _by_whom(port: int) -> str:
    """' by process N (name)', if we may know."""
    import psutil  # noqa: PLC0415  (seldom needed)

    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if listens and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return ""


def open_unix_listeners(
    directory: Path, names: Sequence[str], mode: int = PRIVATE
) -> dict[str, socket.socket]:
    """A listener for each name, in a directory of this mode: a private one, or one whose sockets
    all users may connect to. Raises SystemExit with a sentence."""
    try:
        _make_passable(directory.parent, mode)
        with _held(directory, mode):
            _clear_deserted(directory.parent)
            opened = {name: _open_unix(socket_path(directory, name)) for name in names}
            if mode == PASSABLE:
                for name in names:
                    socket_path(directory, name).chmod(_EVERYBODY)
            return opened
    except OSError as reason:
        raise SystemExit(
            f"smq: no sockets can be made in {directory} ({reason}); "
            "choose another directory with --runtime-dir"
        ) from reason


@contextmanager
def _held(directory: Path, mode: int = PRIVATE) -> Iterator[None]:
    """Create a directory of ours, and lock it until it has our listeners: nobody who starts now
    takes it for deserted."""
    while True:
        _make_ours(directory).chmod(mode)
        with suppress(FileNotFoundError):
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                if _is_at(fd, directory):
                    yield
                    return
            finally:
                os.close(fd)


def _is_at(fd: int, directory: Path) -> bool:
    """Whether an open directory still has its name. Raises FileNotFoundError."""
    return os.path.samestat(os.fstat(fd), directory.stat())


def _make_passable(home: Path, mode: int) -> None:
    """Create the directory of all brokers of this user. Others may pass it if this broker, or
    another one, wants that: what is in it has modes of its own."""
    _make_ours(home)
    home.chmod(mode | stat.S_IMODE(home.stat().st_mode) & PASSABLE)


def _make_ours(directory: Path) -> Path:
    """Create it: another user's directory would let them intercept links. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise OSError(errno.EPERM, f"{directory} is not a directory of this user")
    return directory


def _open_unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, f"a socket's path has {UNIX_PATH_BYTES_MAX} bytes")
    deadline_ms = monotonic_ms() + PORT_WAIT_MS
    while _is_answered(path):  # By a dying process of the last run, or by a clone.
        if monotonic_ms() >= deadline_ms:
            raise SystemExit(
                f"smq: another broker with this cluster id has its sockets in {path.parent}; stop "
                "it, choose another --runtime-dir, or restore with --new-cluster"
            )
        sleep(_POLL_S)
    path.unlink(missing_ok=True)  # Of a killed run: the data directory is locked by us.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(str(path))
        listener.listen(UNIX_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def open_nameless(directory: Path, name: str) -> tuple[socket.socket, int]:
    """A listener to which only holders of this descriptor can connect, through /proc/self/fd.

    Raises SystemExit with a sentence.
    """
    listener, path = open_unix_listeners(directory, [name])[name], socket_path(directory, name)
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    path.unlink()
    return listener, fd


def _clear_deserted(home: Path) -> None:
    """Remove what killed brokers left: socket directories without listeners."""
    for each in home.iterdir():
        if CLUSTER_ID.fullmatch(each.name.removesuffix(OPEN_SUFFIX)):
            _clear_if_deserted(each)


def _clear_if_deserted(directory: Path) -> None:
    """A broker that is just starting does not listen yet, but holds its directory's lock."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # It is being removed, or is not a directory of ours.
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(fd, directory) and _is_deserted(directory):
            remove_sockets(directory)
    except OSError:
        return
    finally:
        os.close(fd)


def remove_sockets(directory: Path) -> None:
    """Remove a directory of sockets, and nothing that is no socket."""
    with suppress(OSError):
        for each in directory.iterdir():
            if each.is_socket():
                each.unlink()
        directory.rmdir()


def _is_deserted(directory: Path) -> bool:
    """Whether there are sockets, and no process listens to any of them. Raises OSError."""
    sockets = [*directory.iterdir()]
    return bool(sockets) and all(map(_is_refused, sockets))


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:  # Its backlog is full: a slow process listens.
            return True
        except OSError:
            return False
    return True


def _is_refused(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return path.is_socket()
        except OSError:
            return False
    return False
