"""Accepting: every client once a descriptor is free, and none after the end."""

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smq.app.process import acceptor as module
from smq.app.process.acceptor import Acceptor
from smq.app.process.loop import Loop


class Bench:
    """A listening socket, somebody who connects to it, and what was accepted."""

    def __init__(self, path: Path) -> None:
        self.loop = Loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.clients: list[socket.socket] = []
        self.listener.bind(str(path))
        self.listener.listen(20)
        self.accepted: list[socket.socket] = []
        self.acceptor = Acceptor(self.loop, self.listener, self._accepted)

    def _accepted(self, sock: socket.socket, _address: str) -> None:
        self.accepted.append(sock)

    def connect(self) -> None:
        self.clients.append(socket.socket(socket.AF_UNIX))
        self.clients[-1].connect(self.listener.getsockname())

    def close(self) -> None:
        self.loop.unregister(self.listener.fileno())
        self.loop._epoll.close()
        for sock in (self.listener, *self.clients, *self.accepted):
            sock.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "s")
    yield bench
    bench.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_accepted_socket_does_not_block(bench: Bench) -> None:
    bench.connect()
    assert bench.loop.run_once(5) == 1
    with pytest.raises(BlockingIOError):
        bench.accepted[0].recv(1)


def test_a_turn_accepts_those_who_have_come_up_to_a_bound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACCEPTS_MAX", 4)
    monkeypatch.setattr(module, "ACCEPT_NS", 60_000_000_000)
    for _ in range(10):
        bench.connect()
    counts = list[int]()
    while len(bench.accepted) < 10:
        assert bench.loop.run_once(5) == 1
        counts.append(len(bench.accepted))
    assert counts == [4, 8, 10]


def test_a_turn_accepts_one_when_its_time_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ACCEPT_NS", 0)
    for i in range(3):
        bench.connect()
        bench.connect()
        assert bench.loop.run_once(5) == 1
        assert len(bench.accepted) == i + 1


def test_an_end_while_clients_are_accepted_is_an_end(bench: Bench) -> None:
    def accepted(sock: socket.socket, _address: str) -> None:
        bench.accepted.append(sock)
        bench.acceptor.stop()

    bench.acceptor._accepted = accepted
    bench.connect()
    bench.connect()
    assert bench.loop.run_once(5) == 1
    assert len(bench.accepted) == 1


def test_without_descriptors_those_who_connect_wait_until_there_are_some(bench: Bench) -> None:
    bench.connect()
    with no_descriptors():
        assert bench.loop.run_once(1) == 1
        assert bench.loop.run_once(0) == 0  # It does not turn in vain.
    while not bench.accepted:
        assert bench.loop.run_once(5)


def test_a_stopped_acceptor_accepts_no_client(bench: Bench) -> None:
    bench.acceptor.stop()
    bench.connect()
    assert bench.loop.run_once(0) == 0


def test_an_end_while_there_are_no_descriptors_is_an_end(bench: Bench) -> None:
    bench.connect()
    with no_descriptors():
        assert bench.loop.run_once(1) == 1
    bench.acceptor.stop()
    assert bench.loop.run_once(5) == 1  # The time to try again has come.
    assert bench.loop.run_once(0) == 0
    assert not bench.accepted


def test_another_user_s_process_is_not_welcome(tmp_path: Path) -> None:
    """Door fault 14."""
    loop, listener = Loop(), socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "listener"))
    listener.listen()
    (tmp_path / "listener").chmod(0o777)
    accepted: list[socket.socket] = []
    welcome = True
    Acceptor(loop, listener, lambda sock, _: accepted.append(sock), lambda _: welcome)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(listener.getsockname())
        loop.run_once(5)
        assert len(accepted) == 1
    welcome = False
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(listener.getsockname())
        loop.run_once(5)
        assert client.recv(1) == b""
    assert len(accepted) == 1
    for sock in (listener, *accepted):
        sock.close()
