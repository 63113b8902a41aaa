"""The nodes and their state: one or two pages that the supervisor writes and all read.

    0                     64                              64 + 192 * i
    +---------------------+-------------------------------+-----
    | magic, node count,  | of the first node:            | of the second …
    | supervisor's pid,   |   0  pid, port, generation,   |
    | cluster started ms, |      changed ms           (S) |
    | the first node's id |                               |
    |                 (S) |  64  connections, sessions,   |
    |                     |      what came of logins,     |
    |                     | 128  ends of certificates  (N)|
    +---------------------+-------------------------------+-----
    S written by the supervisor, N by the process of that node. Words are int64, little endian.

Each word is independent: no reader needs two of them to agree, so plain aligned loads and stores
suffice, and there is nothing to publish. A node's generation is written before the process that
serves under it is forked. A node's counters of a log are in that log's memory.
"""

import mmap
import os
from collections.abc import Sequence
from typing import NamedTuple

from shm.segment import seal_against_writers

MAGIC = 0x0004_43_51_4D_53  # "SMQC" and the version of this map, little endian.
HEADER_BYTES = 64
NODE_BYTES = 192
WORD_BYTES = 8

_MAGIC, _NODE_COUNT, _SUPERVISOR_PID, _STARTED_MS, _FIRST_NODE_ID = range(5)
_PID, _PORT, _GENERATION, _CHANGED_MS = range(4)
_CONNECTIONS = 8
_SESSIONS = 9
_LOGINS = 10
_CERTIFICATES = 16
CERTIFICATES_MAX = NODE_BYTES // WORD_BYTES - _CERTIFICATES  # Of the first listeners.

assert _CONNECTIONS * WORD_BYTES == 64  # Else a shard's writes slow its epoch's readers.


class LoginCounts(NamedTuple):
    """Connections of a node that have not logged in yet; and since its process began, how many
    have, how many logins failed, and how many connections were closed whose login had expired."""

    unauthenticated: int = 0
    logged_in: int = 0
    failed: int = 0
    expired: int = 0


assert _LOGINS + len(LoginCounts._fields) <= _CERTIFICATES
assert HEADER_BYTES % 64 == NODE_BYTES % 64 == 0


class Node(NamedTuple):
    """A node as the supervisor saw it last, at `changed_ms`. `pid` is 0 while nothing serves."""

    id: int
    pid: int
    port: int
    generation: int
    changed_ms: int


class ClusterBlock:
    """The nodes of this broker, in shared memory that survives forks."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        mapping = mmap.mmap(fd, os.fstat(fd).st_size, prot=protection)
        self._words = memoryview(mapping).cast("q")

    @classmethod
    def create(cls, node_ids: range, supervisor_pid: int, started_ms: int) -> "ClusterBlock":
        """New memory for these nodes, none of which serves yet."""
        fd = os.memfd_create("smq-cluster", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, HEADER_BYTES + len(node_ids) * NODE_BYTES)
        self = cls(fd, writable=True)
        seal_against_writers(fd)
        self._words[_NODE_COUNT] = len(node_ids)
        self._words[_FIRST_NODE_ID] = node_ids.start
        self._words[_SUPERVISOR_PID] = supervisor_pid
        self._words[_STARTED_MS] = started_ms
        self._words[_MAGIC] = MAGIC
        return self

    @classmethod
    def attach(cls, fd: int) -> "ClusterBlock":
        """Another process's block, read-only. Raises ValueError: it has another version."""
        if os.fstat(fd).st_size < HEADER_BYTES:
            raise ValueError("this descriptor is not a cluster block")
        self = cls(fd, writable=False)
        if self._words[_MAGIC] != MAGIC:
            raise ValueError("this descriptor is not a cluster block of this version")
        return self

    @property
    def node_count(self) -> int:
        return self._words[_NODE_COUNT]

    @property
    def node_ids(self) -> range:
        """The ids of all nodes, in order."""
        first = self._words[_FIRST_NODE_ID]
        return range(first, first + self._words[_NODE_COUNT])

    @property
    def supervisor_pid(self) -> int:
        return self._words[_SUPERVISOR_PID]

    @property
    def started_ms(self) -> int:
        return self._words[_STARTED_MS]

    def node(self, node_id: int) -> Node:
        """The supervisor's entry for a node."""
        at = self._at(node_id)
        return Node(
            node_id,
            self._words[at + _PID],
            self._words[at + _PORT],
            self._words[at + _GENERATION],
            self._words[at + _CHANGED_MS],
        )

    def nodes(self) -> list[Node]:
        """All nodes, by id."""
        return [self.node(node_id) for node_id in self.node_ids]

    def generation(self, node_id: int) -> int:
        """The generation in which the node's process opened its logs."""
        return self._words[self._at(node_id) + _GENERATION]

    def set_node(self, node: Node) -> None:
        """Supervisor only: a node has been started or has ended."""
        at = self._at(node.id)
        assert node.generation >= self._words[at + _GENERATION]
        self._words[at + _PORT] = node.port
        self._words[at + _GENERATION] = node.generation
        self._words[at + _CHANGED_MS] = node.changed_ms
        self._words[at + _PID] = node.pid

    def set_connections(self, node_id: int, count: int) -> None:
        """The node only: how many clients are connected."""
        self._words[self._at(node_id) + _CONNECTIONS] = count

    def connections(self, node_id: int) -> int:
        """How many clients the node last reported as connected."""
        return self._words[self._at(node_id) + _CONNECTIONS]

    def set_sessions(self, node_id: int, count: int) -> None:
        """The node only: how many programs are attached through shared memory."""
        self._words[self._at(node_id) + _SESSIONS] = count

    def sessions(self, node_id: int) -> int:
        """How many programs the node last reported as attached."""
        return self._words[self._at(node_id) + _SESSIONS]

    def set_logins(self, node_id: int, counts: LoginCounts) -> None:
        """The node only: what came of its clients' logins."""
        at = self._at(node_id) + _LOGINS
        for index, count in enumerate(counts):
            self._words[at + index] = count

    def logins(self, node_id: int) -> LoginCounts:
        """What the node last reported of logins."""
        at = self._at(node_id) + _LOGINS
        return LoginCounts(*self._words[at : at + len(LoginCounts._fields)])

    def set_certificates(self, node_id: int, ends_ms: Sequence[int]) -> None:
        """The node only: when the certificates of its listeners end (wall time), in the order of
        the settings; 0: it has none."""
        at = self._at(node_id) + _CERTIFICATES
        for index, end_ms in enumerate(ends_ms[:CERTIFICATES_MAX]):
            self._words[at + index] = end_ms

    def certificates(self, node_id: int) -> list[int]:
        """When the certificates of its first CERTIFICATES_MAX listeners end."""
        at = self._at(node_id) + _CERTIFICATES
        return [self._words[at + index] for index in range(CERTIFICATES_MAX)]

    def _at(self, node_id: int) -> int:
        place = node_id - self._words[_FIRST_NODE_ID]
        assert 0 <= place < self.node_count, node_id
        return (HEADER_BYTES + place * NODE_BYTES) // WORD_BYTES
