"""Pass by reference: producers upload payloads, records refer to them, consumers map them.

    reference = client.upload("images", Path("scan.tiff"), content_type="image/tiff")
    producer.send_handle("images", reference, key=b"scan").result()
    …
    record.payload.view()          # the payload's bytes, mapped where they lie

If the broker's filer is a directory that this process can reach, bytes are written to it and mapped
from it directly. If it is a bucket, this process uses it with its own credentials. If it is a
directory of another host, bytes go through the broker's HTTP server.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from shm.system import why_wire_only
from smq.client.arguments import flag, function, has_objects
from smq.client.clock import SYSTEM_CLOCK, Clock
from smq.client.errors import PayloadDamaged, PayloadMissing
from smq.client.facts import BrokerFacts
from smq.client.kafka.answers import number_of
from smq.client.kafka.cluster import DEADLINE_SECONDS
from smq.client.payload_formats import is_masked
from smq.client.remote_filer import RemoteFiler
from smq.filer.content import crc_of
from smq.filer.location import Location
from smq.filer.mark import is_marked
from smq.filer.store import Data
from smq.filer.upload import (
    Naming,
    Stream,
    UploadTarget,
    upload_buffer,
    upload_file,
    upload_stream,
)
from smq.model.catalog import NAMESPACE_DEFAULT
from smq.model.errors import NotFound, Unavailable
from smq.model.references import (
    CONTENT_TYPE_DEFAULT,
    HEADER,
    HEADER_VALUE,
    Reference,
    checked_content_type,
    directory_of,
)
from smq.security.listeners import Protocol as ListenerProtocol
from smq.wire.records import write_headers

HANDLE_HEADERS = ((HEADER.encode(), HEADER_VALUE),)
HANDLE_HEADERS_WRITTEN = write_headers(HANDLE_HEADERS)
_WHOLE = 0  # Of a file, says mmap.
RANGE_BYTES = 8 * 1024 * 1024  # Asked of another store at a time.
CONTENT_TYPE_HEADER = "content-type"
PAYLOAD_HEADERS = frozenset({HEADER, CONTENT_TYPE_HEADER})  # Which say what a payload is.
_OBJECTS = "it holds Python objects, which are no bytes"

Progress = Callable[[int, int], object]
"""Called with the number of bytes transferred and in all."""

Source: TypeAlias = str | os.PathLike[str] | Data | Stream | np.ndarray


@runtime_checkable
class _HasRead(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Payload:
    """The payload that a record refers to, or else the record's value. It is read when it is used.

    It outlives the batch of its record.
    """

    def __init__(self, length: int, content_type: str) -> None:
        self.length, self.content_type = length, content_type

    def __len__(self) -> int:
        return self.length

    def __bytes__(self) -> bytes:
        return bytes(self.view())

    @property
    def path(self) -> Path | None:
        """The file on this host that holds it; never write to it. None: there is none."""
        return None

    def view(self, progress: Progress | None = None, *, verify: bool = True) -> memoryview:
        """All its bytes, read-only: mapped if the file is on this host, else downloaded.

        The first call compares them with the CRC-32C in the handle, unless `verify` is false. A
        download that breaks off resumes there; it gives up after some seconds without an answer.
        Raises PayloadMissing, PayloadDamaged; StoreError: the filer cannot be reached.
        """
        raise NotImplementedError

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of [start, start + length) that exist, unverified.

        Raises ValueError, PayloadMissing; StoreError as `view`.
        """
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str], progress: Progress | None = None) -> None:
        """Write it to a file, verified.

        Raises ValueError: `path` is the payload's own file; StoreError as `view`; OSError.
        """
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is text or a path, not {type(path).__name__}")
        target, view = Path(path), self.view(progress)
        if self.path is not None and _is_same_file(target, self.path):
            raise ValueError(f"{target} is the payload itself; a payload never changes")
        target.write_bytes(view)

    def _end_of(self, start: int, length: int | None) -> int:
        """The end of a range, at most the payload's own. Raises TypeError, ValueError."""
        for name, number in (("start", start), ("length", 0 if length is None else length)):
            _check_whole(name, number)
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"start is {start} and length {length}; neither may be negative")
        return self.length if length is None else min(self.length, start + length)


class InlinePayload(Payload):
    """A record's value: it refers to no payload, or the broker has delivered the payload inline."""

    def __init__(self, value: bytes, content_type: str) -> None:
        super().__init__(len(value), content_type)
        self._value = value

    def view(self, progress: Progress | None = None, *, verify: bool = True) -> memoryview:
        """See Payload. The CRC of its batch has been checked already."""
        del verify
        if progress is not None:
            function("progress", progress)
            progress(self.length, self.length)
        return memoryview(self._value)

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """See Payload."""
        return self._value[start : self._end_of(start, length)]


class PayloadSpace(NamedTuple):
    """Where a topic's payloads are: `keys` is the prefix of keys, `files` of paths on this host."""

    store: UploadTarget
    keys: str
    files: str | None

    @classmethod
    def of(cls, store: UploadTarget, topic: str) -> "PayloadSpace":
        """A topic's space. Computed once: a store validates each key."""
        keys = directory_of(NAMESPACE_DEFAULT, topic)
        directory = store.local_path(keys.removesuffix("/"))
        return cls(store, keys, None if directory is None else f"{directory}/")


class StoredPayload(Payload):
    """A payload in the filer."""

    def __init__(self, space: PayloadSpace, reference: Reference) -> None:
        super().__init__(reference.length, reference.content_type)
        self._space, self.reference = space, reference
        self._view: memoryview | None = None
        self._is_verified = False

    def __repr__(self) -> str:
        return f"<payload {self.reference.id}, {self.length} bytes of {self.content_type}>"

    @property
    def path(self) -> Path | None:
        """See Payload."""
        return None if (file := self._file) is None else Path(file)

    @property
    def _file(self) -> str | None:
        files = self._space.files
        return None if files is None else files + self.reference.id

    @property
    def _key(self) -> str:
        return self._space.keys + self.reference.id

    def view(self, progress: Progress | None = None, *, verify: bool = True) -> memoryview:
        """See Payload."""
        if progress is not None:
            function("progress", progress)
        if self._view is None:
            file = self._file
            self._view = self._downloaded(progress) if file is None else self._mapped(file)
        if len(self._view) != self.length:
            raise PayloadDamaged(self._key, f"it has {len(self._view)} bytes, not {self.length}")
        if verify and not self._is_verified:
            if crc_of(self._view) != self.reference.crc32c:
                raise PayloadDamaged(self._key, "its CRC-32C is not what its handle says")
            self._is_verified = True
        return self._view

    def read(self, start: int = 0, length: int | None = None) -> bytes:
        """See Payload."""
        end = self._end_of(start, length)
        start = min(start, end)
        try:
            return self._space.store.get(self._key, start, end - start)
        except NotFound as reason:
            raise PayloadMissing(self._key) from reason

    def _mapped(self, file: str) -> memoryview:
        try:
            fd = os.open(file, os.O_RDONLY)
        except FileNotFoundError as reason:
            raise PayloadMissing(self._key) from reason
        try:
            return memoryview(mmap(fd, _WHOLE, access=ACCESS_READ))
        except ValueError:
            return memoryview(b"")  # An empty file cannot be mapped.
        finally:
            os.close(fd)

    def _downloaded(self, progress: Progress | None) -> memoryview:
        data = bytearray()  # It grows with what arrives: a handle may state any length.
        while len(data) < self.length:
            wanted = min(RANGE_BYTES, self.length - len(data))
            piece = self.read(len(data), wanted)
            if len(piece) != wanted:
                raise PayloadDamaged(self._key, "it is shorter than its handle says")
            data += piece
            if progress is not None:
                progress(len(data), self.length)
        return memoryview(data).toreadonly()


class Payloads:
    """A broker's filer, as this client reaches it. `ask` is called once, for the broker's facts;
    `deadline_seconds`: see RemoteFiler."""

    def __init__(
        self,
        ask: Callable[[], BrokerFacts],
        clock: Clock = SYSTEM_CLOCK,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._ask = ask
        self._clock, self._deadline_seconds = clock, deadline_seconds
        self._spaces: dict[str, PayloadSpace] = {}  # By topic.

    @cached_property
    def _facts(self) -> BrokerFacts:
        return self._ask()

    @cached_property
    def store(self) -> UploadTarget:
        """The filer. Raises StoreError: it cannot be reached."""
        cluster_id, settings, host, security, is_configured = self._facts
        root = settings["filer.root"]
        location = Location.named_by(settings)
        is_here = not why_wire_only() and is_marked(Path(root), cluster_id)
        if not location.is_s3 and not is_here:
            port = number_of(settings, "http.port", -1)
            if port <= 0:
                raise Unavailable(
                    root,
                    "the broker's filer is on another host, and it has no http.port to reach it",
                )
            if settings.get("http.security.protocol") == ListenerProtocol.SSL.name:
                if security.mechanism and not is_configured:
                    raise Unavailable(
                        root,
                        f"the broker's filer is at {host}, which only the broker names: a login is "
                        "sent to the hosts that the client was configured with alone; name this "
                        "one in the bootstrap servers, too",
                    )
                return RemoteFiler(host, port, self._clock, security, self._deadline_seconds)
            if security.tls is not None:
                raise Unavailable(
                    root,
                    "the broker's filer is on another host, which is reached by HTTP without "
                    "encryption, and this client asks for TLS; let the broker speak it there "
                    "(http.security.protocol=SSL), work with payloads on the broker's host, or in "
                    "a bucket (filer.root=s3://…)",
                )
            return RemoteFiler(host, port, self._clock, None, self._deadline_seconds)
        return location.open(reserve_bytes=number_of(settings, "filer.reserve.bytes", 0))

    def upload(
        self,
        topic: str,
        source: Source,
        *,
        content_type: str = CONTENT_TYPE_DEFAULT,
        move: bool = False,
    ) -> Reference:
        """Upload a file (by its path), bytes or a stream, for records of a topic to refer to.

        With `move` the file itself becomes the payload, without a copy where that is possible. It
        loses its name; do not write to it any more. Raises TypeError, ValueError, OSError,
        StoreError.
        """
        wall_ms, chance = self._clock.wall_ms(), os.urandom(10)
        content_type, move = checked_content_type(content_type), flag("move", move)
        # Leaves half of the time to finish the upload and send a record.
        lately_ms = number_of(self._facts.settings, "reference.orphan.ms", 0) // 2
        naming = Naming(
            NAMESPACE_DEFAULT, topic, content_type, wall_ms, chance, lately_ms=lately_ms
        )
        if isinstance(source, (str, os.PathLike)):
            return upload_file(self.store, naming, Path(source), move=move)
        if move:
            raise ValueError("move is true, but only a file, named by its path, can be moved")
        if isinstance(source, _HasRead):
            return upload_stream(self.store, naming, source)
        return upload_buffer(self.store, naming, _bytes_of(source))

    def of(
        self, topic: str, headers: Mapping[str, bytes | None], value: Data | None
    ) -> Payload | None:
        """The payload of a record. Raises NotAHandle; StoreError: the filer cannot be reached."""
        if HEADER in headers:
            return self.of_handle(topic, value)
        if value is None:
            return None
        content_type = headers.get(CONTENT_TYPE_HEADER) or CONTENT_TYPE_DEFAULT.encode()
        return InlinePayload(bytes(value), content_type.decode(errors="replace"))

    def of_handle(self, topic: str, value: Data | None) -> StoredPayload:
        """The payload that a handle refers to. Raises as above."""
        reference = Reference.of_handle(None if value is None else bytes(value))
        space = self._spaces.get(topic)
        if space is None:
            space = self._spaces[topic] = PayloadSpace.of(self.store, topic)
        return StoredPayload(space, reference)


def _check_whole(name: str, number: Any) -> None:  # noqa: ANN401
    """Check that it is a whole number, of any size: ranges are cut to the payload."""
    if not isinstance(number, int | np.integer) or isinstance(number, bool):
        raise TypeError(f"{name} is a whole number, not {type(number).__name__}")


def _bytes_of(source: Any) -> memoryview:  # noqa: ANN401  (whatever has bytes)
    try:
        if isinstance(source, np.ndarray):
            return _bytes_of_array(source)
        return _bytes_of_view(memoryview(source))
    except (TypeError, ValueError) as reason:
        raise TypeError(
            f"source is a {type(source).__name__}; it must be a path, a stream to read, or bytes "
            f"in one piece ({reason})"
        ) from reason


def _bytes_of_view(view: memoryview) -> memoryview:
    if has_objects(view):
        raise TypeError(_OBJECTS)
    return memoryview(b"") if view.nbytes == 0 else view.cast("B")


def _bytes_of_array(array: np.ndarray) -> memoryview:
    """The memory of an array of any dtype. Raises TypeError."""
    if is_masked(array):
        raise TypeError("it is a masked array, whose mask would be lost")
    if array.dtype.hasobject:
        raise TypeError(_OBJECTS)
    if not array.flags.c_contiguous:
        raise TypeError("it is not contiguous in C order")
    if array.nbytes == 0:
        return memoryview(b"")
    return np.asarray(array).reshape(-1).view(np.uint8).data


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False
