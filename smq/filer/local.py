"""A store in a local directory: each object a file, its key the path below the root.

    write   .unfinished/<random>  →  fsync  →  link (CREATE) or rename  →  fsync of the directory

A link fails when the name is taken, so one of two creators wins; a rename replaces. Every change of
an object's name holds a lock on the root directory, so IfMatch compares and replaces in one step,
between processes too. All wait for that lock: the file that loses its name is freed after it. An
object's version is its inode, time and length. Replacing an object always raises its time, whatever
the granularity of the filesystem's clock.

A writer holds a lock on its unfinished file. The lock ends with the process, so an unfinished file
without a lock was abandoned, and the sweep removes it.

A directory exists as long as an object is below it: deleting the last one removes it, which frees
the name. Directories are made and removed without the lock: each takes the disk some milliseconds.
A writer names its file in a directory that it holds open, so it notices when a deletion has removed
that one, and makes it again. A writer that is killed leaves empty directories: whoever wants their
name removes them.

Symbolic links below the root are made by the operator, never by a write. They are followed, but a
list never follows a loop. Files whose names are no valid keys are ignored.
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, TypeAlias

from smq.filer.directories import (
    is_removed_if_hollow,
    make_directory,
    open_made,
    remove_empty,
    sync_directory,
)
from smq.filer.mark import directory_mode, file_mode
from smq.filer.reserve import Reserve
from smq.filer.store import (
    CREATE,
    NOTHING_IDLE,
    UNFINISHED_MAX,
    Capabilities,
    Data,
    Facts,
    IfMatch,
    Mode,
    OpenObject,
    Sink,
    Store,
    checked_key,
    is_key,
)
from smq.model.errors import (
    AlreadyExists,
    Full,
    NotFound,
    PreconditionFailed,
    Unavailable,
)

if sys.platform != "win32":  # Programs there import this file, and use filers over HTTP.
    import fcntl

UNFINISHED = ".unfinished"  # No key starts with a dot.
NANOSECONDS_PER_MS = 1_000_000
PIECE_BYTES = 1 << 18  # Read at a time: larger pieces are not faster.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_IS_THERE = "there is an object already"
_IS_PART = "its name is a directory of other objects"
_Inode = tuple[int, int]
_Entry: TypeAlias = os.DirEntry[str]
PUBLISH_ATTEMPTS_MAX = 100  # Each fails only when another writer comes between two of its steps.
DIRECTORIES_MAX = 64  # Of which something is remembered that was put there.
SORTED_AT_ONCE = 4096  # Names of a directory: some milliseconds, in which no other thread runs.


class LocalStore(Store):
    """Objects as files below a directory, which the first write creates if it does not exist.

    Reading needs no write permission. Uploads leave `reserve_bytes` of the disk free for the log;
    0 turns the check off. `drops_pages`: what is written does not stay in the page cache.
    """

    def __init__(self, root: Path, reserve_bytes: int = 0, *, drops_pages: bool = False) -> None:
        self.root, self._drops_pages = root.absolute(), drops_pages
        self._reserve = Reserve(self.root, reserve_bytes)
        self._last_names: dict[Path, str] = {}  # In a directory; it may be gone since.

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(if_match=True, local_paths=True)

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what the block writes."""
        self._path(key)
        with self.draft() as draft:
            yield draft.sink(key)
            draft.publish(key, mode)

    @contextmanager
    def draft(self) -> Iterator["Draft"]:
        """A file to fill, then to publish under a name that may depend on its content."""
        draft = Draft(self, self._unfinished() / secrets.token_hex(16))
        try:
            yield draft
        finally:
            draft.close()

    def publish(self, draft: "Draft", key: str, mode: Mode) -> None:
        """Publish a finished draft under its key."""
        path = self._path(key)
        with _failures(key):
            os.fsync(draft.fd)
            if self._drops_pages:
                os.posix_fadvise(draft.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for _ in range(PUBLISH_ATTEMPTS_MAX):
                if self._published(draft, path, key, mode):
                    return
        raise Unavailable(key, "others remove its directories again and again")

    def _published(self, draft: "Draft", path: Path, key: str, mode: Mode) -> bool:
        """Publish a draft, unless others remove or make directories meanwhile; whether it is
        published.
        """
        last_name = self._last_names.get(path.parent, "")
        try:
            directory = open_made(self.root, path.parent, directory_mode(self.root), last_name)
        except FileNotFoundError:
            return False
        except (FileExistsError, NotADirectoryError):
            raise AlreadyExists(key, "part of its name is an object") from None
        try:
            if path.is_dir() and not is_removed_if_hollow(path):
                raise AlreadyExists(key, _IS_PART)
            with _freed_afterwards(path), self._names_locked():
                # The caller frees its log for it: what gets the name is what was synced.
                assert _inode(draft.path.stat()) == _inode(os.fstat(draft.fd))
                _take_name(draft.path, directory, key, mode)
            os.fsync(directory)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False  # Its directory has gone, or its name is one.
        except PreconditionFailed:
            remove_empty(path.parent, self.root)
            raise
        finally:
            os.close(directory)
        if len(self._last_names) >= DIRECTORIES_MAX:
            self._last_names.clear()
        self._last_names[path.parent] = path.name
        return True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object."""
        with _failures(key), self._path(key).open("rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        """A range of an object in pieces, all from one file, even if the object is replaced."""
        with _failures(key):
            file = self._path(key).open("rb", buffering=0)
        with file:
            facts = _facts_of_object(key, os.fstat(file.fileno()))
            end = facts.length if length is None else min(facts.length, start + length)
            yield OpenObject(facts, _pieces(key, file.fileno(), start, end))

    def head(self, key: str) -> Facts:
        """An object's facts."""
        path = self._path(key)
        with _failures(key):
            found = path.stat()
        return _facts_of_object(key, found)

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects in the order of their keys."""
        return self._walk(self.root, "", prefix.encode(), after.encode(), frozenset())

    def outdate(self, key: str) -> None:
        """Make the file's time 0: a copy's where another user owns the file, as only the owner may
        set its time."""
        path = self._path(key)
        with suppress(NotFound), _failures(key), path.open("rb") as file:
            try:
                os.utime(file.fileno(), (0, 0))
            except PermissionError:
                self._outdate_copy(path, file, key)
                return
            os.fsync(file.fileno())

    def _outdate_copy(self, path: Path, file: BinaryIO, key: str) -> None:
        """Replace a file by an old copy, unless it has been replaced meanwhile."""
        with self.draft() as draft:
            sink = draft.sink(key)
            for piece in iter(partial(file.read, PIECE_BYTES), b""):
                sink.write(piece)
            os.fchmod(draft.fd, stat.S_IMODE(os.fstat(file.fileno()).st_mode))
            os.utime(draft.fd, (0, 0))
            os.fsync(draft.fd)
            with self._names_locked():
                if _inode(path.stat()) == _inode(os.fstat(file.fileno())):
                    draft.path.rename(path)
            sync_directory(path.parent)

    def delete(self, key: str) -> None:
        """Remove an object."""
        path = self._path(key)
        with _failures(key):
            if not path.is_file():
                return
            with _freed_afterwards(path), self._names_locked():
                path.unlink(missing_ok=True)
            remove_empty(path.parent, self.root)

    def sweep(self, idle: Mapping[str, int] = NOTHING_IDLE) -> dict[str, int]:
        """Remove unfinished files that are idle, or whose writer is gone."""
        left: dict[str, int] = {}
        with _failures(UNFINISHED):
            if not (self.root / UNFINISHED).exists():
                return left
            for entry in os.scandir(self.root / UNFINISHED):
                with suppress(FileNotFoundError):
                    touched_ms = entry.stat().st_mtime_ns // NANOSECONDS_PER_MS
                    is_idle = idle.get(entry.name) == touched_ms
                    is_gone = _remove(entry.path) if is_idle else _remove_left(entry.path)
                    if not is_gone and len(left) < UNFINISHED_MAX:
                        left[entry.name] = touched_ms
        return left

    def local_path(self, key: str) -> Path | None:
        """The object's file."""
        return self._path(key)

    def check_room(self, key: str, byte_count: int) -> None:
        """Raises Full when a write of this size would use the log's reserve."""
        if self._reserve.byte_count:
            self._reserve.check(key, byte_count)

    def _unfinished(self) -> Path:
        """The directory of unfinished writes, created if needed."""
        directory = self.root / UNFINISHED
        try:
            if not directory.is_dir():
                make_directory(directory, directory_mode(self.root))
        except OSError as reason:
            raise Unavailable(str(self.root), f"files cannot be kept there: {reason}") from reason
        return directory

    def _path(self, key: str) -> Path:
        return self.root / checked_key(key)

    @contextmanager
    def _names_locked(self) -> Iterator[None]:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _walk(
        self, directory: Path, base: str, prefix: bytes, after: bytes, above: frozenset[_Inode]
    ) -> Iterator[Facts]:
        try:
            with _failures(base):
                here = above | {_inode(directory.stat())}
                entries = [
                    (raw, each)
                    for each in os.scandir(directory)
                    if is_key(base + each.name)
                    and not _leads_back(each, here)
                    # The slash sorts a directory where its objects do: "a-b" before "a/b".
                    and _may_list(raw := _raw(base, each), prefix, after)
                ]
        except NotFound:  # Removed during the listing.
            return
        for raw, entry in _in_order(entries):
            key = raw.decode()
            if key.endswith("/"):
                yield from self._walk(directory / entry.name, key, prefix, after, here)
            else:
                with suppress(FileNotFoundError):
                    yield _facts(key, entry.stat())


class Draft:
    """A file without a key yet. The end of its block removes it, unless it was published.

    `fd` is open for reading and writing.
    """

    def __init__(self, store: LocalStore, path: Path) -> None:
        self._store, self.path = store, path
        with _failures(UNFINISHED):
            self.fd = _created(path, file_mode(store.root))

    def sink(self, key: str) -> "DraftSink":
        """A sink that writes to the draft; errors name `key`."""
        return DraftSink(self._store, key, self.fd)

    def publish(self, key: str, mode: Mode = CREATE) -> None:
        """Name it. Raises AlreadyExists, PreconditionFailed, Unavailable."""
        self._store.publish(self, key, mode)

    def take(self, path: Path) -> None:
        """Replace the draft by a hard link to a file of the same file system. Raises OSError."""
        linked = self.path.with_suffix(".linked")
        linked.hardlink_to(path)
        try:
            with linked.open("rb+", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(self.fd).st_mode))  # As a copy's.
                os.utime(linked)  # An old time would look like an abandoned draft.
                linked.replace(self.path)
                os.dup2(file.fileno(), self.fd, inheritable=False)
        finally:
            linked.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the draft."""
        os.close(self.fd)
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class DraftSink:
    """A sink that repeats partial writes until all bytes are written."""

    def __init__(self, store: LocalStore, key: str, fd: int) -> None:
        self._store, self._key, self._fd = store, key, fd
        self.closed = False

    def check_room(self, byte_count: int) -> None:
        """Raises Full when there is no room for this many more bytes."""
        self._store.check_room(self._key, byte_count)

    def write(self, data: Data, /) -> int:
        """Write all of it."""
        left = memoryview(data).cast("B")
        length = len(left)
        self.check_room(length)
        with _failures(self._key):
            while left:
                left = left[os.write(self._fd, left) :]
        return length


def _created(path: Path, mode: int) -> int:
    """A new file, locked."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # A sweep removed it before it was locked.


def _remove(path: str) -> bool:
    Path(path).unlink()
    return True


def _remove_left(path: str) -> bool:
    """Remove an unfinished file unless its writer holds it; returns whether it was removed."""
    with suppress(OSError), Path(path).open("rb") as file:  # OSError: locked, or not readable.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file.fileno()).st_nlink > 0 and _remove(path)
    return False


def _take_name(unfinished: Path, directory: int, key: str, mode: Mode) -> None:
    """Move the finished file to its key's place in an open directory. The caller holds the lock on
    names. Raises FileNotFoundError if the directory has been removed; IsADirectoryError if a writer
    has just made one of that name, which may stay empty.
    """
    name = key.rpartition("/")[2]
    if mode == CREATE:
        try:
            os.link(unfinished, name, dst_dir_fd=directory)
        except FileExistsError:
            _status(name, directory)
            raise AlreadyExists(key, _IS_THERE) from None
        return
    existing = _status(name, directory)
    if isinstance(mode, IfMatch) and (
        existing is None or _facts(key, existing).version != mode.version
    ):
        raise PreconditionFailed(key, f"the object is not at version {mode.version}")
    if existing is not None:
        modified_ns = max(unfinished.stat().st_mtime_ns, existing.st_mtime_ns + 1)
        os.utime(unfinished, ns=(modified_ns, modified_ns))
    os.rename(unfinished, name, dst_dir_fd=directory)


def _status(name: str, directory: int) -> os.stat_result | None:
    """What has a name in a directory. Raises IsADirectoryError."""
    try:
        found = os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, _IS_PART)
    return found


@contextmanager
def _freed_afterwards(path: Path) -> Iterator[None]:
    """The block may take a file's last name, but its room is freed after it: of a large file that
    takes long.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # Most names are new.
        yield
        return
    try:
        yield
    finally:
        os.close(fd)


def _pieces(key: str, fd: int, at: int, end: int) -> Iterator[Data]:
    while at < end:
        with _failures(key):
            piece = os.pread(fd, min(PIECE_BYTES, end - at), at)
        if not piece:
            raise Unavailable(key, "the file was truncated during the read")
        at += len(piece)
        yield piece


def _facts_of_object(key: str, found: os.stat_result) -> Facts:
    if not stat.S_ISREG(found.st_mode):
        raise NotFound(key, "there is no such object")
    return _facts(key, found)


def _facts(key: str, found: os.stat_result) -> Facts:
    version = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
    return Facts(key, found.st_size, version, found.st_mtime_ns // NANOSECONDS_PER_MS)


def _inode(found: os.stat_result) -> _Inode:
    return found.st_dev, found.st_ino


def _raw(base: str, entry: _Entry) -> bytes:
    """What the keys of a file, or of the objects of a directory, begin with."""
    return f"{base}{entry.name}{'/' * entry.is_dir()}".encode()


def _may_list(raw: bytes, prefix: bytes, after: bytes) -> bool:
    """Whether a file is listed, or any object of a directory may be."""
    if raw[: len(prefix)] != prefix[: len(raw)]:
        return False
    if raw.endswith(b"/"):
        return raw >= after[: len(raw)]
    return len(raw) >= len(prefix) and raw > after


def _in_order(entries: list[tuple[bytes, _Entry]]) -> Iterator[tuple[bytes, _Entry]]:
    """Sorted in runs, which are merged as far as they are read."""
    starts = range(0, len(entries), SORTED_AT_ONCE)
    runs = (sorted(entries[at : at + SORTED_AT_ONCE], key=itemgetter(0)) for at in starts)
    return merge(*runs, key=itemgetter(0))


def _leads_back(entry: os.DirEntry[str], above: frozenset[_Inode]) -> bool:
    """Whether it is a link to itself or to a directory above it."""
    if not entry.is_symlink():
        return False
    try:
        return _inode(entry.stat()) in above
    except OSError as reason:
        if reason.errno in {errno.ENOENT, errno.ELOOP}:
            return reason.errno == errno.ELOOP
        raise


@contextmanager
def _failures(key: str) -> Iterator[None]:
    """Turns OSError into StoreError."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as reason:
        raise NotFound(key, "there is no such object") from reason
    except OSError as reason:
        if reason.errno in _FULL:
            raise Full(key, "the filesystem is full") from reason
        raise Unavailable(key, reason.strerror or str(reason)) from reason
