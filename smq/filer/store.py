"""What the filer asks of a place where files live: a small protocol over whole objects.

A key is a path with slashes; an object is bytes that appear whole or not at all and are never
changed in place. A write that failed leaves nothing under its key. What a store cannot do is asked
(`capabilities`), not assumed. Provider exceptions stop here: callers see the StoreError family.

    put, writing    CREATE: only if there is nothing; OVERWRITE; IfMatch(version): only over that
    get, reading    a range, cut to what exists; whole, or piece by piece in bounded memory
    list            in the order of the keys' bytes
    sweep           forget writes that were begun and never finished

Durable when the call returns: a caller may act on it, as sealing does when it frees the log.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from smq.model.errors import StoreError

KEY_BYTES_MAX = 1024  # S3's bound.
KEY_PART_BYTES_MAX = 255  # Of a file's name on Linux; a topic's has at most 249.

CREATE: Literal["create"] = "create"
OVERWRITE: Literal["overwrite"] = "overwrite"


class IfMatch(NamedTuple):
    """Write only over the object of this version."""

    version: str


Mode = Literal["create", "overwrite"] | IfMatch
Data = bytes | bytearray | memoryview


class Facts(NamedTuple):
    """What a store knows about an object without reading it."""

    key: str
    length: int
    version: str
    modified_ms: int


class Capabilities(NamedTuple):
    """What differs between stores."""

    if_match: bool
    local_paths: bool
    """Objects are files of this host: `local_path` tells where."""


class Reading(NamedTuple):
    """An object that is being read; all pieces are of the version that `facts` tell of."""

    facts: Facts
    pieces: Iterator[Data]


class Sink(Protocol):
    """Where a streaming put writes; a file, as far as pyarrow is concerned."""

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
        """Store what is written in the block when it ends; nothing if it ends by an exception."""
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes [start, start + length) that exist. Raises NotFound, Unavailable."""
        ...

    def reading(
        self, key: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[Reading]:
        """The same bytes, piece by piece. Raises NotFound, Unavailable; the pieces too."""
        ...

    def head(self, key: str) -> Facts:
        """An object's facts. Raises NotFound, Unavailable."""
        ...

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects whose key starts with `prefix` and is greater than `after`, in order."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; one that does not exist is removed already."""
        ...

    def sweep(self, before_ms: int) -> int:
        """Forget unfinished writes last touched before this time; how many there were.

        Those whose writer is known to be gone are forgotten at once.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """The file an object is on this host, whether or not it exists; None: it is none."""
        ...


def checked_key(key: str) -> str:
    """The key, if every store can hold it. Raises StoreError: it can name nothing outside."""
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
    """Whether it can name an object."""
    try:
        checked_key(text)
    except StoreError:
        return False
    return True
