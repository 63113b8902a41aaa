"""A shard's local door in the test's own loop, and programs that attach to it, honest or not."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shm.cluster import ClusterBlock
from shm.kernels.base.words import P_HIGH_WATERMARK
from shm.kernels.session import client as kernels
from shm.session import SessionMemory
from smq.app.shard.door.session import Session
from smq.app.shard.door.sessions import Sessions
from smq.model.catalog import Topic
from smq.wire.attach import ANSWER_BYTES, AttachReply, Hello
from tests.app.fake_peers import listen, turn_until
from tests.app.shard_client import ServerBench
from tests.shard.shard_bench import batch, produce_request

IDENTITY = Hello(1, "a-cluster")
BELL = b"\0"
Make = Callable[..., "DoorBench"]


class DoorBench(ServerBench):
    """A server with its door."""

    def __init__(self, directory: Path, *topics: Topic, **config: int) -> None:
        super().__init__(directory, *topics, **config)
        self._path = directory / "attach.sock"
        self.block = ClusterBlock.create(range(1, 2), os.getpid(), 0)
        descriptors = [self.block.fd, self.block.fd, self.block.fd]
        self.sessions = Sessions(self.loop, IDENTITY, self.shard, descriptors, self.server)
        self.server.turns.door = self.sessions
        self.server.when_catalog_changes.append(self.sessions.watchers.catalog_changed)
        listener = listen(self._path)
        self.loop.opened.append(listener)
        self.sessions.attaching.listen([listener])

    def close(self) -> None:
        self.sessions.stop()
        super().close()
        os.close(self.block.fd)

    def unlisted(self, count: int) -> list[Session]:
        """So many attached programs, whom no table knows."""
        for _ in range(count):
            self.attach()
        found = sorted(self.sessions._sessions, key=lambda session: session.fd)
        for session in found:
            self.server.sessions.remove(session)
        return found

    def connect(self) -> socket.socket:
        """A program that has said nothing yet."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self._path))
        sock.setblocking(False)
        self.loop.opened.append(sock)
        return sock

    def greet(self, hello: bytes) -> tuple[socket.socket, AttachReply | None, list[int]]:
        """Say something, and hear the answer; None: the socket was closed."""
        sock = self.connect()
        sock.send(hello)
        heard: list[tuple[bytes, list[int]]] = []

        def answered() -> bool:
            try:
                data, descriptors, _, _ = socket.recv_fds(sock, ANSWER_BYTES, 9)
            except BlockingIOError:
                return False
            heard.append((data, list(descriptors)))
            return True

        turn_until(self.loop, answered)
        ((data, descriptors),) = heard
        return sock, AttachReply.decode(data) if data else None, descriptors

    def attach(self) -> "Attached":
        """A program that is let in."""
        sock, answer, descriptors = self.greet(IDENTITY.encode())
        assert answer == AttachReply(len(descriptors))
        memory = SessionMemory.attach(descriptors[0])
        for fd in descriptors:
            os.close(fd)
        return Attached(self, sock, memory)


class Attached:
    """One of them. It neither blocks nor checks anything."""

    def __init__(self, bench: DoorBench, sock: socket.socket, memory: SessionMemory) -> None:
        self.bench, self.socket, self.session = bench, sock, memory
        self.memory, self.side, self.words = memory.memory, memory.side, memory.words
        self.received = b""

    def put(self, request: bytes) -> bool:
        """Hand over a request; whether there was room."""
        at = kernels.find_room(self.memory, self.side, len(request))
        if at < 0:
            return False
        self.memory[at : at + len(request)] = np.frombuffer(request, np.uint8)
        if kernels.publish_request(self.memory, self.side, len(request)):
            self.ring()
        return True

    def ring(self, count: int = 1) -> None:
        self.socket.send(BELL * count)

    def take(self) -> bytes:
        """All answers that have come."""
        out = np.zeros(1 << 20, np.uint8)
        while count := kernels.take_answers(self.memory, self.side, out):
            self.received += out[:count].tobytes()
            if kernels.must_ring_for_room(self.memory, self.side):
                self.ring()
            self.bench.loop.run_once(0)
        return self.received

    def correlations(self) -> list[int]:
        """Of the whole answers so far."""
        found, at, stream = [], 0, self.take()
        while len(stream) - at >= 4 and at + 4 + int.from_bytes(stream[at : at + 4]) <= len(stream):
            found.append(int.from_bytes(stream[at + 4 : at + 8]))
            at += 4 + int.from_bytes(stream[at : at + 4])
        return found

    def wait(self, count: int) -> list[int]:
        """So many answers' correlations."""
        turn_until(self.bench.loop, lambda: len(self.correlations()) >= count)
        return self.correlations()

    def bells(self) -> int:
        """How often it was rung for since this was last asked; -1: the socket was closed."""
        try:
            return len(self.socket.recv(1 << 16)) or -1
        except BlockingIOError:
            return 0
        except ConnectionError:
            return -1

    def wait_dropped(self, why: str) -> None:
        """The shard closes the session, and says why."""
        turn_until(self.bench.loop, lambda: self.bells() == -1)
        assert [why in notice for notice in self.bench.sessions.notices] == [True]
        self.bench.sessions.notices.clear()


def produced(number: int = 1, acks: int = -1, value: bytes = b"x", name: str = "one") -> bytes:
    """A request for partition 0 of a topic, with this correlation."""
    return produce_request({name: {0: batch(value)}}, acks, correlation=number)


def hwm(bench: DoorBench) -> int:
    """The high watermark of the first partition."""
    return int(bench.shard.logs[0].partitions.table[0, P_HIGH_WATERMARK])
