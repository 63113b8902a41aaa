"""The door to one shard on this host: Produce requests in through shared memory, the logs to read.

    door = Door.open(runtime_dir, node_id, cluster_id)      raises DoorUnavailable
    room = door.reserve(size, deadline_ns)                  room for one request in the inbox
    room[:used] = …                                         size-prefixed, as on a socket
    door.commit(used)
    door.wait(1.0); answers = door.answers()                responses, in the order of requests

    door.watch(numbers)                                     partitions: wait() ends when one moves
    door.readers[log]                                       the log's memory, read-only

Waiting is a handshake in the session's memory (shm.kernels.session.client) and, when there is
nothing, a sleep on the attach socket, over which the shard sends a byte. When that socket closes
the shard is gone, or has dropped us: every call raises DoorGone from then on, and a new door may be
opened, which waits in line while the shard is being restarted.

Threads: one may send (reserve, commit, send_one) while another one waits and takes answers.
Processes: a fork's doors are closed in it; the parent's go on.
"""

import os
import select
import socket
import struct
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns

import numpy as np

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock, Node
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.base.words import WORD_LOG
from shm.kernels.reader.sleep import BELLS_MAX, POLLED_WORDS, ReaderState, sleep_reader
from shm.kernels.record.records_encode import One
from shm.kernels.session.client import (
    await_room,
    fall_asleep_client,
    find_room,
    must_ring_for_room,
    publish_request,
    spin,
    take_answers,
    wake_client,
)
from shm.kernels.session.one_record import MUST_RING, NO_ROOM, send_one
from shm.reader import LogReader
from shm.segment import LogMemory
from shm.session import SessionMemory
from smq.model.catalog import Catalog
from smq.model.errors import PeerError
from smq.wire.attach import ANSWER_BYTES, DESCRIPTORS_BEFORE_LOGS, LOGS_MAX, Answer, Hello

ATTACH_SECONDS_MAX = 5.0  # A shard that is being restarted is back in less.
ROOM_SLICE_NS = 50_000_000  # Of a wait for room: then we look whether the shard is still there.
ANSWERED_BYTES = 256 * 1024  # Taken at once; a thousand answers.
SPIN_ROUNDS = 200  # Some microseconds.
BELLS = 4096  # More than can have come.
_BELL = b"\0"
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class DoorUnavailable(Exception):
    """There is no way into this shard by shared memory: use the wire."""


class DoorGone(Exception):
    """The shard has ended or has dropped us. Requests without an answer may have been taken."""


class InboxFull(Exception):
    """The shard has not made room in time. Nothing was sent; the same call may succeed later."""


class Door:
    """An attached session. `readers` are the logs this shard serves, by id."""

    def __init__(self, sock: socket.socket, descriptors: Sequence[int]) -> None:
        self._socket = sock
        session, cluster, catalog, *logs = descriptors
        self._session = SessionMemory.attach(session)
        self._memory, self._side = self._session.memory, self._session.side
        self._cluster = ClusterBlock.attach(cluster)
        self._catalog_block = CatalogBlock.attach(catalog)
        self._catalog = Catalog("", 0, {})
        self._catalog_version = 0
        memories = [*map(LogMemory.attach, logs)]
        self.readers = {int(each.words[WORD_LOG]): LogReader(each) for each in memories}
        self._session.fd = self._cluster.fd = self._catalog_block.fd = -1  # To be closed …
        for each in memories:
            each.fd = -1  # … since all is mapped.
        self._polled, self._bells = np.zeros(POLLED_WORDS, np.int32), np.zeros(BELLS_MAX, np.uint8)
        self._polled[0] = sock.fileno()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._answered = np.empty(ANSWERED_BYTES, np.uint8)
        self._rest = b""
        sock.setblocking(False)  # noqa: FBT003
        self._reserved = 0
        self.request_bytes_max = self._session.request_bytes_max
        self.closed = False
        self._is_anothers = False  # The parent's, in a fork: its answers are not ours to take.
        _doors.add(self)

    @classmethod
    def open(
        cls, runtime_dir: Path, node_id: int, cluster_id: str, timeout_s: float = ATTACH_SECONDS_MAX
    ) -> "Door":
        """Attach to a node of the broker whose setting `runtime.dir` this is.

        Raises DoorUnavailable when there is no such socket, it is not ours, or we are refused.
        """
        path = runtime_dir / cluster_id / f"attach-{node_id}.sock"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        descriptors: Sequence[int] = ()
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            _check_owner(sock)
            sock.sendall(Hello(node_id, cluster_id).encode())
            descriptors = _descriptors(sock)
            return cls(sock, descriptors)
        except (OSError, PeerError, ValueError) as reason:
            sock.close()
            raise DoorUnavailable(f"{path}: {reason}") from reason
        except BaseException:
            sock.close()
            raise
        finally:
            for fd in descriptors:
                os.close(fd)

    # --- sending ---------------------------------------------------------------------------------

    def reserve(self, size: int, deadline_ns: int) -> np.ndarray:
        """Room for one request of at most `size` bytes, its own size included.

        Waits for room until `deadline_ns` (time.monotonic_ns), then raises InboxFull. A reservation
        that is not committed costs nothing: the next one replaces it.
        """
        self._check_size(size)
        self._check_open()
        at = find_room(self._memory, self._side, size)
        while at < 0:
            left_ns = deadline_ns - monotonic_ns()
            if left_ns <= 0:
                raise InboxFull("the shard has not made room in time")
            at = await_room(self._memory, self._side, size, min(left_ns, ROOM_SLICE_NS))
            if at < 0:
                self._check_hung_up()
        self._reserved = size
        return self._memory[at : at + size]

    def send_one(
        self,
        size: int,
        head: np.ndarray,
        correlation_id: int,
        one: One,
        stamp: tuple[int, int, int],
    ) -> bool:
        """Hand over a request of one record, in `size` bytes or less; False: there is no room.

        See shm.kernels.session.one_record; `stamp` is the producer's id, epoch and sequence.
        """
        self._check_size(size)
        self._check_open()
        done = send_one(self._memory, self._side, size, head, correlation_id, *one, *stamp)
        if done == MUST_RING:
            self._ring()
        return bool(done != NO_ROOM)

    def commit(self, used_bytes: int) -> None:
        """Hand over the request in the first bytes of the room that was reserved last."""
        if not SIZE_BYTES < used_bytes <= self._reserved:
            raise ValueError(f"used_bytes is {used_bytes}, of {self._reserved} reserved")
        self._check_open()
        self._reserved = 0
        if publish_request(self._memory, self._side, used_bytes):
            self._ring()

    # --- answers ---------------------------------------------------------------------------------

    def answers(self) -> list[bytes]:
        """The responses that have come, without their sizes, in the order of the requests."""
        self._check_ours()
        found: list[bytes] = []
        count = ANSWERED_BYTES
        while count == ANSWERED_BYTES:
            count = take_answers(self._memory, self._side, self._answered)
            if count:
                self._rest = _cut(self._rest + self._answered[:count].tobytes(), found)
            if must_ring_for_room(self._memory, self._side) and not self.closed:
                with suppress(DoorGone):  # The next call says so: these answers are not lost.
                    self._ring()
        if not found:  # What was answered before the shard left is not lost.
            self._check_open()
        return found

    # --- the logs --------------------------------------------------------------------------------

    def watch(self, numbers: Iterable[int]) -> None:
        """Have wait() end whenever one of these partitions (by number) shows new records.

        Nothing is watched at first. Replaces what was watched before, and may wake once for
        nothing; a changed catalog also wakes who watches.
        """
        self._check_open()
        self._session.watch(numbers)
        self._ring()

    def nodes(self) -> list[Node]:
        """The nodes of the broker, as its supervisor sees them."""
        return self._cluster.nodes()

    def catalog(self) -> Catalog:
        """The topics, as of now; the same object until something has changed."""
        if self._catalog_block.has_moved(self._catalog_version):
            self._catalog_version, published = self._catalog_block.read()
            self._catalog = Catalog.decode(published)
        return self._catalog

    # --- waiting ---------------------------------------------------------------------------------

    def wait(self, timeout_s: float, *, spin_us: int = 0) -> bool:
        """Sleep until there are answers or something watched has moved; whether there is news.

        Movement is told once: look at the logs after this has returned, then wait again.
        """
        end_ns = monotonic_ns() + int(timeout_s * 1e9)
        if spin_us:
            spin_end_ns = monotonic_ns() + 1000 * spin_us
            while monotonic_ns() < spin_end_ns and not self.spin():
                pass
        while True:
            if self.arm():
                self._poll.poll(max(0.0, (end_ns - monotonic_ns()) / 1e6))
            if self.disarm():
                return True
            if monotonic_ns() >= end_ns:
                return False

    def sleep(self, reader: ReaderState, also: int, timeout_ms: int) -> bool:
        """Sleep until a reader may have something, or `also` is readable; False: we are closed.

        It may end early. `also` is a descriptor, or -1.
        """
        if self.closed:
            return False
        self._polled[2] = also
        bells, block = (self._polled, self._bells), self._catalog_block
        seen = block.words, self._catalog_version
        if not sleep_reader(self._memory, self._side, *bells, *reader, *seen, timeout_ms):
            self.close()
        return not self.closed

    def fileno(self) -> int:
        """Readable when somebody rings, for event loops; between arm() and disarm()."""
        return self._socket.fileno()

    def arm(self) -> bool:
        """Ask for a bell at the next news; False: there is some already, do not sleep."""
        return not self.closed and bool(fall_asleep_client(self._memory, self._side))

    def disarm(self) -> bool:
        """After a sleep: swallow the bells; whether there is news. Raises DoorGone."""
        self._check_ours()
        if not self.closed:
            self._swallow()
        news = bool(wake_client(self._memory, self._side))
        if not news:
            self._check_open()
        return news

    def spin(self) -> bool:
        """Look for news for some microseconds, without sleeping; whether there is some."""
        return bool(spin(self._memory, self._side, SPIN_ROUNDS))

    # --- the socket ------------------------------------------------------------------------------

    def _ring(self) -> None:
        try:
            self._socket.send(_BELL, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # So many bells are on their way that one more changes nothing.
        except OSError:
            self.close()
            self._check_open()

    def _swallow(self) -> None:
        if self._is_hung_up(BELLS):
            self.close()

    def _check_hung_up(self) -> None:
        if self._is_hung_up(1, socket.MSG_PEEK):
            self.close()
            self._check_open()

    def _is_hung_up(self, bells: int, flags: int = 0) -> bool:
        try:
            return not self._socket.recv(bells, socket.MSG_DONTWAIT | flags)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _check_size(self, size: int) -> None:
        if not 0 < size <= self.request_bytes_max:
            raise ValueError(f"size is {size}; a request takes 1 to {self.request_bytes_max} bytes")

    def _check_ours(self) -> None:
        if self._is_anothers:
            raise DoorGone("this is the door of the process that forked us")

    def _check_open(self) -> None:
        if self.closed:
            raise DoorGone("the shard has ended or has dropped this session, or it was closed")

    def close(self) -> None:
        """Leave; whoever waits in another thread wakes.

        The memory stays mapped while arrays or batches made from it live.
        """
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def forget(self) -> None:
        """In a fork: this is the parent's; let it be."""
        self.closed = self._is_anothers = True
        self._socket.close()


def _cut(stream: bytes, found: list[bytes]) -> bytes:
    """Append the whole frames of a stream to `found`, without their sizes; what is left."""
    at = 0
    while len(stream) - at >= SIZE_BYTES:
        end = at + SIZE_BYTES + int.from_bytes(stream[at : at + SIZE_BYTES])
        if end > len(stream):
            break
        found.append(stream[at + SIZE_BYTES : end])
        at = end
    return stream[at:]


def _check_owner(sock: socket.socket) -> None:
    """Only our own user's broker, or root's, is let near our records."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid not in {0, os.getuid()}:
        raise PermissionError(f"this socket belongs to user {uid}")


def _descriptors(sock: socket.socket) -> Sequence[int]:
    """What comes with the answer to a hello. Raises PeerError, OSError."""
    maximum = DESCRIPTORS_BEFORE_LOGS + LOGS_MAX
    data, descriptors, _, _ = socket.recv_fds(sock, ANSWER_BYTES, maximum, socket.MSG_CMSG_CLOEXEC)
    try:
        _check_answer(Answer.decode(data), len(descriptors))
    except PeerError:
        for fd in descriptors:
            os.close(fd)
        raise
    return descriptors


def _check_answer(answer: Answer, descriptors: int) -> None:
    if answer.refusal or answer.descriptors != descriptors:
        raise PeerError(answer.refusal or "descriptors are missing")


_doors: "weakref.WeakSet[Door]" = weakref.WeakSet()


def _close_in_child() -> None:
    """A fork has the parent's socket: it must not ring, swallow, or keep the session alive."""
    for door in list(_doors):
        door.forget()


os.register_at_fork(after_in_child=_close_in_child)
