"""Uploading a payload: a file, bytes in memory or a stream becomes an object of the filer.

    this host   unfinished file  ←  clone, copy in the kernel, one write  →  CRC  →  fsync  →  link
    elsewhere   CRC  →  create-only; a stream is spooled to a file before
    S3          in parts; an upload of the same bytes that broke is gone on with, as a rule of the
                name tells: same topic, length and CRC, and begun lately

The name says length and CRC (smq.model.references), so that it is known only when all bytes are. On
this host they go straight into the filer's directory and through no other process; what is there
under its name is whole and on disk. A file that is moved is not copied at all.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Protocol

from shm.arrow import read_only
from shm.kernels.crc32c import crc32c_update
from smq.filer.local import Draft, LocalStore
from smq.filer.s3 import S3Store
from smq.filer.store import Data, Sink
from smq.model.errors import AlreadyExists, NotFound
from smq.model.references import NotAHandle, Reference, begun_ms, directory_of, facts_of_id

FICLONE = 0x40049409  # ioctl: share the blocks of another file, where the file system can.
PIECE_BYTES = 1 << 20  # Of a stream, or of what goes to another store: fits a level-2 cache.
COPY_BYTES_MAX = 1 << 30  # Of one copy_file_range.
CRC_START = 0xFFFFFFFF


class Place(Protocol):
    """As much of a Store as payloads need."""

    def writing(self, key: str) -> AbstractContextManager[Sink]: ...
    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes: ...
    def local_path(self, key: str) -> Path | None: ...


class Stream(Protocol):
    """What has bytes to read, such as a file or a response."""

    def read(self, size: int, /) -> bytes: ...


class Naming:
    """Whose payload it is, and what it will be called but for what its bytes say.

    Of the same bytes, an upload that broke is gone on with if it was begun less than `lately_ms`
    ago.
    """

    def __init__(  # noqa: PLR0913  (These are its parts.)
        self,
        namespace: str,
        topic: str,
        content_type: str,
        now_ms: int,
        chance: bytes,
        *,
        lately_ms: int = 0,
    ) -> None:
        self._directory = directory_of(namespace, topic)
        self._facts = now_ms, chance, content_type
        self._since_ms = now_ms - lately_ms

    def reference(self, length: int, crc32c: int) -> Reference:
        """The reference of these bytes. Raises ValueError."""
        now_ms, chance, content_type = self._facts
        return Reference.of(now_ms, chance, length, crc32c, content_type)

    def key(self, reference: Reference) -> str:
        """Where they will be in the filer."""
        return self._directory + reference.id

    def is_same(self, reference: Reference, key: str) -> bool:
        """Whether an unfinished upload to this key is one of the same bytes, begun lately."""
        payload_id = key.removeprefix(self._directory)
        try:
            facts = facts_of_id(payload_id)
        except NotAHandle:
            return False
        same = facts == (reference.length, reference.crc32c)
        return same and begun_ms(payload_id) > self._since_ms

    def named(self, reference: Reference, key: str) -> Reference:
        """The reference of the same bytes at another key."""
        return replace(reference, id=key.removeprefix(self._directory))


def upload_buffer(store: Place, naming: Naming, data: Data) -> Reference:
    """Bytes in memory. Raises StoreError."""
    return _send(store, naming, memoryview(data).cast("B"))


def upload_file(store: Place, naming: Naming, path: Path, *, move: bool = False) -> Reference:
    """A file; `move`: it becomes the payload itself, and is gone. Raises OSError, StoreError."""
    if isinstance(store, LocalStore):
        with store.draft() as draft:
            if not (move and _moved(path, draft)):
                with path.open("rb", buffering=0) as source:
                    _clone_or_copy(source.fileno(), draft.fd)
            reference = _publish(draft, naming)
    else:
        with path.open("rb", buffering=0) as source:
            reference = _send(store, naming, _mapped(source.fileno()))
    if move:
        path.unlink(missing_ok=True)
    return reference


def upload_stream(store: Place, naming: Naming, stream: Stream) -> Reference:
    """Whatever can be read, to its end. Raises StoreError, and what `read` does."""
    if isinstance(store, LocalStore):
        with store.draft() as draft:
            _write_all(draft.fd, stream)
            return _publish(draft, naming)
    with tempfile.TemporaryFile() as spool:
        _write_all(spool.fileno(), stream)
        return _send(store, naming, _mapped(spool.fileno()))


def crc_of(data: Data, crc: int = 0) -> int:
    """The CRC-32C of bytes that follow others, of which it is `crc`."""
    return int(crc32c_update(read_only(data), 0, len(data), crc ^ CRC_START)) ^ CRC_START


def _publish(draft: Draft, naming: Naming) -> Reference:
    view = _mapped(draft.fd)
    reference = naming.reference(len(view), crc_of(view))
    draft.publish(naming.key(reference))
    return reference


def _send(store: Place, naming: Naming, view: memoryview) -> Reference:
    reference = naming.reference(len(view), crc_of(view))
    key = naming.key(reference)
    with _perhaps_there(store, key):
        if isinstance(store, S3Store):
            key = store.upload(key, view, partial(naming.is_same, reference))
        else:
            with store.writing(key) as sink:
                for at in range(0, len(view), PIECE_BYTES):
                    sink.write(view[at : at + PIECE_BYTES])
    return naming.named(reference, key)


@contextmanager
def _perhaps_there(store: Place, key: str) -> Iterator[None]:
    """A store that tries again by itself may find what it has written: no other has this key.

    Raises AlreadyExists: something else is in its way, such as an object called `payloads`.
    """
    try:
        yield
    except AlreadyExists as in_the_way:
        try:
            store.get(key, 0, 1)
        except NotFound:
            raise in_the_way from None


def _moved(path: Path, draft: Draft) -> bool:
    """Make the file itself the draft, if it is on the same file system and a plain file of ours."""
    if path.is_symlink() or path.stat().st_nlink > 1:
        return False
    try:
        draft.take(path)
    except OSError:  # Another file system, or not allowed: it is copied.
        return False
    return True


def _clone_or_copy(source: int, target: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(target, FICLONE, source)
        return
    left = os.fstat(source).st_size
    try:
        while left > 0 and (
            copied := os.copy_file_range(source, target, min(left, COPY_BYTES_MAX))
        ):
            left -= copied
    except OSError:  # It is not of a kind the kernel copies.
        os.lseek(source, 0, os.SEEK_SET)
        os.ftruncate(target, 0)
        os.lseek(target, 0, os.SEEK_SET)
        with os.fdopen(source, "rb", buffering=0, closefd=False) as stream:
            _write_all(target, stream)


def _write_all(fd: int, stream: Stream) -> None:
    while piece := stream.read(PIECE_BYTES):
        left = memoryview(piece)
        while left:
            left = left[os.write(fd, left) :]


def _mapped(fd: int) -> memoryview:
    """The bytes of a file that nobody writes any more; unmapped with the last view of them."""
    is_empty = os.fstat(fd).st_size == 0  # An empty file cannot be mapped.
    return memoryview(b"" if is_empty else mmap(fd, 0, access=ACCESS_READ))
