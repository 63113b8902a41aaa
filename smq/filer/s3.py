"""A store in a bucket of Amazon S3, or of a server that speaks its protocol, through obstore.

    up to PART_BYTES   one conditional PUT
    longer             a multipart upload (smq.filer.s3_uploads), completed conditionally

A killed write leaves parts, which no list of objects shows; `sweep` aborts such uploads. `upload`,
whose source can be read again, resumes an interrupted upload of the same bytes.

An object's version is its ETag, so the same bytes written again have the same version. Importing
this module is cheap; the first S3Store loads obstore, which starts a pool of threads. Never make an
S3Store in a process that forks.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from smq.filer.content import Content, SourceChanged
from smq.filer.s3_uploads import (
    CONNECT_WAIT_S,
    OBJECT_BYTES_MAX,
    PART_BYTES,
    PARTS_MAX,
    REQUEST_WAIT_S,
    Access,
    Away,
    MiB,
    PartSending,
    Patience,
    Unfinished,
    UploadLost,
    Uploads,
    md5_of,
    part_bytes_for,
    without_paths,
)
from smq.filer.store import (
    CREATE,
    NOTHING_IDLE,
    OVERWRITE,
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
    NotFound,
    PreconditionFailed,
    StoreError,
    Unavailable,
)

PROBES = ".unfinished"  # No key starts with a dot.
STREAM_BYTES_MAX = (
    PARTS_MAX * PART_BYTES
)  # A stream's length is unknown at its start, so parts cannot be larger.
STREAM_PARTS_AT_ONCE = 2  # Each is held in memory.
STREAM_PATIENCE_S = 30.0  # The writer of a stream waits, and may hold up others.
UPLOAD_PARTS_AT_ONCE = 4
UPLOAD_PATIENCE_S = 300.0  # Outlasts a network failure; parts that arrived stay.
IF_MATCH_BYTES_MAX = 64 * MiB  # Such a write is one request, held in memory.
PIECE_BYTES = MiB
LIST_CHUNK = 1000  # Objects that one request lists.
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}
REASON_CHARS_MAX = 300
NO_BUCKET = "<Code>NoSuchBucket</Code>"
TOOK = re.compile(r" in [\d.]+[mµn]?s\b(, after .*?retry_timeout: \S+)? +-")
METADATA_ADDRESS = "169.254.169.254"  # Where the library asks for keys if none are configured.


class Unfit(StoreError):
    """The server lacks a guarantee that SMQ relies on; it must not be used."""


class S3Store(Store):
    """Objects of a bucket whose names start with a prefix."""

    def __init__(self, bucket: str, prefix: str = "", access: Access | None = None) -> None:
        import obstore  # noqa: PLC0415  (It starts threads.)
        import obstore.store  # noqa: PLC0415

        access, prefix = access or Access(), prefix.strip("/")
        self.uploads = Uploads(bucket, prefix, access)
        self.name = self.uploads.name
        self._at_work: set[str] = set()  # Uploads of this process: no other call resumes them.
        self._library: Any = obstore  # Its types exist for type checkers only.
        try:
            self._store = self._library.store.S3Store(
                bucket,
                prefix=prefix or None,
                config={**access},
                client_options={
                    "allow_http": True,  # An explicit http:// endpoint is allowed.
                    "connect_timeout": f"{CONNECT_WAIT_S}s",
                    "timeout": f"{REQUEST_WAIT_S}s",
                },
                retry_config=RETRIES,
            )
        except (obstore.exceptions.BaseError, ValueError) as reason:
            raise StoreError(self.name, f"it cannot be used: {_said(reason)}") from reason

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(if_match=True, local_paths=False)

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what the block writes."""
        stream = _Stream(self, checked_key(key), mode)
        try:
            yield stream
            stream.finish()
        finally:
            stream.forget()

    def upload(self, key: str, content: Content, is_same: Callable[[str], bool]) -> str:
        """Store content that can be read twice; create-only. Returns its key.

        If an unfinished upload exists to a key for which `is_same` holds, it is resumed and keeps
        its key. Its first sender may still be running: whichever completes it, the upload succeeds
        for all senders. Raises AlreadyExists, SourceChanged, Unavailable.
        """
        if content.length > OBJECT_BYTES_MAX:
            raise _too_long(key, "an object", OBJECT_BYTES_MAX)
        if content.length <= PART_BYTES:
            self.put_whole(checked_key(key), b"".join(content.pieces(PART_BYTES)), CREATE)
            return key
        begun = self._begun(key, is_same)
        if begun is not None:
            with suppress(
                UploadLost, AlreadyExists
            ):  # It was swept, or its parts do not match its name.
                return self._send_rest(begun, content)
        own = self.begin(checked_key(key), Patience(UPLOAD_PATIENCE_S))
        try:
            return self._send_rest(own, content)
        except SourceChanged:
            self._abort(own)
            raise

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object."""
        with self.reading(key, start, length) as reading:
            return b"".join(reading.pieces)

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        """A range of an object in pieces: one request, so one version."""
        facts = None if start == 0 and length is None else self.head(key)
        if facts is not None and (start >= facts.length or length == 0):
            yield OpenObject(facts, iter(()))  # S3 refuses an empty range.
            return
        found = self._get(checked_key(key), start, length)
        yield OpenObject(_facts(key, found.meta), self._pieces(key, found))

    def head(self, key: str) -> Facts:
        """An object's facts."""
        with self.failures(checked_key(key)):
            try:
                return _facts(key, self._library.head(self._store, key))
            except FileNotFoundError:  # Or the bucket does not exist: only a GET tells.
                return _facts(key, self._library.get(self._store, key).meta)

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects in the order of their keys."""
        for facts in self._listed(prefix, after):
            if facts.key.startswith(prefix) and facts.key > after and facts.key[0] != ".":
                yield facts
            elif facts.key > prefix and not facts.key.startswith(prefix):
                return

    def outdate(self, key: str) -> None:
        """Nothing: a bucket's times cannot be set, and only the sealer looks at them."""
        checked_key(key)

    def delete(self, key: str) -> None:
        """Remove an object."""
        with suppress(NotFound), self.failures(key):
            self._library.delete(self._store, checked_key(key))

    def sweep(self, idle: Mapping[str, int] = NOTHING_IDLE) -> dict[str, int]:
        """Abort uploads that are idle, and remove what killed probes left."""
        left = self.uploads.sweep(idle)
        for facts in list(self._listed(f"{PROBES}/", "")):
            if idle.get(facts.key) == facts.modified_ms:
                self._remove_probe(facts.key)
            elif len(left) < UNFINISHED_MAX:
                left[facts.key] = facts.modified_ms
        return left

    def local_path(self, key: str) -> Path | None:
        """None: objects are not files of this host."""
        checked_key(key)
        return None

    def probe(self) -> None:
        """Test the guarantees that SMQ relies on. Raises Unfit, Unavailable."""
        key = f"{PROBES}/{secrets.token_hex(16)}"
        try:
            self.put_whole(key, b"1", OVERWRITE)
            for create in (self.put_whole, self.put_in_parts):
                with suppress(AlreadyExists):
                    create(key, b"2", CREATE)
                    raise Unfit(
                        self.name,
                        "it replaces an object on a create-only write (it ignores "
                        "If-None-Match), so two writers could overwrite each other",
                    )
        finally:
            with suppress(StoreError):
                self._remove_probe(key)

    def put_in_parts(self, key: str, data: Data, mode: Mode) -> None:
        """An upload of one part."""
        begun = self.uploads.begin(key)
        try:
            tag = self.uploads.send(begun, 1, data)
            self.uploads.complete(begun, [tag], create=mode == CREATE)
        except StoreError:
            self.uploads.abort(begun)
            raise

    def _remove_probe(self, key: str) -> None:
        with self.failures(key):
            self._library.delete(self._store, key)

    # --- long objects ----------------------------------------------------------------------------

    def begin(self, key: str, patience: Patience) -> Unfinished:
        """A new upload."""
        return patience.ask(lambda: self.uploads.begin(key))

    def version(self, key: str) -> str:
        """The version of an existing object; "" if there is none."""
        try:
            return self.head(key).version
        except NotFound:
            return ""

    def _begun(self, key: str, is_same: Callable[[str], bool]) -> Unfinished | None:
        """An upload to resume."""
        directory = f"{key.rpartition('/')[0]}/"
        try:
            found = Patience(UPLOAD_PATIENCE_S).ask(lambda: [*self.uploads.unfinished(directory)])
        except Away:
            raise
        except StoreError:  # Permission to write does not imply permission to list.
            return None
        usable = (each for each in found if is_same(each.key) and each.id not in self._at_work)
        return next(usable, None)

    def _send_rest(self, upload: Unfinished, content: Content) -> str:
        """Send the missing parts and complete the upload; returns its key.

        Raises AlreadyExists, UploadLost, SourceChanged.
        """
        patience, part_bytes = Patience(UPLOAD_PATIENCE_S), part_bytes_for(content.length)
        self._at_work.add(upload.id)
        try:
            there = patience.ask(lambda: self.uploads.parts(upload))
            with PartSending(
                self.uploads, upload, patience, parts_at_once=UPLOAD_PARTS_AT_ONCE
            ) as sending:
                for number, part in enumerate(content.pieces(part_bytes), 1):
                    if number in there and there[number].tag == md5_of(part):
                        sending.has(there[number].tag)
                    else:
                        sending.send(part)
                sending.complete(lambda: self.version(upload.key), create=True)
        except (UploadLost, AlreadyExists) as reason:
            if isinstance(reason, AlreadyExists):  # This upload can no longer be completed.
                self._abort(upload)
            if not self._is_whole(upload.key, content.length):
                raise
        finally:
            self._at_work.discard(upload.id)
        return upload.key

    def _abort(self, upload: Unfinished) -> None:
        with suppress(StoreError):  # Else a sweep does it.
            self.uploads.abort(upload)

    def _is_whole(self, key: str, length: int) -> bool:
        """Whether another sender has completed the upload. Only these bytes can have this key."""
        try:
            return self.head(key).length == length
        except NotFound:
            return False

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

    @contextmanager
    def failures(
        self, key: str, *, writes: bool = False, mode: Mode | None = None
    ) -> Iterator[None]:
        """Turns errors of the library into StoreError."""
        errors = self._library.exceptions
        try:
            yield
        except FileNotFoundError as reason:
            if writes or NO_BUCKET in str(reason):
                raise Unavailable(key, f"there is no bucket {self.name}") from reason
            raise NotFound(key, "there is no such object") from reason
        except (errors.AlreadyExistsError, errors.PreconditionError) as reason:
            if isinstance(mode, IfMatch):
                raise PreconditionFailed(
                    key, f"the object is not at version {mode.version}"
                ) from reason
            raise AlreadyExists(key, "there is an object already") from reason
        except (errors.InvalidPathError, ValueError) as reason:
            raise StoreError(key, f"not a valid name: {_said(reason)}") from reason
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
        """Objects of the prefix's directory beyond `after`, and possibly others."""
        directory = prefix.rpartition("/")[0]
        if directory and not (directory == PROBES or is_key(directory)):
            return
        after = max(after, prefix[:-1])  # Code points sort as their UTF-8 does.
        chunks = self._library.list(
            self._store,
            directory or None,
            offset=after if is_key(after) else None,
            chunk_size=LIST_CHUNK,
        )
        while True:
            with self.failures(prefix):
                chunk = next(chunks, None)
            if chunk is None:
                return
            for found in chunk:
                yield _facts(found["path"], found)


class _Stream:
    """A sink for a key. Sends a part once it is full and more bytes have arrived."""

    def __init__(self, store: S3Store, key: str, mode: Mode) -> None:
        self._store, self._key, self._mode = store, key, mode
        self._waiting = bytearray()
        self._length = 0
        self._sending: PartSending | None = None
        self.closed = False

    def write(self, data: Data, /) -> int:
        """Write all of it."""
        left = memoryview(data).cast("B")
        length = len(left)
        self._length += length
        self._check_length()
        while left:
            room = len(left)
            if not isinstance(self._mode, IfMatch):
                if len(self._waiting) == PART_BYTES:
                    self._send()
                room = PART_BYTES - len(self._waiting)
            self._waiting += left[:room]
            left = left[room:]
        return length

    def finish(self) -> None:
        """Complete the object: everything is written."""
        parts = 0 if self._sending is None else len(self._sending)
        # The writer of a segment frees its log now: what is in no part is lost.
        assert parts * PART_BYTES + len(self._waiting) == self._length
        if self._sending is None:
            self._store.put_whole(self._key, self._waiting, self._mode)
        else:
            self._send()
            self._sending.complete(
                lambda: self._store.version(self._key), create=self._mode == CREATE
            )
        self.closed = True

    def forget(self) -> None:
        """Abort the upload unless it was completed."""
        if self._sending is not None:
            self._sending.close()
            if not self.closed:
                with suppress(StoreError):  # Else a sweep does it.
                    self._store.uploads.abort(self._sending.upload)

    def _send(self) -> None:
        if self._sending is None:
            patience = Patience(STREAM_PATIENCE_S)
            self._sending = PartSending(
                self._store.uploads,
                self._store.begin(self._key, patience),
                patience,
                parts_at_once=STREAM_PARTS_AT_ONCE,
            )
        self._sending.send(self._waiting)
        self._waiting = bytearray()

    def _check_length(self) -> None:
        is_conditional = isinstance(self._mode, IfMatch)
        limit = IF_MATCH_BYTES_MAX if is_conditional else STREAM_BYTES_MAX
        if self._length > limit:
            what = "an object that replaces a version" if is_conditional else "a stream"
            raise _too_long(self._key, what, limit)


def _too_long(key: str, what: str, limit: int) -> StoreError:
    return StoreError(key, f"{what} has at most {limit} bytes on S3")


def _facts(key: str, found: Any) -> Facts:  # noqa: ANN401  (the library's dictionary)
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    return Facts(key, found["size"], found["e_tag"] or "", modified_ms)


def _said(reason: Exception) -> str:
    """The first line of the library's error, with S3's code instead of its XML.

    Leaves out what differs between requests: key and time.
    """
    text = str(reason)
    code = re.search(r"<Code>(\w+)</Code>", text)
    line = text.partition("\n")[0].partition(": <?xml")[0]
    line = TOOK.sub(" -", without_paths(line))[:REASON_CHARS_MAX]
    if METADATA_ADDRESS in line:
        return f"no keys were found (AWS_ACCESS_KEY_ID …), and this host has no role: {line}"
    return f"{line} ({code[1]})" if code else line
