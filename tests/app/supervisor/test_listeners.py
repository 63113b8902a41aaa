"""Sockets: those opened, and the error messages for those that cannot be."""

import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.app.supervisor.listeners import (
    PASSABLE,
    _held,
    addresses_of,
    open_http_listener,
    open_nameless,
    open_tcp_listeners,
    open_unix_listeners,
    remove_sockets,
    reserve_grpc_ports,
)
from tests.app.fake_broker import config_for


def test_port_0_takes_free_ones(tmp_path: Path) -> None:
    opened = open_tcp_listeners(config_for(tmp_path, 2))
    listeners = {node_id: named["PLAINTEXT"] for node_id, named in opened.items()}
    ports = {node_id: listener.getsockname()[1] for node_id, listener in listeners.items()}
    assert sorted(ports) == [1, 2]
    assert ports[1] != ports[2]
    for listener in listeners.values():
        socket.create_connection(listener.getsockname()).close()
        listener.close()


def test_every_node_has_every_listener_and_clients_know_where(tmp_path: Path) -> None:
    listeners = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
    advertised = "SASL_PLAINTEXT://queue.example:7000"
    config = config_for(
        tmp_path, 2, **{"listeners": listeners, "advertised.listeners": advertised, "port": 9092}
    )
    opened = open_tcp_listeners(config)
    assert [[*named] for named in opened.values()] == [["PLAINTEXT", "SASL_PLAINTEXT"]] * 2
    addresses = addresses_of(config, opened)
    ports = {node: named["PLAINTEXT"].getsockname()[1] for node, named in opened.items()}
    assert addresses["PLAINTEXT"] == {node: ("127.0.0.1", port) for node, port in ports.items()}
    assert addresses["SASL_PLAINTEXT"] == {1: ("queue.example", 7000), 2: ("queue.example", 7001)}
    for named in opened.values():
        for listener in named.values():
            listener.close()


def test_a_port_that_is_about_to_be_free_is_waited_for(tmp_path: Path) -> None:
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    timer = threading.Timer(0.1, other.close)
    timer.start()
    open_tcp_listeners(config_for(tmp_path, 1, port=port))[1]["PLAINTEXT"].close()
    timer.join()


def test_a_port_in_use_is_named_with_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = rf"port {port} of 127\.0\.0\.1 is in use by process {os.getpid()} \(.*--port"
        with pytest.raises(SystemExit, match=words):
            open_tcp_listeners(config_for(tmp_path, 1, port=port))


def test_http_has_a_listener_when_it_has_a_port(tmp_path: Path) -> None:
    assert open_http_listener(config_for(tmp_path, 1)) is None
    listener = open_http_listener(config_for(tmp_path, 1, **{"http.port": 0}))
    assert listener is not None
    with listener:
        socket.create_connection(listener.getsockname()).close()
        taken = config_for(tmp_path, 1, **{"http.port": listener.getsockname()[1]})
        with pytest.raises(SystemExit, match=r"is in use .* another with --http-port"):
            open_http_listener(taken)


@pytest.mark.parametrize(
    ("host", "words"),
    [("192.0.2.1", "not an address of this machine"), ("no.such.invalid", "there is no address")],
)
def test_an_address_that_is_not_ours_is_refused(tmp_path: Path, host: str, words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        open_tcp_listeners(config_for(tmp_path, 1, host=host))


def test_unix_sockets_are_private_and_replace_those_of_a_killed_run(tmp_path: Path) -> None:
    for _ in range(2):
        listeners = open_unix_listeners(tmp_path / "run" / "id", ["sealer"])
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "run" / "id" / "sealer.sock"))
        listeners["sealer"].close()
    assert (tmp_path / "run" / "id").stat().st_mode & 0o777 == 0o700


def test_sockets_for_all_users_lie_in_a_directory_that_they_may_pass(tmp_path: Path) -> None:
    home = tmp_path / "run"
    open_unix_listeners(home / "id", ["sealer"])["sealer"].close()
    open_unix_listeners(home / "id.open", ["kafka-1"], PASSABLE)["kafka-1"].close()
    open_unix_listeners(home / "other", ["sealer"])["sealer"].close()
    modes = {each.name: each.stat().st_mode & 0o777 for each in [home, *home.iterdir()]}
    assert modes == {"run": 0o711, "id": 0o700, "id.open": 0o711, "other": 0o700}
    assert (home / "id.open" / "kafka-1.sock").stat().st_mode & 0o777 == 0o666


def test_a_listener_without_a_name_is_reached_by_its_descriptor_alone(tmp_path: Path) -> None:
    listener, fd = open_nameless(tmp_path / "id", "relays")
    assert [*(tmp_path / "id").iterdir()] == []
    with listener, socket.socket(socket.AF_UNIX) as client, socket.socket(socket.AF_UNIX) as other:
        client.connect(f"/proc/self/fd/{fd}")
        listener.accept()[0].close()
        os.close(fd)
        with pytest.raises(OSError, match="No such file"):
            other.connect(f"/proc/self/fd/{fd}")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of few letters: a socket's path has 107 bytes."""
    with TemporaryDirectory(prefix="smq-") as name:
        yield Path(name)


def test_deserted_runtime_directories_are_removed_and_no_others(home: Path) -> None:
    """Data fault 5: a clock set ahead had a directory removed whose broker was just starting, and
    one set back kept all. Whoever starts holds a lock."""

    def left(name: str, file: str = "shard-1.sock") -> Path:
        directory = home / name
        directory.mkdir()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(directory / file))
        os.utime(directory, (0, 0))
        return directory

    dead, starting, other = left("d" * 22), left("y" * 22), left("another program")
    dead_open = left("d" * 22 + ".open", "kafka-1.sock")
    live, mixed, new = left("l" * 22), left("m" * 22), left("n" * 22)
    (mixed / "notes").touch()
    os.utime(new, (2**33, 2**33))
    with _held(starting), socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(live / "attach-1.sock"))
        listening.listen()
        for listener in open_unix_listeners(home / "ours", ["one"]).values():
            listener.close()
    assert not dead.exists()
    assert not dead_open.exists()
    assert not new.exists()
    assert all(each.exists() for each in (starting, other, live, mixed))


def test_a_directory_that_is_removed_before_it_is_locked_is_made_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = home / ("w" * 22)

    def remove_once(fd: int, operation: int) -> None:
        monkeypatch.undo()
        directory.rmdir()
        fcntl.flock(fd, operation)

    monkeypatch.setattr("smq.app.supervisor.listeners.fcntl.flock", remove_once)
    listener = open_unix_listeners(directory, ["one"])["one"]
    assert [each.name for each in directory.iterdir()] == ["one.sock"]
    listener.close()


def test_a_broker_that_was_killed_after_a_long_life_has_its_sockets_again(home: Path) -> None:
    """Its own directory looks deserted, too."""
    directory = home / ("o" * 22)
    open_unix_listeners(directory, ["shard-1"])["shard-1"].close()
    os.utime(directory, (0, 0))
    listener = open_unix_listeners(directory, ["shard-1"])["shard-1"]
    assert [each.name for each in directory.iterdir()] == ["shard-1.sock"]
    listener.close()


def test_only_sockets_are_removed(tmp_path: Path) -> None:
    """Door fault 2: the whole tree was deleted that a crafted name stood for."""
    directory = tmp_path / "sockets"
    directory.mkdir()
    (directory / "precious").write_text("data")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "shard-1.sock"))
    remove_sockets(directory)
    assert [each.name for each in directory.iterdir()] == ["precious"]
    (directory / "precious").unlink()
    remove_sockets(directory)
    assert not directory.exists()
    remove_sockets(directory)


def test_a_directory_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit, match="not a directory of this user"):
        open_unix_listeners(tmp_path / "run", ["sealer"])


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--runtime-dir"):
        open_unix_listeners(tmp_path / ("x" * 100), ["sealer"])


def test_a_reserved_port_is_kept_from_others_and_left_to_a_process_of_ours(tmp_path: Path) -> None:
    config = config_for(tmp_path, 1, **{"grpc.port": 0})
    [reserved] = reserve_grpc_ports(config).values()
    address = reserved.getsockname()
    with reserved, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(address)
        with socket.socket() as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            ours.bind(address)
            ours.listen()
            for _ in range(20):
                socket.create_connection(address).close()
                ours.accept()[0].close()


def test_a_port_that_another_broker_has_reserved_is_in_use(tmp_path: Path) -> None:
    [reserved] = reserve_grpc_ports(config_for(tmp_path, 1, **{"agent.port": 0})).values()
    with reserved, pytest.raises(SystemExit, match=r"in use.*--agent-port"):
        reserve_grpc_ports(config_for(tmp_path, 1, **{"agent.port": reserved.getsockname()[1]}))
