"""The door to one shard on this host: it sends Produce requests and reads logs in shared memory.

    door = Door.open(runtime_dir, node_id, cluster_id)      raises DoorUnavailable
    room = door.reserve(size_bytes)                         room for one request; None: no room now
    room[:used_bytes] = …                                   size-prefixed, as on a socket
    door.commit(used_bytes)
    door.wait(1.0); answers = door.answers()                responses, in the order of requests

    door.watch(numbers)                                     partitions: wait() ends when one moves
    door.readers[log]                                       the log's memory, read-only

A door is a producer's channel (smq.client.producing's `Channel`) and a consumer's `ReadingDoor`.

A waiting thread shakes hands with the shard in the session's memory (shm.kernels.session.client),
then sleeps on the attach socket, over which the shard sends a byte. The shard has ended, or has
dropped this session, when that socket closes. Every call then raises ChannelGone. A new door may be
opened at once: it waits in line while the shard restarts.

Threads: one may send (reserve, commit, send_one) while another one waits and takes answers.
Processes: a fork closes its copies of the doors; the parent's stay open.
"""

import os
import select
import socket
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

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
from shm.peer import ROOT, check_ours
from shm.reader import LogReader
from shm.segment import LogMemory
from shm.session import SessionMemory
from shm.system import at_fork, why_wire_only
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import ChannelGone
from smq.model.catalog import Catalog
from smq.model.errors import PeerError
from smq.wire.attach import (
    ANSWER_BYTES,
    DESCRIPTORS_BEFORE_LOGS,
    LOGS_MAX,
    OPEN_SUFFIX,
    AttachReply,
    Hello,
)

ATTACH_SECONDS_MAX = 5.0  # A shard restarts in less.
ROOM_SLICE_NS = 50_000_000  # While waiting for room: how often to check that the shard lives.
ANSWERED_BYTES = 256 * 1024  # Taken at a time: a thousand answers.
SPIN_ROUNDS = 200  # Some microseconds.
BELLS = 4096  # More than can arrive.
_BELL = b"\0"


class DoorUnavailable(Exception):
    """This shard cannot be reached through shared memory: use the wire."""


class InboxFull(Exception):
    """The shard did not make room in time. Nothing was sent; the same call may succeed later."""


class Door:
    """An attached session.

    readers             the logs that this shard serves, by id
    request_bytes_max   the largest request that the inbox ever has room for, with its size
    is_quiet            answers wake no poller, unless `arm` has asked for that
    """

    is_quiet = True

    def __init__(
        self, sock: socket.socket, descriptors: Sequence[int], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._socket = sock
        self._now_ns = clock.monotonic_ns
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
        self._is_anothers = False  # In a fork: the session is the parent's, and so are its answers.
        _doors.add(self)

    @classmethod
    def open(  # noqa: PLR0913, PLR0917  (which door, and whose)
        cls,
        runtime_dir: Path,
        node_id: int,
        cluster_id: str,
        timeout_s: float = ATTACH_SECONDS_MAX,
        clock: Clock = SYSTEM_CLOCK,
        owner: int | None = None,
    ) -> "Door":
        """Attach to a node of the broker with this `runtime.dir`, of our user or root's, or of this
        one.

        Raises DoorUnavailable: there is no such socket, it is another user's, or the shard refuses.
        """
        if lack := why_wire_only():
            raise DoorUnavailable(lack)
        if owner in {None, os.getuid()} or os.getuid() == ROOT:
            path = runtime_dir / cluster_id / f"attach-{node_id}.sock"
        else:
            path = runtime_dir / f"{cluster_id}{OPEN_SUFFIX}" / f"door-{node_id}.sock"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        descriptors: Sequence[int] = ()
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(path))
            check_ours(sock, owner)  # Records go to no other broker.
            sock.sendall(Hello(node_id, cluster_id).encode())
            descriptors = _descriptors(sock)
            return cls(sock, descriptors, clock)
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

    def reserve(self, size_bytes: int) -> np.ndarray | None:
        """Room for one request of at most this size, its size field included; None: no room now.

        A reservation that is not committed costs nothing: the next one replaces it.
        """
        self._check_size(size_bytes)
        self._check_open()
        return self._room(find_room(self._memory, self._side, size_bytes), size_bytes)

    def reserve_until(self, size_bytes: int, deadline_ns: int) -> np.ndarray:
        """As `reserve`, but waits for room until `deadline_ns`. Raises InboxFull."""
        room = self.reserve(size_bytes)
        while room is None:
            left_ns = min(deadline_ns - self._now_ns(), ROOM_SLICE_NS)
            if left_ns <= 0:
                raise InboxFull("the shard has not made room in time")
            at = await_room(self._memory, self._side, size_bytes, left_ns)
            room = self._room(at, size_bytes)
            if room is None:
                self._check_hung_up()
        return room

    def _room(self, at: int, size_bytes: int) -> np.ndarray | None:
        if at < 0:
            return None
        self._reserved = size_bytes
        return self._memory[at : at + size_bytes]

    def send_one(
        self,
        size_bytes: int,
        head: np.ndarray,
        correlation_id: int,
        one: One,
        stamp: tuple[int, int, int],
    ) -> bool:
        """Send a request of one record in at most this size; False: there is no room now.

        See shm.kernels.session.one_record. `stamp` is the producer's id, epoch and sequence.
        """
        self._check_size(size_bytes)
        self._check_open()
        done = send_one(self._memory, self._side, size_bytes, head, correlation_id, *one, *stamp)
        if done == MUST_RING:
            self._ring()
        return bool(done != NO_ROOM)

    def commit(self, used_bytes: int) -> None:
        """Send the request in the first bytes of the room that was reserved last."""
        if not SIZE_BYTES < used_bytes <= self._reserved:
            raise ValueError(
                f"used_bytes is {used_bytes}; it must be above {SIZE_BYTES} and at most the "
                f"{self._reserved} bytes reserved"
            )
        self._check_open()
        self._reserved = 0
        if publish_request(self._memory, self._side, used_bytes):
            self._ring()

    def push(self) -> None:
        """Nothing to do: the inbox keeps nothing back."""

    # --- answers ---------------------------------------------------------------------------------

    def answers(self) -> list[bytes]:
        """The answers that have arrived, without their sizes, in the order of the requests."""
        self._check_ours()
        found: list[bytes] = []
        count = ANSWERED_BYTES
        while count == ANSWERED_BYTES:
            count = take_answers(self._memory, self._side, self._answered)
            if count:
                self._rest = _cut(self._rest + self._answered[:count].tobytes(), found)
            if must_ring_for_room(self._memory, self._side) and not self.closed:
                with suppress(ChannelGone):  # The next call raises: these answers are not lost.
                    self._ring()
        if not found:  # Answers from before the shard's end are not lost.
            self._check_open()
        return found

    # --- the logs --------------------------------------------------------------------------------

    def watch(self, numbers: Iterable[int]) -> None:
        """Have `wait` end whenever one of these partitions (by number) shows new records.

        A new door watches nothing. A call replaces the numbers of the one before, and may end
        `wait` once for nothing. A changed catalog ends it too, while anything is watched.
        """
        self._check_open()
        self._session.watch(numbers)
        self._ring()

    def nodes(self) -> list[Node]:
        """The nodes of the broker, as its supervisor lists them."""
        return self._cluster.nodes()

    def catalog(self) -> Catalog:
        """The topics as of now: the same object until the catalog changes."""
        if self._catalog_block.has_moved(self._catalog_version):
            self._catalog_version, published = self._catalog_block.read()
            self._catalog = Catalog.decode(published)
        return self._catalog

    # --- waiting ---------------------------------------------------------------------------------

    def wait(self, timeout_s: float, *, spin_us: int = 0) -> bool:
        """Sleep until there are answers, or a watched partition has moved; whether either is so.

        A movement ends one wait only: look at the logs when this returns, then wait again.
        """
        end_ns = self._now_ns() + int(timeout_s * 1e9)
        if spin_us:
            spin_end_ns = self._now_ns() + 1000 * spin_us
            while self._now_ns() < spin_end_ns and not self.spin():
                pass
        while True:
            if self.arm():
                self._poll.poll(max(0.0, (end_ns - self._now_ns()) / 1e6))
            if self.disarm():
                return True
            if self._now_ns() >= end_ns:
                return False

    def sleep(self, reader: ReaderState, also: int, timeout_ms: int) -> bool:
        """Sleep until a reader may have records, or `also` is readable; False: the door is closed.

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
        """Readable when the shard rings, between `arm` and `disarm`; -1 once it is closed."""
        return self._socket.fileno()

    def events(self) -> int:
        """What to poll for: the door never has bytes left to push."""
        return select.POLLIN

    def arm(self) -> bool:
        """Ask for a bell at the next news; False: there is news already, do not sleep."""
        return not self.closed and bool(fall_asleep_client(self._memory, self._side))

    def disarm(self) -> bool:
        """After a sleep: discard the bells; returns whether there is news. Raises ChannelGone."""
        self._check_ours()
        if not self.closed:
            self._swallow()
        news = bool(wake_client(self._memory, self._side))
        if not news:
            self._check_open()
        return news

    def spin(self) -> bool:
        """Look for news for some microseconds, without sleeping; returns whether there is any."""
        return bool(spin(self._memory, self._side, SPIN_ROUNDS))

    # --- the socket ------------------------------------------------------------------------------

    def _ring(self) -> None:
        try:
            self._socket.send(_BELL, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # The socket is full of bells: one more would change nothing.
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

    def _check_size(self, size_bytes: int) -> None:
        if not 0 < size_bytes <= self.request_bytes_max:
            raise ValueError(
                f"size_bytes is {size_bytes}; it must be from 1 to {self.request_bytes_max}"
            )

    def _check_ours(self) -> None:
        if self._is_anothers:
            raise ChannelGone("the door belongs to the process that forked this one")

    def _check_open(self) -> None:
        if self.closed:
            raise ChannelGone("the shard has ended or dropped this session, or the door was closed")

    def close(self) -> None:
        """End the session. A thread that waits wakes.

        The memory stays mapped as long as arrays or batches over it live.
        """
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def forget(self) -> None:
        """In a fork: close the copy. The parent's session continues."""
        self.closed = self._is_anothers = True
        self._socket.close()


def _cut(stream: bytes, found: list[bytes]) -> bytes:
    """Append the whole frames of a stream to `found`, without their sizes; return the rest."""
    at = 0
    while len(stream) - at >= SIZE_BYTES:
        end = at + SIZE_BYTES + int.from_bytes(stream[at : at + SIZE_BYTES])
        if end > len(stream):
            break
        found.append(stream[at + SIZE_BYTES : end])
        at = end
    return stream[at:]


def _descriptors(sock: socket.socket) -> Sequence[int]:
    """The descriptors that come with the answer to a hello. Raises PeerError, OSError."""
    maximum = DESCRIPTORS_BEFORE_LOGS + LOGS_MAX
    data, descriptors, _, _ = socket.recv_fds(sock, ANSWER_BYTES, maximum, socket.MSG_CMSG_CLOEXEC)
    try:
        _check_answer(AttachReply.decode(data), len(descriptors))
    except PeerError:
        for fd in descriptors:
            os.close(fd)
        raise
    return descriptors


def _check_answer(answer: AttachReply, descriptors: int) -> None:
    if answer.refusal or answer.descriptors != descriptors:
        raise PeerError(answer.refusal or "descriptors are missing")


_doors: "weakref.WeakSet[Door]" = weakref.WeakSet()


def _close_in_child() -> None:
    """A fork has the parent's socket: it must not ring, swallow, or keep the session alive."""
    for door in list(_doors):
        door.forget()


at_fork(after_in_child=_close_in_child)
