"""The disk of one log: real files serve as the page cache, a copy beside them has the state
after a power cut.

It injects failures and counts calls. A process that must die does so between two calls, or in the
middle of a write.
"""

import errno
import os
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from smq.log.files.checkpoint import FILE_NAME, Checkpoint
from smq.log.files.disk import OsDisk
from smq.log.losses import BOOT_FILE
from smq.testing.disk import (
    PAGE_BYTES,
    SECTOR_BYTES,
    DiskOperation,
    Files,
    pieces_of,
    read_image,
    write_image,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT_SHARES = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)  # Of unsynced pieces, after a power cut.


class Killed(BaseException):
    """The running process is dead. No handler of the broker catches it."""


@dataclass
class Faults:
    """Which calls fail, with which errno. `torn`: a failing write leaves a part.

    boot_is_unknown   a start failed, died or could not note its boot: a later one takes it for one
                      of another boot
    """

    boot_is_unknown: bool = False
    failing: dict[str, int] = field(default_factory=dict)
    free_bytes: int = 1 << 40
    slow_ms: float = 0.0
    slow_jobs_ms: float = 0.0


class SimulatedDisk(OsDisk):
    """The disk of one directory, shared by all successive processes that use it.

    before_call   is called with each method's name; it may raise Killed
    """

    writes_plainly = False

    def __init__(self, directory: Path, faults: Faults, chance: Random) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.faults, self.chance = directory, faults, chance
        self.files = Files(read_image(directory))
        self._names = dict(self.files.names)
        self._next_file = len(self._names)
        self._opened: dict[int, int] = {}
        self._unheard: set[int] = set()  # Descriptors that have yet to hear of a failed write-back.
        self._only_cached: dict[
            int, list[DiskOperation]
        ] = {}  # In clean pages, but not on the disk.
        self._dropped: set[int] = set()  # Files of which the page cache has nothing.
        self._bad: set[tuple[int, int]] = set()  # Pages that cannot be read: file, place.
        self._passing: set[tuple[int, int]] = set()  # Those that can be read again after heal().
        self.before_call: Callable[[str], None] = _nothing

    def _call(self, method: str) -> None:
        self.before_call(method)
        error = self.faults.failing.get(method)
        if error is not None:
            raise OSError(error, os.strerror(error))

    def _look(self, file: int, length: int, at: int) -> None:
        """Raise OSError if one of these bytes cannot be read."""
        if any(bad == file and at - PAGE_BYTES < page < at + length for bad, page in self._bad):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: Path) -> int:
        """See Disk."""
        self._call("open")
        fd = super().open(path)
        self._opened[fd] = self._names[path.name]
        return fd

    def create(self, path: Path, size: int) -> int:
        """See Disk."""
        self._call("create")
        fd = super().create(path, size)
        self._opened[fd] = self._new_file(path.name)
        self.files.apply(DiskOperation("create", self._opened[fd], path.name, data=bytes(size)))
        return fd

    def fill(self, path: Path, at: int, size: int) -> None:
        """See Disk."""
        self._call("fill")
        fd = self.open(path)
        try:
            self.write(fd, memoryview(bytes(size)), at)
        finally:
            self.close(fd)

    def close(self, fd: int) -> None:
        """See Disk."""
        self._unheard.discard(fd)
        del self._opened[fd]
        super().close(fd)

    def write(self, fd: int, data: memoryview, at: int) -> None:
        """See Disk. A failed or interrupted write leaves a part behind."""
        try:
            self._call("write")
        except (OSError, Killed):
            self._write(fd, data[: self.chance.randint(0, len(data))], at)
            raise
        self._write(fd, data, at)

    def _write(self, fd: int, data: memoryview, at: int) -> None:
        file, end = self._opened[fd], at + len(data)
        self._dropped.discard(file)
        # The log writes to pages that the page cache has; it writes them back whole, elsewhere.
        self._bad -= {
            (bad, page) for bad, page in self._bad if bad == file and at - PAGE_BYTES < page < end
        }
        self.files.apply(DiskOperation("write", self._opened[fd], at=at, data=bytes(data)))
        super().write(fd, data, at)

    def read(self, fd: int, length: int, at: int) -> np.ndarray:
        """See Disk."""
        self._call("read")
        self._look(self._opened[fd], length, at)
        return super().read(fd, length, at)

    def read_cached(
        self,
        fd: int,
        length: int,
        at: int,
        out: np.ndarray | None = None,  # noqa: ARG002
    ) -> np.ndarray | None:
        """See Disk. With faults, nothing is in the page cache."""
        is_dropped = self._opened[fd] in self._dropped
        if is_dropped or self.faults.slow_ms or "read" in self.faults.failing:
            return None
        try:
            self._look(self._opened[fd], length, at)
        except OSError:
            return None
        return super().read(fd, length, at)

    def cached_pages(self, fd: int, length: int) -> np.ndarray | None:
        """See Disk."""
        file, pages = self._opened[fd], range(0, length, PAGE_BYTES)
        lacks = [file in self._dropped or (file, page) in self._bad for page in pages]
        return ~np.array(lacks, np.bool_)

    def begin_write_back(self, fd: int, length: int) -> None:  # noqa: ARG002
        """See Disk. What it begins, write_back() does."""
        self._call("begin_write_back")

    def write_back(self, fd: int, length: int) -> None:  # noqa: ARG002
        """See Disk. After a failure the page cache alone has some of the bytes, in clean pages."""
        self._write_out("write_back", fd)

    def drop(self, fd: int, length: int) -> None:  # noqa: ARG002
        """See Disk."""
        self._call("drop")
        file = self._opened[fd]
        self._dropped.add(file)
        durable = self.files.contents[file]
        for write in self._only_cached.pop(file, []):
            super().write(fd, memoryview(durable)[write.at : write.at + len(write.data)], write.at)

    def read_past_cache(self, path: Path, out: np.ndarray, at: int) -> int:
        """See Disk. With faults, it reads less than it was to."""
        self._call("read_past_cache")
        self._look(self._names[path.name], len(out), at)
        data = path.read_bytes()[at : at + len(out)]
        got = self.chance.randint(0, len(data)) if self.faults.slow_ms else len(data)
        out[:got] = np.frombuffer(data, np.uint8)[:got]
        return got

    def clear(self, fd: int, length: int) -> None:
        """See Disk."""
        self._call("clear")
        self._write(fd, memoryview(bytes(length)), 0)

    def map(self, fd: int, length: int) -> np.ndarray:
        """See Disk."""
        self._call("map")
        self._look(self._opened[fd], length, 0)
        return super().read(fd, length, 0)

    def sync(self, fd: int) -> None:
        """See Disk. Data of a failed sync may never become durable: its pages are clean now, and
        the next sync succeeds."""
        self._write_out("sync", fd)
        self.files.apply(DiskOperation("sync", self._opened[fd]))

    def _write_out(self, method: str, fd: int) -> None:
        """Fail if the disk does, or if it has failed another descriptor of this file meanwhile:
        Linux tells each descriptor once (errseq_t)."""
        file = self._opened[fd]
        try:
            self._call(method)
        except OSError:
            self._lose(file)
            self._unheard |= {each for each, its in self._opened.items() if its == file}
            self._unheard.discard(fd)
            raise
        if fd in self._unheard:
            self._unheard.discard(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _lose(self, file: int) -> None:
        """Half of the unsynced writes never become durable: only the page cache has them."""
        writes = self.files.unsynced.pop(file, [])
        landed = [self.chance.random() < 0.5 for _ in writes]
        self.files.land(file, [*compress(writes, landed)])
        lost = [write for write, is_there in zip(writes, landed, strict=True) if not is_there]
        self._only_cached.setdefault(file, []).extend(lost)

    def replace(self, path: Path, data: bytes | memoryview) -> None:
        """See Disk. What a log writes as its checkpoint a start must take."""
        if path.name == FILE_NAME:
            assert Checkpoint.of(bytes(data), path) is not None
        try:
            self._call("replace")
        except OSError:
            self.faults.boot_is_unknown |= path.name == BOOT_FILE
            raise
        path.write_bytes(data)
        file = self._new_file(path.name)
        self.files.apply(DiskOperation("replace", file, path.name, data=bytes(data)))

    def rename(self, path: Path, target: Path) -> None:
        """See Disk. The directory is synced after it, unless the process dies between."""
        self._call("rename")
        path.rename(target)
        assert target.parent == self.directory
        self._names[target.name] = file = self._names.pop(path.name)
        self.files.apply(DiskOperation("rename", file, path.name, target=target.name))
        self.sync_directory(target.parent)

    def remove(self, path: Path) -> None:
        """See Disk."""
        self._call("remove")
        super().remove(path)
        if self._names.pop(path.name, None) is not None:
            self.files.apply(DiskOperation("remove", name=path.name))

    def space(self, path: Path) -> tuple[int, int]:  # noqa: ARG002
        """See Disk. The real disk is shared with other programs."""
        self._call("space")
        return self.faults.free_bytes, 1 << 41

    def sync_directory(self, path: Path) -> None:
        """See Disk."""
        assert path == self.directory
        self._call("sync_directory")
        self.files.apply(DiskOperation("directory"))

    def _new_file(self, name: str) -> int:
        self._names[name] = self._next_file
        self._next_file += 1
        return self._names[name]

    # --- what happens to it ----------------------------------------------------------------------

    def drop_descriptors(self) -> None:
        """Forget the descriptors of a dead process."""
        for fd in self._opened:
            os.close(fd)
        self._opened.clear()
        self._unheard.clear()

    def lose_power(self) -> None:
        """Keep a random subset of unsynced data, torn anywhere."""
        self.drop_descriptors()
        self.heal()
        chance, files = self.chance, self.files
        size, keep = chance.choice((SECTOR_BYTES, PAGE_BYTES)), chance.choice(KEPT_SHARES)
        for file, writes in files.unsynced.items():
            pieces = [piece for write in writes for piece in pieces_of(write, size)]
            files.land(file, [piece for piece in pieces if chance.random() < keep])
        files.move(chance.randint(0, len(files.moves)))
        before = {file: name for name, file in files.names.items()}
        write_image(files.image(), self.directory)
        self.files = Files(read_image(self.directory))
        self._only_cached.clear()
        self._names, self._next_file = dict(self.files.names), len(self.files.names)
        now = {file: self._names[name] for file, name in before.items()}
        self._dropped = {now[file] for file in self._dropped if file in now}
        self._bad = {(now[file], page) for file, page in self._bad if file in now}

    def flip_a_bit(self) -> bool:
        """Flip one bit of a segment's file, also on disk; False without a segment.

        Reads must detect it. No failure of ours does this, but disks do.
        """
        names = sorted(name for name in self._names if name.endswith(".wal"))
        if not names:
            return False
        path = self.directory / self.chance.choice(names)
        data = bytearray(path.read_bytes())
        written = len(bytes(data).rstrip(b"\0"))
        if not written:
            return False
        at, bit = self.chance.randrange(written), 1 << self.chance.randrange(8)
        data[at] ^= bit
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, data[at : at + 1], at)
        os.close(fd)
        self.files.contents[self._names[path.name]][at] ^= bit
        return True

    def heal(self) -> None:
        """Read what could not be read for a while."""
        self._bad -= self._passing
        self._passing.clear()

    def copy_with_zeros(self) -> None:
        """Replace the files of which pages are lost, as their operator does: zeros take the place
        of these, and can be read."""
        paths = {file: self.directory / name for name, file in self._names.items()}
        for file, page in self._bad - self._passing:
            content = self.files.contents[file]
            lost = slice(page, min(page + PAGE_BYTES, len(content)))
            content[lost] = bytes(lost.stop - lost.start)
            if file in paths:
                with paths[file].open("r+b") as copied:
                    copied.seek(page)
                    copied.write(bytes(lost.stop - lost.start))
        self._bad &= self._passing

    def has_bad_pages(self) -> bool:
        """Whether there are pages that cannot be read."""
        return bool(self._bad)

    def lose_a_page(
        self, which: int, *, is_passing: bool = False, is_cold: bool = False
    ) -> tuple[int, np.ndarray, int] | None:
        """Have a page of a segment that was dropped, or of any after the power was cut, be
        unreadable, until heal() if that `is_passing`; where the segment begins, its bytes (uint8),
        and where the page does. None: there is no such segment."""
        dropped = sorted(
            (name, file)
            for name, file in self._names.items()
            if name.endswith(".wal") and (is_cold or file in self._dropped)
        )
        if not dropped:
            return None
        name, file = dropped[which % len(dropped)]
        data = np.fromfile(self.directory / name, np.uint8)
        at = which // len(dropped) % -(-len(data) // PAGE_BYTES) * PAGE_BYTES
        if is_passing and (file, at) not in self._bad:
            self._passing.add((file, at))
        self._bad.add((file, at))
        return int(name.removesuffix(".wal")), data, at


def _nothing(_method: str) -> None:
    pass


FULL, BROKEN = errno.ENOSPC, errno.EIO
