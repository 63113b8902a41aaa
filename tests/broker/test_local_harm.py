"""Programs on this host that mean harm, against a real broker: what they are given serves only
to read, and whatever they write ends nothing but their own session.
"""

import ctypes
import fcntl
import mmap
import os
import random
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, monotonic_ns

import numpy as np
import pytest

from shm.catalog import CatalogBlock
from shm.cluster import ClusterBlock
from shm.kernels.session import words
from shm.session import SessionMemory
from smq.app.process.status import read_status
from smq.client.door.door import Door, _descriptors
from smq.client.errors import ChannelGone
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode, PeerError
from smq.testing import broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.attach import Hello
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.shard.shard_bench import batch, produce_request, responses
from tests.shm.forks import forked

TOPIC = "one"
DROP_SECONDS_MAX = 1.0
ROUNDS = 60
PUNCH_HOLE_KEEP_SIZE = 3
SEALS = (fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK, 0x10)
_LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module")
def running() -> Iterator[SmqBroker]:
    with broker(shards=1) as started:
        with Cluster(started.bootstrap) as cluster:
            create_topic(cluster, TOPIC, 1)
        yield started


def attach(runtime_dir: Path) -> tuple[socket.socket, list[int]]:
    """A session as it comes: the socket and the descriptors."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    try:
        sock.connect(str(runtime_dir / "attach-1.sock"))
        sock.send(Hello(1, runtime_dir.name).encode())
        return sock, list(_descriptors(sock))
    except BaseException:
        sock.close()
        raise


@contextmanager
def session(running: SmqBroker) -> Iterator[tuple[socket.socket, SessionMemory]]:
    sock, descriptors = attach(running.runtime_dir)
    memory = SessionMemory.attach(descriptors[0])
    for fd in descriptors:
        os.close(fd)
    with sock:
        yield sock, memory


def assert_serves(running: SmqBroker) -> None:
    """Another program gets its answer."""
    door = Door.open(running.runtime_dir.parent, 1, running.runtime_dir.name)
    request = produce_request({TOPIC: {0: batch(b"x")}})
    deadline_ns = monotonic_ns() + 10_000_000_000
    door.reserve_until(len(request), deadline_ns)[:] = np.frombuffer(request, np.uint8)
    door.commit(len(request))
    assert door.wait(10.0)
    assert len(door.answers()) == 1
    door.close()


def wait_dropped(sock: socket.socket) -> None:
    """The broker hangs up, in time."""
    deadline = monotonic() + DROP_SECONDS_MAX
    sock.settimeout(DROP_SECONDS_MAX)
    try:
        while sock.recv(1 << 16):
            assert monotonic() < deadline
    except ConnectionError:
        return


# --- what is given can be read, and that is all ---------------------------------------------------


def opened_again(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR)


def map_writable(fd: int) -> None:
    mmap.mmap(fd, os.fstat(fd).st_size)


def map_and_allow_writing(fd: int) -> None:
    mapping = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
    place = ctypes.c_void_p(np.frombuffer(mapping, np.uint8).ctypes.data)
    if _LIBC.mprotect(place, ctypes.c_long(len(mapping)), mmap.PROT_READ | mmap.PROT_WRITE):
        raise PermissionError


def punch_hole(fd: int) -> None:
    size = ctypes.c_long(mmap.PAGESIZE)
    if _LIBC.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), size):
        raise PermissionError


TRICKS: list[Callable[[int], object]] = [
    map_writable,
    map_and_allow_writing,
    punch_hole,
    lambda fd: os.pwrite(fd, b"x", 0),
    lambda fd: os.ftruncate(fd, 0),
    lambda fd: os.ftruncate(fd, 1 << 40),
    lambda fd: [fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal) for seal in SEALS],
]


def test_nothing_that_is_given_beside_the_session_can_be_written_or_cut(running: SmqBroker) -> None:
    sock, (own, *given) = attach(running.runtime_dir)
    assert len(given) == 3  # Cluster block, catalog, one log.
    for fd in (*given, *map(opened_again, given)):
        for trick in TRICKS:
            with pytest.raises(PermissionError):
                trick(fd)
        os.close(fd)
    os.close(own)
    sock.close()
    assert_serves(running)


def test_the_session_s_own_memory_cannot_be_cut_under_the_shard(running: SmqBroker) -> None:
    sock, (own, *given) = attach(running.runtime_dir)
    for fd in (own, opened_again(own)):
        for trick in TRICKS[4:]:
            with pytest.raises(PermissionError):
                trick(fd)
    punch_hole(own)  # Zeros to the shard.
    sock.send(b"\0")
    assert_serves(running)
    for fd in (own, *given):
        os.close(fd)
    sock.close()


def test_descriptors_changed_by_a_program_change_nothing_for_others(running: SmqBroker) -> None:
    sock, descriptors = attach(running.runtime_dir)
    for fd in (*descriptors, sock.fileno()):
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND | os.O_ASYNC)
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    for fd in descriptors:
        os.lseek(fd, 12345, os.SEEK_SET)
        fcntl.flock(fd, fcntl.LOCK_EX)
    assert ClusterBlock.attach(descriptors[1]).node_count == 1
    assert CatalogBlock.attach(descriptors[2]).version() > 0
    assert_serves(running)
    sock.close()
    for fd in descriptors:
        os.close(fd)


def test_attached_programs_are_counted_where_status_looks(running: SmqBroker) -> None:
    def attached() -> int:
        found = read_status(running.data_dir)
        assert found
        return found[1].sessions(1)

    with session(running), session(running):
        eventually(lambda: attached() == 2, "two programs are attached")
    eventually(lambda: attached() == 0, "none is")


# --- another's session ----------------------------------------------------------------------------


def sessions_of(pid: int) -> dict[int, Path]:
    """Paths by which the kernel lets the same user open what a process has mapped, by inode."""
    found = {}
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # The descriptor that lists them is closed by now.
            if "smq-session" in str(each.readlink()):
                found[each.stat().st_ino] = each
    return found


def test_a_write_into_another_programs_session_ends_only_that_session(running: SmqBroker) -> None:
    """No broker can keep the same user from it: it is his process, and has his memory."""
    shard = running.status().processes["shard-1"].pid
    before = sessions_of(shard)
    victim = Door.open(running.runtime_dir.parent, 1, running.runtime_dir.name)
    ((_, path),) = [each for each in sessions_of(shard).items() if each[0] not in before]
    other = Door.open(running.runtime_dir.parent, 1, running.runtime_dir.name)
    fd = os.open(path, os.O_RDWR)
    memory = SessionMemory.attach(fd)
    os.close(fd)
    memory.words[words.INBOX_TAIL] = -1
    started = monotonic()
    with pytest.raises(ChannelGone):
        victim.wait(10.0)
    assert monotonic() - started < DROP_SECONDS_MAX
    assert f"local process {os.getpid()} is dropped: its inbox ends where" in running.tail()
    assert not other.wait(0.1)
    other.close()
    assert_serves(running)


def test_a_session_s_socket_cannot_be_opened_by_another(running: SmqBroker) -> None:
    door = Door.open(running.runtime_dir.parent, 1, running.runtime_dir.name)
    with pytest.raises(OSError, match="No such device or address"):
        os.open(f"/proc/self/fd/{door.fileno()}", os.O_RDWR)
    door.close()


@pytest.mark.parametrize("node", [0, 2, 65535])
def test_a_hello_names_a_node_and_never_a_session(running: SmqBroker, node: int) -> None:
    with session(running), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DROP_SECONDS_MAX)
        sock.connect(str(running.runtime_dir / "attach-1.sock"))
        sock.send(Hello(node, running.runtime_dir.name).encode())
        with pytest.raises(PeerError, match="another broker or node"):
            _descriptors(sock)
    assert_serves(running)


@pytest.mark.parametrize("seed", range(8))
def test_a_garbled_hello_opens_nothing(running: SmqBroker, seed: int) -> None:
    chance = random.Random(seed)
    hello = bytearray(Hello(1, running.runtime_dir.name).encode())
    for _ in range(chance.randrange(1, 5)):
        hello[chance.randrange(len(hello))] ^= chance.randrange(1, 256)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DROP_SECONDS_MAX)
        sock.connect(str(running.runtime_dir / "attach-1.sock"))
        sock.send(hello[: chance.choice([len(hello), chance.randrange(1, len(hello))])])
        with pytest.raises(PeerError):
            _descriptors(sock)
    assert "may not attach" in running.tail()
    assert_serves(running)


def test_another_s_producer_id_is_held_to_its_sequence_as_on_a_connection(
    running: SmqBroker,
) -> None:
    """Whose an id is nobody asks, as in Kafka; what has been appended cannot be changed by it."""

    def send(door: Door, sequence: int) -> int:
        records = write_batch(
            [Record(0, 0, None, b"x")], producer_id=777, producer_epoch=0, base_sequence=sequence
        )
        request = produce_request({TOPIC: {0: records}})
        door.reserve_until(len(request), monotonic_ns() + 10_000_000_000)[:] = np.frombuffer(
            request, np.uint8
        )
        door.commit(len(request))
        assert door.wait(10.0)
        (answer,) = door.answers()
        ((_, found),) = responses(len(answer).to_bytes(4) + answer)
        return int(found.responses[0].partition_responses[0].error_code)

    owner, other = (
        Door.open(running.runtime_dir.parent, 1, running.runtime_dir.name) for _ in range(2)
    )
    assert [send(owner, each) for each in (0, 1)] == [0, 0]
    assert send(other, 1) == 0, "it is there already, and is not appended again"
    assert send(other, 7) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(owner, 2) == 0, "its owner goes on"
    owner.close()
    other.close()


# --- garbage --------------------------------------------------------------------------------------


def garbage(chance: random.Random, memory: SessionMemory) -> None:
    """Anything, anywhere."""
    for _ in range(chance.randrange(1, 30)):
        kind = chance.randrange(4)
        if kind == 0:
            memory.words[chance.randrange(128)] = chance.randrange(-(2**63), 2**63)
        elif kind == 1:
            memory.words[chance.randrange(64, 104)] = 8 * chance.randrange(1 << 21)
        elif kind == 2:
            at = chance.randrange(len(memory.memory) - 4096)
            memory.memory[at : at + 4096] = np.frombuffer(chance.randbytes(4096), np.uint8)
        else:
            request = bytearray(produce_request({TOPIC: {0: batch(b"v" * 100)}}))
            for _ in range(chance.randrange(4)):
                request[chance.randrange(len(request))] = chance.randrange(256)
            at = words.INBOX_AT + 8 * chance.randrange(100)
            memory.memory[at : at + len(request)] = np.frombuffer(request, np.uint8)


@pytest.mark.parametrize("seed", range(3))
def test_garbage_in_a_session_harms_no_other_client(running: SmqBroker, seed: int) -> None:
    chance, pids = random.Random(seed), running.pids()
    for _ in range(ROUNDS):
        with session(running) as (sock, memory):
            garbage(chance, memory)
            with suppress(OSError):  # It may have been seen, and dropped, without a bell.
                sock.send(b"\0" * chance.randrange(1, 4))
            assert_serves(running)
            memory.words[words.INBOX_TAIL] = -1  # Whatever came before: this cannot be.
            memory.words[words.SHARD_SLEEP] = 0
            try:
                sock.send(b"\0")
            except ConnectionError:
                continue
            wait_dropped(sock)
    assert running.pids() == pids
    assert "is dropped: its inbox ends where it cannot end" in running.tail()


def test_garbage_that_changes_while_it_is_read_harms_no_other_client(running: SmqBroker) -> None:
    chance, pids = random.Random(9), running.pids()
    with session(running) as (sock, memory):
        request = np.frombuffer(produce_request({TOPIC: {0: batch(b"v" * 3000)}}), np.uint8)
        step = -(-len(request) // 8) * 8
        count = memory.request_bytes_max // step
        for i in range(count):
            memory.memory[words.INBOX_AT + i * step :][: len(request)] = request
        ended: list[bool] = []

        def change() -> None:
            while not ended:
                at = words.INBOX_AT + chance.randrange(count * step)
                memory.memory[at] ^= 1 << chance.randrange(8)

        changer = Thread(target=change)
        changer.start()
        memory.words[words.INBOX_TAIL] = count * step
        with suppress(OSError):  # As above.
            sock.send(b"\0")
        for _ in range(20):
            assert_serves(running)
        ended.append(True)
        changer.join()
    assert_serves(running)
    assert running.pids() == pids


# --- other users ----------------------------------------------------------------------------------


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_is_refused_even_where_the_directory_lets_him_in(running: SmqBroker) -> None:
    path = running.runtime_dir / "attach-1.sock"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    opened = [path, *list(path.parents)[:-1]]
    modes = [each.stat().st_mode for each in opened]

    def try_as_another(expected: type[Exception], match: str) -> None:
        os.setgid(65534)
        os.setuid(65534)
        with pytest.raises(expected, match=match):
            attach(path.parent)

    with forked(lambda: try_as_another(PermissionError, "denied")):
        pass
    for each, mode in zip(opened, modes, strict=True):  # Passes for him; all else stays.
        each.chmod(stat.S_IMODE(mode) | (0o001 if each != path else 0o007))
    try:
        with forked(lambda: try_as_another(PeerError, "belongs to another user")):
            pass
    finally:
        for each, mode in zip(opened, modes, strict=True):
            each.chmod(stat.S_IMODE(mode))
    assert "of user 65534 may not attach" in running.tail()
