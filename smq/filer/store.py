"""The protocol of the filer's stores: whole objects under keys.

A key is a path with slashes. An object appears whole or not at all and never changes in place. A
failed write leaves nothing under its key. Callers ask what a store can do (`capabilities`).
Exceptions of a provider end here: callers see the StoreError family.

    put, writing    CREATE: fails if the key exists; OVERWRITE; IfMatch(version): replaces that one
    get, reading    a range, cut to what exists; at once, or in pieces in bounded memory
    list            in the order of the keys' bytes
    sweep           discard abandoned writes

A write is durable when its call returns: sealing frees the log after it.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from smq.model.errors import StoreError

KEY_BYTES_MAX = 1024  # S3's bound.
UNFINISHED_MAX = 10_000  # Of one answer, some MB. The others follow when these are gone.
NOTHING_IDLE: Mapping[str, int] = MappingProxyType({})
KEY_PART_BYTES_MAX = 255  # Of a file name on Linux; topic names have at most 249.

CREATE: Literal["create"] = "create"
OVERWRITE: Literal["overwrite"] = "overwrite"

OUTDATED_MS = 0  # The time of an object that is condemned, where programs look at its file.
CONDEMNED = "the broker is about to delete it: try again after its next sweep (filer.sweep.ms)"


class IfMatch(NamedTuple):
    """Replace the object only if it has this version."""

    version: str


Mode = Literal["create", "overwrite"] | IfMatch
Data = bytes | bytearray | memoryview


class Facts(NamedTuple):
    """Metadata of an object."""

    key: str
    length: int
    version: str
    modified_ms: int


class Capabilities(NamedTuple):
    """The capabilities that differ between stores."""

    if_match: bool
    local_paths: bool
    """Objects are files of this host; see `local_path`."""


class OpenObject(NamedTuple):
    """An object that is being read; all pieces are of the version in `facts`."""

    facts: Facts
    pieces: Iterator[Data]


class Sink(Protocol):
    """Where a streaming put writes. pyarrow accepts it as a file."""

    def write(self, data: Data, /) -> int: ...


class Store(Protocol):
    """A place where objects live."""

    @property
    def capabilities(self) -> Capabilities: ...

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        """Store an object. Raises AlreadyExists, PreconditionFailed, Unavailable."""
        with self.writing(key, mode) as sink:
            sink.write(data)
        return self.head(key)

    def writing(self, key: str, mode: Mode = CREATE) -> AbstractContextManager[Sink]:
        """Store what the block writes when it ends; nothing if it raises."""
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes [start, start + length) that exist. Raises NotFound, Unavailable."""
        ...

    def reading(
        self, key: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[OpenObject]:
        """The same bytes in pieces. Raises NotFound, Unavailable, also from the pieces."""
        ...

    def head(self, key: str) -> Facts:
        """An object's facts. Raises NotFound, Unavailable."""
        ...

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects whose key starts with `prefix` and is greater than `after`, in order."""
        ...

    def outdate(self, key: str) -> None:
        """Make the object's time 0, durably, where programs look at its file; else do nothing."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; does nothing if it does not exist."""
        ...

    def sweep(self, idle: Mapping[str, int] = NOTHING_IDLE) -> dict[str, int]:
        """Discard unfinished writes; returns the others and when each was touched, in ms.

        Discards those in `idle` that were not touched since, and those whose writer is known to be
        gone. The times are of the filer's clock: they only tell whether a write goes on. Returns
        UNFINISHED_MAX at most.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """An object's file on this host, whether or not it exists; None: there are no files."""
        ...


def checked_key(key: str) -> str:
    """The key, if every store can hold it; it names nothing outside. Raises StoreError."""
    if not key or key.startswith(".") or len(key.encode(errors="replace")) > KEY_BYTES_MAX:
        raise StoreError(key, f"a key has 1 to {KEY_BYTES_MAX} bytes and no dot first")
    if not key.isprintable() or "\\" in key:
        raise StoreError(key, "a key has printable characters and no backslash")
    for part in key.split("/"):
        if part in {"", ".", ".."} or len(part.encode(errors="replace")) > KEY_PART_BYTES_MAX:
            raise StoreError(
                key, f"between slashes a key has 1 to {KEY_PART_BYTES_MAX} bytes, not . or .."
            )
    return key


def is_key(text: str) -> bool:
    """Whether a text is a valid key."""
    try:
        checked_key(text)
    except StoreError:
        return False
    return True
