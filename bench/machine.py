"""Measures processes and the machine's own limits."""

import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

SYNC_FILE_BYTES = 16 * 1024 * 1024
SYNC_ROUNDS = 300
LOOPBACK_BYTES = 4_000_000_000
LOOPBACK_PIECE_BYTES = 1 << 20
FREE_SHARE = 0.8
TOUCH_BYTES = 1 << 30
MADV_POPULATE_WRITE = 23  # Linux 5.14.
PAGE_BYTES = 4096
FRESH_PROBE_BYTES = 256 << 20
FRESH_PAGE_NS = 1000
WARM_STEP_BYTES = 64 << 10
READ_FILE_BYTES = 2 << 30
READ_STEP_BYTES = 2 << 20


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Suspend processes for the block, so that the measured one has the cores to itself."""
    still = list(pids)
    for pid in still:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in still:
            os.kill(pid, signal.SIGCONT)


def touch_free_memory() -> None:
    """Use most of the memory that is free, once, and give it back.

    A virtual machine gets its memory from the host page by page: the first touch of a page
    takes many times as long as later ones, and the first measurement would pay for it.
    """
    wanted = int(FREE_SHARE * psutil.virtual_memory().free)
    with mmap.mmap(-1, wanted) as memory:
        for at in range(0, wanted, TOUCH_BYTES):
            memory.madvise(MADV_POPULATE_WRITE, at, min(TOUCH_BYTES, wanted - at))


class FirstTouches(NamedTuple):
    """What pages of free memory cost that are touched for the first time."""

    fresh: float
    """The share that took longer than FRESH_PAGE_NS: fresh to the machine, if used pages do not."""
    median_us: float

    def __str__(self) -> str:
        return f"{self.fresh:.0%} above 1 µs, {self.median_us:.1f} µs in the median"


def first_touches() -> FirstTouches:
    """Time the first touch of 256 MiB of free memory, 4 KiB at a time."""
    taken = list[int]()
    with mmap.mmap(-1, FRESH_PROBE_BYTES) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for at in range(0, FRESH_PROBE_BYTES, PAGE_BYTES):
            started = time.perf_counter_ns()
            memory[at] = 1
            taken.append(time.perf_counter_ns() - started)
    fresh = sum(each > FRESH_PAGE_NS for each in taken) / len(taken)
    return FirstTouches(fresh, median(taken) / 1000)


@contextmanager
def warm_file(path: Path, size: int) -> Iterator[Callable[[], float]]:
    """A file of a neighbour in the page cache; gives a function: the share of it that still is."""
    path.write_bytes(os.urandom(WARM_STEP_BYTES) * (size // WARM_STEP_BYTES))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    page = bytearray(PAGE_BYTES)

    def is_cached(at: int) -> bool:
        try:
            return os.preadv(fd, [page], at, os.RWF_NOWAIT) == PAGE_BYTES
        except BlockingIOError:
            return False

    def share() -> float:
        places = range(0, size, WARM_STEP_BYTES)
        return sum(map(is_cached, places)) / len(places)

    try:
        yield share
    finally:
        os.close(fd)
        path.unlink()


def direct_read_mb_s(directory: Path) -> float:
    """What the disk gives to one who reads a file past the page cache, a block after another."""
    path = directory / "read-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    try:
        with mmap.mmap(-1, READ_STEP_BYTES) as block:
            block.write(os.urandom(READ_STEP_BYTES))
            places = range(0, READ_FILE_BYTES, READ_STEP_BYTES)
            for at in places:
                os.pwrite(fd, block, at)
            os.fsync(fd)
            started = time.perf_counter()
            for at in places:
                os.preadv(fd, [block], at)
            return READ_FILE_BYTES / (time.perf_counter() - started) / 1e6
    finally:
        os.close(fd)
        path.unlink()


def fdatasync_us(directory: Path) -> float:
    """Median of pwrite + fdatasync of 4 KiB in a file that was written before: the disk's limit."""
    path = directory / "sync-probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, bytes(SYNC_FILE_BYTES), 0)
        os.fsync(fd)
        taken = []
        for i in range(SYNC_ROUNDS):
            started = time.perf_counter()
            os.pwrite(fd, b"x" * 4096, i * 4096)
            os.fdatasync(fd)
            taken.append(time.perf_counter() - started)
        return median(taken) * 1e6
    finally:
        os.close(fd)
        path.unlink()


def loopback_mb_s() -> float:
    """What one TCP connection within this machine carries."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname(),))
        sender.start()
        connection, _ = server.accept()
        started, received = time.perf_counter(), 0
        with connection:
            room = bytearray(LOOPBACK_PIECE_BYTES)
            while count := connection.recv_into(room):
                received += count
        sender.join()
        return received / (time.perf_counter() - started) / 1e6


def _send(address: tuple[str, int]) -> None:
    piece = bytes(LOOPBACK_PIECE_BYTES)
    with socket.create_connection(address) as connection:
        for _ in range(LOOPBACK_BYTES // LOOPBACK_PIECE_BYTES):
            connection.sendall(piece)
