"""A store in a bucket of Amazon S3, or of a server that speaks its protocol, through obstore.

    up to PART_BYTES   one PUT, on condition
    longer             parts → .unfinished/<random> → copied to the key by the server, on condition

S3 takes a condition where an upload ends, but the library passes it on for whole objects and for
copies only: hence the detour, which costs a request and no bytes of ours. What is left of a write
that was killed is either an object below .unfinished, which `sweep` deletes, or parts that S3 shows
to nobody who lists: a rule of the bucket (AbortIncompleteMultipartUpload) is for these.

An object's version is its ETag: the same bytes written again are the same version. Importing this
module is cheap; obstore, and with it a pool of threads, comes with the first S3Store. Never make
one in a process that forks.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from smq.filer.store import (
    CREATE,
    OVERWRITE,
    Capabilities,
    Data,
    Facts,
    IfMatch,
    Mode,
    Reading,
    Sink,
    checked_key,
)
from smq.model.errors import (
    AlreadyExists,
    NotFound,
    PreconditionFailed,
    StoreError,
    Unavailable,
)

MiB = 1024 * 1024
UNFINISHED = ".unfinished"  # No key starts with a dot.
# S3 wants 5 MiB at least; a part must go through a slow line before REQUEST_WAIT ends.
PART_BYTES = 8 * MiB
PARTS_AT_ONCE = 2  # One is sent while the next is filled; more only takes memory.
# S3 copies no more in one request; and 10,000 parts are more than that.
OBJECT_BYTES_MAX = 5 * 1024 * MiB
IF_MATCH_BYTES_MAX = 64 * MiB  # Such a write is one request, so that it is held in memory.
PIECE_BYTES = MiB
LIST_CHUNK = 1000  # What one request lists.
CONNECT_WAIT = "3s"
REQUEST_WAIT = "30s"
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}
REASON_CHARS_MAX = 300
METADATA_ADDRESS = "169.254.169.254"  # Where the library looks for keys when nobody gave any.


class Unfit(StoreError):
    """This store cannot keep a promise that ours must keep; it is not to be used."""


class Access(TypedDict, total=False):
    """How a bucket is reached, in obstore's words; what is missing the AWS environment tells."""

    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str


class S3Store:
    """Objects of a bucket whose names start with a prefix."""

    def __init__(self, bucket: str, prefix: str = "", access: Access | None = None) -> None:
        import obstore  # noqa: PLC0415  (It starts threads.)

        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        import obstore.store  # noqa: PLC0415

        self._library: Any = obstore  # Its types cannot be imported when it runs.
        try:
            self._store = self._library.store.S3Store(
                bucket,
                prefix=prefix.strip("/") or None,
                config={**(access or Access()), "copy_if_not_exists": "multipart"},
                client_options={
                    "allow_http": True,  # Who names an endpoint http://… means it.
                    "connect_timeout": CONNECT_WAIT,
                    "timeout": REQUEST_WAIT,
                },
                retry_config=RETRIES,
            )
        except (obstore.exceptions.BaseError, ValueError) as reason:
            raise StoreError(self.name, f"it cannot be used: {_said(reason)}") from reason

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(if_match=True, local_paths=False)

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        """Store an object."""
        with self.writing(key, mode) as sink:
            sink.write(data)
        return self.head(key)

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what is written in the block."""
        upload = _Upload(self, checked_key(key), mode)
        try:
            yield upload
            upload.finish()
        finally:
            upload.forget()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object."""
        with self.reading(key, start, length) as reading:
            return b"".join(reading.pieces)

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[Reading]:
        """A range of an object, piece by piece: one request, so one version."""
        facts = None if start == 0 and length is None else self.head(key)
        if facts is not None and (start >= facts.length or length == 0):
            yield Reading(facts, iter(()))  # S3 refuses a range of nothing.
            return
        found = self._get(checked_key(key), start, length)
        yield Reading(_facts(key, found.meta), self._pieces(key, found))

    def head(self, key: str) -> Facts:
        """An object's facts."""
        with self.failures(key):
            return _facts(key, self._library.head(self._store, checked_key(key)))

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects in the order of their keys."""
        for facts in self._listed(prefix, after):
            if facts.key.startswith(prefix) and facts.key > after and facts.key[0] != ".":
                yield facts
            elif facts.key > prefix and not facts.key.startswith(prefix):
                return

    def delete(self, key: str) -> None:
        """Remove an object."""
        with suppress(NotFound), self.failures(key):
            self._library.delete(self._store, checked_key(key))

    def sweep(self, before_ms: int) -> int:
        """Remove what writes left behind that were killed between their upload and its copy."""
        old = [
            facts.key
            for facts in self._listed(f"{UNFINISHED}/", "")
            if facts.modified_ms < before_ms
        ]
        for key in old:
            with self.failures(key):
                self._library.delete(self._store, key)
        return len(old)

    def local_path(self, key: str) -> Path | None:
        """None: it is elsewhere."""
        checked_key(key)
        return None

    def probe(self) -> None:
        """Try what we rely on and not every server does. Raises Unfit; Unavailable."""
        key = self.unfinished_name()
        try:
            self.put_whole(key, b"1", OVERWRITE)
            for create in (
                partial(self.put_whole, key, b"2", CREATE),
                partial(self.copy, key, key, CREATE),
            ):
                with suppress(AlreadyExists):
                    create()
                    raise Unfit(
                        self.name,
                        "it replaces an object that was only to be created (it ignores "
                        "If-None-Match), so that two writers could destroy each other's work",
                    )
        finally:
            with suppress(StoreError), self.failures(key):
                self._library.delete(self._store, key)

    # --- for _Upload -----------------------------------------------------------------------------

    def unfinished_name(self) -> str:
        """A name nobody else has."""
        return f"{UNFINISHED}/{secrets.token_hex(16)}"

    def put_whole(self, key: str, data: Data, mode: Mode) -> None:
        """One request."""
        condition = {"e_tag": mode.version} if isinstance(mode, IfMatch) else mode
        with self.failures(key, writes=True, mode=mode):
            self._library.put(
                self._store,
                key,
                memoryview(data),
                mode=condition,
                use_multipart=False,
            )

    def copy(self, source: str, key: str, mode: Mode) -> None:
        """Give an object another name as well."""
        with self.failures(key, writes=True, mode=mode):
            self._library.copy(self._store, source, key, overwrite=mode == OVERWRITE)

    def open_writer(self, key: str) -> Any:  # noqa: ANN401
        """A file that is uploaded in parts."""
        return self._library.open_writer(
            self._store, key, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )

    def remove_unfinished(self, key: str) -> None:
        """Delete it; a sweep does if this cannot."""
        with suppress(StoreError), self.failures(key):
            self._library.delete(self._store, key)

    @contextmanager
    def failures(
        self, key: str, *, writes: bool = False, mode: Mode | None = None
    ) -> Iterator[None]:
        """What the library says, in the store's words."""
        errors = self._library.exceptions
        try:
            yield
        except FileNotFoundError as reason:
            if writes:
                raise Unavailable(key, f"there is no bucket {self.name}") from reason
            raise NotFound(key, "there is no such object") from reason
        except (errors.AlreadyExistsError, errors.PreconditionError) as reason:
            if isinstance(mode, IfMatch):
                raise PreconditionFailed(key, f"it is not version {mode.version}") from reason
            raise AlreadyExists(key, "there is an object already") from reason
        except (errors.InvalidPathError, ValueError) as reason:
            raise StoreError(key, f"it is no name: {_said(reason)}") from reason
        except (errors.BaseError, OSError) as reason:
            raise Unavailable(key, f"{self.name}: {_said(reason)}") from reason

    def _get(self, key: str, start: int, length: int | None) -> Any:  # noqa: ANN401
        wanted: Any = {"offset": start} if length is None else (start, start + length)
        options: Any = {} if start == 0 and length is None else {"range": wanted}
        with self.failures(key):
            return self._library.get(self._store, key, options=options)

    def _pieces(self, key: str, found: Any) -> Iterator[Data]:  # noqa: ANN401
        pieces = found.stream(min_chunk_size=PIECE_BYTES)
        while True:
            with self.failures(key):
                piece = next(pieces, None)
            if piece is None:
                return
            yield memoryview(piece)

    def _listed(self, prefix: str, after: str) -> Iterator[Facts]:
        """What is in the prefix's directory, from the first of these keys on; and others."""
        directory = prefix.rpartition("/")[0]
        if directory and not (directory == UNFINISHED or _is_key(directory)):
            return
        after = max(after, prefix[:-1])  # Code points are in the order of their UTF-8.
        chunks = self._library.list(
            self._store,
            directory or None,
            offset=after if _is_key(after) else None,
            chunk_size=LIST_CHUNK,
        )
        while True:
            with self.failures(prefix):
                chunk = next(chunks, None)
            if chunk is None:
                return
            for found in chunk:
                yield _facts(found["path"], found)


class _Upload:
    """What is written to a key. Nothing is sent before a part is full."""

    def __init__(self, store: S3Store, key: str, mode: Mode) -> None:
        self._store, self._key, self._mode = store, key, mode
        self._unfinished = store.unfinished_name()
        self._waiting = bytearray()
        self._writer: Any = None
        self._length = 0
        self.closed = False

    def write(self, data: Data, /) -> int:
        """Write all of it."""
        data = memoryview(data).cast("B")
        self._length += len(data)
        self._check_length()
        if self._writer is None and (self._length <= PART_BYTES or isinstance(self._mode, IfMatch)):
            self._waiting += data
            return len(data)
        with self._store.failures(self._key, writes=True):
            if self._writer is None:
                self._writer = self._store.open_writer(self._unfinished)
                self._writer.write(bytes(self._waiting))
                self._waiting.clear()
            for at in range(0, len(data), PART_BYTES):  # It copies what it is given at once.
                self._writer.write(data[at : at + PART_BYTES])
        return len(data)

    def finish(self) -> None:
        """Everything was written: give it its name."""
        if self._writer is None:
            self._store.put_whole(self._key, self._waiting, self._mode)
            return
        with self._store.failures(self._key, writes=True):
            self._close_writer()
        self._store.copy(self._unfinished, self._key, self._mode)

    def forget(self) -> None:
        """Leave nothing behind, whether it was finished or not."""
        if self._writer is not None:
            with suppress(StoreError), self._store.failures(self._key):
                self._close_writer()  # Parts are deleted only as the object they make.
            self._store.remove_unfinished(self._unfinished)

    def _close_writer(self) -> None:
        if not self.closed:
            self.closed = True
            self._writer.close()

    def _check_length(self) -> None:
        is_conditional = isinstance(self._mode, IfMatch)
        limit = IF_MATCH_BYTES_MAX if is_conditional else OBJECT_BYTES_MAX
        if self._length > limit:
            what = "an object that replaces a version" if is_conditional else "an object"
            raise StoreError(self._key, f"{what} has at most {limit} bytes on S3")


def _is_key(text: str) -> bool:
    try:
        checked_key(text)
    except StoreError:
        return False
    return True


def _facts(key: str, found: Any) -> Facts:  # noqa: ANN401  (the library's dictionary)
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return Facts(key, found["size"], found["e_tag"] or "", modified_ms)


def _said(reason: Exception) -> str:
    """The first line of what the library says; S3's own word for it instead of its XML."""
    text = str(reason)
    code = re.search(r"<Code>(\w+)</Code>", text)
    line = text.partition("\n")[0].partition(": <?xml")[0][:REASON_CHARS_MAX]
    if METADATA_ADDRESS in line:
        return f"no keys for it are found (AWS_ACCESS_KEY_ID …), and this host has no role: {line}"
    return f"{line} ({code[1]})" if code else line
