"""Uploading a payload: a file, bytes in memory or a stream becomes an object of the filer.

    this host   unfinished file  ←  clone, copy in the kernel, one write  →  CRC  →  fsync  →  link
    elsewhere   CRC  →  create-only; a stream is spooled to a file first
    S3          in parts; resumes an interrupted upload of the same bytes: same topic, length and
                CRC in its name, begun recently

The name contains length and CRC (smq.model.references), so it is known after the last byte. On this
host the bytes go straight into the filer's directory, through no other process; a named object is
whole and on disk. Moving a file copies nothing. A file without a length, such as a pipe or a file
of /proc, is read as a stream.

The source may change during the upload. The stored bytes match the object's name, or nothing is
stored.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Protocol

from smq.filer.content import Content, SourceChanged
from smq.filer.local import Draft, LocalStore
from smq.filer.s3 import S3Store
from smq.filer.store import CREATE, Data, Mode, Sink
from smq.model.errors import AlreadyExists, NotFound
from smq.model.references import NotAHandle, Reference, begun_ms, directory_of, facts_of_id

if sys.platform != "win32":  # Programs there import this file, and use filers over HTTP.
    import fcntl

FICLONE = 0x40049409  # ioctl: share the blocks of another file, where the file system can.
PIECE_BYTES = 1 << 20  # Read at a time, of a stream or for another store: fits a level-2 cache.
COPY_BYTES_MAX = 1 << 30  # Of one copy_file_range.


class UploadTarget(Protocol):
    """The part of a Store that payloads need."""

    def writing(self, key: str, mode: Mode = CREATE) -> AbstractContextManager[Sink]: ...
    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes: ...
    def local_path(self, key: str) -> Path | None: ...


class Stream(Protocol):
    """A source of bytes, such as a file or a response."""

    def read(self, size: int, /) -> bytes: ...


class Naming:
    """The parts of a payload's name that do not depend on its bytes.

    An interrupted upload of the same bytes is resumed if it began less than `lately_ms` ago.
    """

    def __init__(  # noqa: PLR0913  (These are its parts.)
        self,
        namespace: str,
        topic: str,
        content_type: str,
        wall_ms: int,
        chance: bytes,
        *,
        lately_ms: int = 0,
    ) -> None:
        self.directory = directory_of(namespace, topic)
        self._facts = wall_ms, chance, content_type
        self._since_ms = wall_ms - lately_ms

    def reference(self, length: int, crc32c: int) -> Reference:
        """The reference of these bytes. Raises ValueError."""
        wall_ms, chance, content_type = self._facts
        return Reference.of(wall_ms, chance, length, crc32c, content_type)

    def key(self, reference: Reference) -> str:
        """Its key in the filer."""
        return self.directory + reference.id

    def is_same(self, reference: Reference, key: str) -> bool:
        """Whether an unfinished upload to this key has the same bytes and began recently."""
        payload_id = key.removeprefix(self.directory)
        try:
            facts = facts_of_id(payload_id)
        except NotAHandle:
            return False
        same = facts == (reference.length, reference.crc32c)
        return same and begun_ms(payload_id) > self._since_ms

    def named(self, reference: Reference, key: str) -> Reference:
        """The reference of the same bytes at another key."""
        assert key.startswith(self.directory), "a payload of another topic is swept with that one"
        return replace(reference, id=key.removeprefix(self.directory))


def upload_buffer(store: UploadTarget, naming: Naming, data: Data) -> Reference:
    """Upload bytes in memory. Raises StoreError."""
    view = memoryview(data).cast("B")
    if isinstance(store, LocalStore):
        with store.draft() as draft:
            sink = draft.sink(naming.directory)
            for at in range(0, len(view), PIECE_BYTES):
                sink.write(view[at : at + PIECE_BYTES])
            return _publish(draft, naming, store)
    return _send(store, naming, Content.of_memory(view))


def upload_file(
    store: UploadTarget, naming: Naming, path: Path, *, move: bool = False
) -> Reference:
    """Upload a file; with `move` the file becomes the payload and its path is removed.

    Raises ValueError (only regular files can be moved), SourceChanged, OSError, StoreError.
    """
    if move and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(
            f"move is true, but {path} is not a regular file; only regular files can be moved"
        )
    if isinstance(store, LocalStore):
        with store.draft() as draft:
            if not (move and _moved(path, draft)):
                with path.open("rb", buffering=0) as source:
                    _clone_or_copy(source, draft, naming.directory)
            reference = _publish(draft, naming, store)
    else:
        with path.open("rb", buffering=0) as source:
            if _is_stream(os.fstat(source.fileno())):
                reference = upload_stream(store, naming, source)
            else:
                reference = _send(store, naming, Content.of_file(str(path), source.fileno()))
    if move:
        path.unlink(missing_ok=True)
    return reference


def upload_stream(store: UploadTarget, naming: Naming, stream: Stream) -> Reference:
    """Upload a stream to its end.

    Raises TypeError (`read` returns no bytes), BlockingIOError (the stream does not block),
    StoreError, and what `read` raises.
    """
    if isinstance(store, LocalStore):
        with store.draft() as draft:
            _write_all(draft.sink(naming.directory), stream)
            return _publish(draft, naming, store)
    with tempfile.TemporaryFile() as spool:
        _write_all(spool, stream)
        spool.flush()
        return _send(store, naming, Content.of_file("the spooled stream", spool.fileno()))


def _publish(draft: Draft, naming: Naming, store: UploadTarget) -> Reference:
    content = Content.of_file("the unfinished file", draft.fd)
    reference = naming.reference(content.length, content.crc32c)
    key = naming.key(reference)
    with _perhaps_there(store, key):
        draft.publish(key)
    return reference


def _send(store: UploadTarget, naming: Naming, content: Content) -> Reference:
    reference = naming.reference(content.length, content.crc32c)
    key = naming.key(reference)
    with _perhaps_there(store, key):
        if isinstance(store, S3Store):
            key = store.upload(key, content, partial(naming.is_same, reference))
        else:
            with store.writing(key) as sink:
                for piece in content.pieces(PIECE_BYTES):
                    sink.write(piece)
    return naming.named(reference, key)


@contextmanager
def _perhaps_there(store: UploadTarget, key: str) -> Iterator[None]:
    """Accepts AlreadyExists if the payload exists: a store that retries may find its own write.

    Raises AlreadyExists if something else is in the way, such as an object called `payloads`.
    """
    try:
        yield
    except AlreadyExists as in_the_way:
        try:
            store.get(key, 0, 1)
        except NotFound:
            raise in_the_way from None


def _moved(path: Path, draft: Draft) -> bool:
    """Make the file itself the draft; False if it has links or cannot be linked."""
    if path.is_symlink() or path.stat().st_nlink > 1:
        return False
    try:
        draft.take(path)
    except OSError:  # Another file system, or no permission: copy it.
        return False
    return True


def _is_stream(found: os.stat_result) -> bool:
    """Whether a file's length is unknown until it has been read."""
    return not stat.S_ISREG(found.st_mode) or found.st_size == 0


def _clone_or_copy(source: FileIO, draft: Draft, key: str) -> None:
    """Copy the file as of one moment. Raises SourceChanged, OSError, StoreError about the key."""
    before = os.fstat(source.fileno())
    if _is_stream(before):
        _write_all(draft.sink(key), source)
        return
    with suppress(OSError):
        fcntl.ioctl(draft.fd, FICLONE, source.fileno())
        return
    _copy(source, draft, key, before.st_size)
    after = os.fstat(source.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise SourceChanged(str(source.name))


def _copy(source: FileIO, draft: Draft, key: str, length: int) -> None:
    sink = draft.sink(key)
    with suppress(OSError):  # The kernel cannot copy it; or the sink will fail the same way.
        while length > 0:
            wanted = min(length, COPY_BYTES_MAX)
            sink.check_room(wanted)
            if not (copied := os.copy_file_range(source.fileno(), draft.fd, wanted)):
                break
            length -= copied
    if length > 0:
        _write_all(sink, source)  # From where the kernel stopped.


def _write_all(target: Sink, stream: Stream) -> None:
    while piece := _read(stream):
        target.write(piece)


def _read(stream: Stream) -> memoryview:
    """The next piece; empty at the end. Raises TypeError, BlockingIOError."""
    piece: object = stream.read(PIECE_BYTES)
    if piece is None:
        raise BlockingIOError("source returned None; it must block until it has bytes")
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"reading source gives a {type(piece).__name__}; it must give bytes, as a file opened "
            'with "rb" does'
        )
    return memoryview(piece).cast("B")
