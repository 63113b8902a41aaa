"""What the machine says of processes and of its own limits."""

import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SYNC_FILE_BYTES = 16 * 1024 * 1024
SYNC_ROUNDS = 300
LOOPBACK_BYTES = 4_000_000_000
LOOPBACK_PIECE_BYTES = 1 << 20
FREE_SHARE = 0.8
TOUCH_BYTES = 1 << 30
MADV_POPULATE_WRITE = 23  # Linux 5.14.


def with_children(pids: Iterable[int]) -> set[int]:
    """Processes and all that they have started: a sealer's workers come and go."""
    roots = [psutil.Process(pid) for pid in pids]
    return {each.pid for root in roots for each in (root, *root.children(recursive=True))}


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of processes so far, and of the children that they have waited for."""
    total = 0
    for pid in with_children(pids):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / CLOCK_TICKS


def pss_mb(pids: Iterable[int], *, without: str = "") -> float:
    """Proportional set size of processes, in MB; mappings whose name has `without` left out."""
    total = 0
    for pid in with_children(pids):
        counted = True
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if line[0] in "0123456789abcdef" and "-" in line.partition(" ")[0]:
                counted = not (without and without in line)
            elif counted and line.startswith("Pss:"):
                total += int(line.split()[1])
    return total * 1024 / 1e6


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Have processes stand still meanwhile: who is measured shares the cores with nobody else."""
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
    takes many times as long as later ones, and whoever is measured first would pay for it.
    """
    wanted = int(FREE_SHARE * psutil.virtual_memory().free)
    with mmap.mmap(-1, wanted) as memory:
        for at in range(0, wanted, TOUCH_BYTES):
            memory.madvise(MADV_POPULATE_WRITE, at, min(TOUCH_BYTES, wanted - at))


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
