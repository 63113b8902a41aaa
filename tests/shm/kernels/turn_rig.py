"""A rig whose clients have sockets, and whose WAL is a file, for kernels that take turns."""

import os
import select
import socket
from pathlib import Path

import numpy as np

from shm.kernels.base.words import HEAD_REQUEST_BYTES_MAX, P_HIGH_WATERMARK
from shm.kernels.log.plan import new_plan
from shm.kernels.request.fetch import FETCH_KEY, STATE_WORDS
from shm.kernels.turn.held import new_held
from shm.kernels.turn.parked import new_parked
from shm.kernels.turn.requests import RECEIVE_BYTES
from shm.kernels.turn.sessions import new_sessions
from shm.kernels.turn.spin import new_spin
from shm.kernels.turn.turns import take_turns
from shm.kernels.turn.words import (
    EPOLL,
    EVENT_WORDS,
    EVENTS_MAX,
    TURN_WORDS,
    TURNS_NS,
    WAL_END,
    WAL_FD,
)
from smq.wire.codec import Writer
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    write_fetch_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from tests.oracle.batches import batch
from tests.shm.kernels.rig import REQUEST_BYTES_MAX, SEGMENT_BYTES, SLOTS, Rig, request_of

LONG_NS = 10_000_000_000


class Turns:
    """A rig whose clients have sockets, and whose WAL is a file."""

    def __init__(self, path: Path, clients: int = 1) -> None:
        self.rig = Rig()
        self.plan = new_plan(64, 64, 64)
        self.plan[HEAD_REQUEST_BYTES_MAX] = REQUEST_BYTES_MAX
        self.out = np.zeros(1 << 16, np.uint8)
        self.data = np.zeros(RECEIVE_BYTES, np.uint8)
        self.fetching = np.zeros(STATE_WORDS, np.int64), np.zeros(1 << 16, np.uint8)
        self.parked, self.sessions = new_parked(8), new_sessions(8)
        self.clients = np.zeros(1 << 16, np.int64)
        self.turn = np.zeros(TURN_WORDS, np.int64)
        self.touched = np.zeros(16, np.int64)
        self.cursors = np.zeros(3, np.int64)
        self.watched = np.zeros(8, np.int32)
        self.held = new_held()
        self.spin, self.published = new_spin(), np.zeros(1, np.int64)
        self.wal = os.open(path, os.O_RDWR | os.O_CREAT)
        self.epoll = select.epoll()
        self.turn[EPOLL], self.turn[TURNS_NS] = self.epoll.fileno(), LONG_NS
        self.turn[WAL_FD], self.turn[WAL_END] = self.wal, SEGMENT_BYTES
        self.pairs = [socket.socketpair() for _ in range(clients)]
        for _, ours in self.pairs:
            self.epoll.register(ours.fileno(), select.EPOLLIN)
            self.clients[ours.fileno()] = 1

    def close(self) -> None:
        for pair in self.pairs:
            for each in pair:
                each.close()
        self.epoll.close()
        os.close(self.wal)

    def take(self) -> np.ndarray:
        """Run the kernel; the turn's words."""
        take_turns(
            self.turn, np.zeros(EVENTS_MAX * EVENT_WORDS, np.int32), self.clients, self.data,
            (self.rig.log.memory, self.rig.links, self.rig.producers, self.rig.directory),
            (self.plan, self.out), self.fetching, self.parked, self.sessions, self.cursors,
            self.touched, self.watched, self.spin, self.published, self.held,
        )  # fmt: skip
        return self.turn

    def high_watermark(self, number: int) -> int:
        return int(self.rig.log.partitions[SLOTS[number], P_HIGH_WATERMARK])


ONE, SAFE = request_of([("a", [(0, batch(b"v"))])]), request_of([("a", [(1, batch(b"v"))])])
OTHER = (12).to_bytes(4) + bytes([0, 18, 0, 0]) + bytes(8)  # ApiVersions.


def fetch_of(offset: int, min_bytes: int = 1, wait_ms: int = 60_000) -> bytes:
    """A Fetch of topic a's partitions 0 and 2, with its size."""
    asked = [
        FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=1 << 20)
        for i in (0, 2)
    ]
    message = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1 << 20,
        topics=[FetchTopic(topic="a", partitions=asked)],
    )  # fmt: skip
    writer = Writer()
    write_request_header(RequestHeader(FETCH_KEY, 11, 5, "test"), writer)
    write_fetch_request(message, 11, writer)
    request = writer.to_bytes()
    return len(request).to_bytes(4) + request


def answered(client: socket.socket) -> int:
    """How many answers have come."""
    try:
        data = client.recv(1 << 16, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0
    count = at = 0
    while at < len(data):
        at += 4 + int.from_bytes(data[at : at + 4])
        count += 1
    return count
