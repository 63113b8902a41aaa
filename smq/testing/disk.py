"""Disks for tests of the write-ahead log: one that traces its calls, one that fails.

TracingDisk writes for real and keeps a trace. A prefix of a trace gives the directories that a
crash may leave behind:

    kill         of the processes: the page cache has everything but the end of the very last write
    power loss   any subset of unsynced data survives, in pieces of 512 B or 4 KiB;
                 files appear, move and vanish in order, up to some moment after the last sync of
                 the directory
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress, product
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from smq.log.files.disk import Disk, OsDisk

READ_WAIT_S_MAX = 30.0
SECTOR_BYTES, PAGE_BYTES = 512, 4096  # The atomic unit of a disk, and of the page cache.

Image = dict[str, bytes]
"""The files of a directory, by name."""


class DiskOperation(NamedTuple):
    """One step of a trace. `file` numbers files through all their names."""

    kind: str
    file: int = 0
    name: str = ""
    at: int = 0
    data: bytes = b""
    target: str = ""


class Past(NamedTuple):
    """The operations of killed processes: all in the page cache, not all on disk."""

    image: Image
    trace: list[DiskOperation]


class TracingDisk(OsDisk):
    """The real disk, for one directory, with a trace of everything done to it.

    image   the files that were on the disk before the trace began
    trace   with the trace of the past, which has `began` operations
    """

    writes_plainly = False

    def __init__(self, directory: Path, past: Past | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.image = read_image(directory) if past is None else past.image
        self.trace: list[DiskOperation] = [] if past is None else list(past.trace)
        self.began = len(self.trace)
        state = _files_after(self.image, self.trace)
        state.move(len(state.moves))
        self._names = state.names
        self._next_file = max(state.contents, default=-1) + 1
        self._opened: dict[int, int] = {}

    def open(self, path: Path) -> int:
        """See Disk."""
        fd = super().open(path)
        self._opened[fd] = self._names[path.name]
        return fd

    def create(self, path: Path, size: int) -> int:
        """See Disk."""
        fd = super().create(path, size)
        self._opened[fd] = self._new_file(path.name)
        self.trace.append(DiskOperation("create", self._opened[fd], path.name, data=bytes(size)))
        return fd

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk."""
        self.trace.append(DiskOperation("write", self._opened[fd], at=at, data=bytes(data)))
        super().write(fd, data, at)

    def sync(self, fd: int) -> None:
        """See Disk. Nothing is written through to the real disk: crashes are ours."""
        self.trace.append(DiskOperation("sync", self._opened[fd]))

    def clear(self, fd: int, length: int) -> None:
        """See Disk."""
        self.write(fd, memoryview(bytes(length)), 0)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        path.write_bytes(data)
        data = bytes(data)
        self.trace.append(DiskOperation("replace", self._new_file(path.name), path.name, data=data))

    def rename(self, path: Path, target: Path) -> None:
        """See Disk."""
        path.rename(target)
        assert target.parent == self.directory
        self._names[target.name] = file = self._names.pop(path.name)
        self.trace.append(DiskOperation("rename", file, path.name, target=target.name))
        self.sync_directory(target.parent)

    def remove(self, path: Path) -> None:
        """See Disk."""
        super().remove(path)
        if self._names.pop(path.name, None) is not None:
            self.trace.append(DiskOperation("remove", name=path.name))

    def sync_directory(self, path: Path) -> None:
        """See Disk."""
        assert path == self.directory
        self.trace.append(DiskOperation("directory"))

    def _new_file(self, name: str) -> int:
        self._names[name] = self._next_file
        self._next_file += 1
        return self._names[name]


def read_image(directory: Path) -> Image:
    """The current files of a directory."""
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir()) if p.is_file()}


def write_image(image: Image, directory: Path) -> None:
    """Make a directory that has these files and no others."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    for name, data in image.items():
        (directory / name).write_bytes(data)


class Files:
    """Files as a crash finds them: durable contents and names, and pending ones."""

    def __init__(self, image: Image) -> None:
        self.contents = {n: bytearray(data) for n, data in enumerate(image.values())}
        self.names = {name: n for n, name in enumerate(image)}
        self.unsynced: dict[int, list[DiskOperation]] = {}
        self.moves: list[DiskOperation] = []

    def apply(self, operation: DiskOperation) -> None:
        kind, file = operation.kind, operation.file
        if kind == "write":
            self.unsynced.setdefault(file, []).append(operation)
        elif kind == "sync":
            self.land(file, self.unsynced.pop(file, []))
        elif kind == "directory":
            self.move(len(self.moves))
        elif kind == "replace":
            self.move(len(self.moves))
            self.contents[file] = bytearray(operation.data)
            self.names[operation.name] = file
        else:
            if kind == "create":
                self.contents[file] = bytearray(operation.data)
            self.moves.append(operation)

    def land(self, file: int, writes: list[DiskOperation]) -> None:
        """Make these writes durable."""
        for write in writes:
            self.contents[file][write.at : write.at + len(write.data)] = write.data

    def move(self, count: int) -> None:
        """Make this many of the pending renames durable."""
        for operation in self.moves[:count]:
            if operation.kind in {"remove", "rename"}:
                self.names.pop(operation.name, None)
            if operation.kind in {"create", "rename"}:
                self.names[operation.target or operation.name] = operation.file
        self.moves = self.moves[count:]

    def image(self) -> Image:
        return {name: bytes(self.contents[file]) for name, file in self.names.items()}


def _files_after(before: Image, trace: list[DiskOperation]) -> Files:
    state = Files(before)
    for operation in trace:
        state.apply(operation)
    return state


def killed(past: Past) -> Image:
    """The directory when all processes have died: the page cache outlives them."""
    state = _files_after(past.image, past.trace)
    for file, writes in state.unsynced.items():
        state.land(file, writes)
    state.move(len(state.moves))
    return state.image()


def torn(past: Past, at: int) -> Past:
    """A past whose very last write was cut by a kill."""
    *before, last = past.trace
    assert last.kind == "write"
    return Past(past.image, [*before, last._replace(data=last.data[:at])])


def pieces_of(write: DiskOperation, size: int) -> Iterator[DiskOperation]:
    """A write cut at multiples of `size` in its file."""
    at, end = write.at, write.at + len(write.data)
    while at < end:
        stop = min(end, at - at % size + size)
        yield write._replace(at=at, data=write.data[at - write.at : stop - write.at])
        at = stop


def power_lost(past: Past, chance: Random) -> Image:
    """The directory after a power loss: any subset of what was not synced."""
    state = _files_after(past.image, past.trace)
    size = chance.choice([SECTOR_BYTES, PAGE_BYTES])
    keep = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    for file, writes in state.unsynced.items():
        pieces = [piece for write in writes for piece in pieces_of(write, size)]
        state.land(file, [piece for piece in pieces if chance.random() < keep])
    state.move(chance.randint(0, len(state.moves)))
    return state.image()


def power_losses(past: Past, writes_max: int) -> Iterator[Image]:
    """The directory after every possible power loss: each subset of the unsynced writes, with each
    number of the unsynced renames. None if there are too many writes."""
    pending = _files_after(past.image, past.trace)
    writes = [(file, write) for file, some in pending.unsynced.items() for write in some]
    subsets = product((False, True), repeat=len(writes)) if len(writes) <= writes_max else ()
    for kept in subsets:
        for moves in range(len(pending.moves) + 1):
            state = _files_after(past.image, past.trace)
            for file, write in compress(writes, kept):
                state.land(file, [write])
            state.move(moves)
            yield state.image()


class SlowDisk(OsDisk):
    """A disk with an empty page cache, whose reads wait until they are released."""

    def __init__(self) -> None:
        self._goes = threading.Event()
        self._goes.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the block lasts, no read returns."""
        self._goes.clear()
        try:
            yield
        finally:
            self._goes.set()

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk."""
        assert self._goes.wait(READ_WAIT_S_MAX), "nobody lets the disk go"
        return super().read(fd, length, at)

    def read_cached(
        self, _fd: int, _length: int, _at: int, _out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk."""
        return None


class FailingDisk:
    """A disk around a disk: calls fail while `failures` names them.

    `failures[method]` is (how often it fails, errno); how often may be infinite. `bad_places` are
    bytes that cannot be read: a file's name, from, to. With `fail_behind_rename` the next rename is
    done, and fails then.
    """

    writes_plainly = False
    fail_behind_rename = False

    def __init__(self, inner: Disk) -> None:
        self.inner = inner
        self.failures: dict[str, tuple[float, int]] = {}
        self.bad_places: list[tuple[str, int, int]] = []
        self.calls: dict[str, int] = {}

    def fail(self, method: str, times: float = float("inf"), error: int = errno.EIO) -> None:
        """Have the next calls of a method fail."""
        self.failures[method] = times, error

    def heal(self) -> None:
        """Fail no more."""
        self.failures.clear()

    def _call(self, method: str) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        times, error = self.failures.get(method, (0, 0))
        if times > 0:
            self.failures[method] = times - 1, error
            raise OSError(error, os.strerror(error))

    def _name_of(self, fd: int) -> str:
        return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))  # noqa: PTH115, PTH119

    def _look(self, name: str, length: int, at: int) -> None:
        for bad, start, end in self.bad_places:
            if bad == name and start < at + length and at < end:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    def make_directory(self, path: Path) -> None:
        """See Disk."""
        self._call("make_directory")
        self.inner.make_directory(path)

    def open(self, path: Path) -> int:
        """See Disk."""
        self._call("open")
        return self.inner.open(path)

    def create(self, path: Path, size: int) -> int:
        """See Disk."""
        self._call("create")
        return self.inner.create(path, size)

    def fill(self, path: Path, at: int, size: int) -> None:
        """See Disk."""
        self._call("fill")
        self.inner.fill(path, at, size)

    def close(self, fd: int) -> None:
        """See Disk."""
        self.inner.close(fd)

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk. A failing write leaves half of it behind."""
        try:
            self._call("write")
        except OSError:
            self.inner.write(fd, data[: len(data) // 2], at)
            raise
        self.inner.write(fd, data, at)

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk."""
        self._call("read")
        self._look(self._name_of(fd), length, at)
        return self.inner.read(fd, length, at)

    def will_read(self, fd: int, length: int, at: int) -> None:
        """See Disk."""
        self._call("will_read")
        self.inner.will_read(fd, length, at)

    def begin_write_back(self, fd: int, length: int) -> None:
        """See Disk."""
        self._call("begin_write_back")
        self.inner.begin_write_back(fd, length)

    def write_back(self, fd: int, length: int) -> None:
        """See Disk."""
        self._call("write_back")
        self.inner.write_back(fd, length)

    def drop(self, fd: int, length: int) -> None:
        """See Disk."""
        self._call("drop")
        self.inner.drop(fd, length)

    def block(self, length: int) -> np.ndarray:
        """See Disk."""
        return self.inner.block(length)

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk."""
        self._call("read_past_cache")
        self._look(path.name, len(out), at)
        return self.inner.read_past_cache(path, out, at)

    def clear(self, fd: int, length: int) -> None:
        """See Disk."""
        self._call("clear")
        self.inner.clear(fd, length)

    def read_cached(
        self, fd: int, length: int, at: int, out: np.ndarray | None = None
    ) -> np.ndarray | None:
        """See Disk. Unreadable bytes are not cached."""
        try:
            self._look(self._name_of(fd), length, at)
        except OSError:
            return None
        return self.inner.read_cached(fd, length, at, out)

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """See Disk. Unreadable bytes are not cached."""
        pages, name = self.inner.cached_pages(fd, length), self._name_of(fd)
        for bad, start, end in self.bad_places:
            if bad == name and pages is not None:
                pages[start // PAGE_BYTES : -(-end // PAGE_BYTES)] = False
        return pages

    def map(self, fd: int, length: int) -> np.ndarray:
        """See Disk."""
        self._call("map")
        self._look(self._name_of(fd), length, 0)
        return self.inner.map(fd, length)

    def sync(self, fd: int) -> None:
        """See Disk."""
        self._call("sync")
        self.inner.sync(fd)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk."""
        self._call("replace")
        self.inner.replace(path, data)

    def rename(self, path: Path, target: Path) -> None:
        """See Disk."""
        self._call("rename")
        self.inner.rename(path, target)
        if self.fail_behind_rename:
            self.fail_behind_rename = False
            raise OSError(errno.EIO, "fsync of the directory")

    def remove(self, path: Path) -> None:
        """See Disk."""
        self._call("remove")
        self.inner.remove(path)

    def is_shared(self, path: Path) -> bool:
        """See Disk."""
        self._call("is_shared")
        return self.inner.is_shared(path)

    def space(self, path: Path) -> tuple[int, int]:
        """See Disk."""
        self._call("space")
        return self.inner.space(path)

    def sync_directory(self, path: Path) -> None:
        """See Disk."""
        self._call("sync_directory")
        self.inner.sync_directory(path)
