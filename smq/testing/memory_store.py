"""A store in a dict: the model for the real ones, and a fast store for tests."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import count
from pathlib import Path

from smq.filer.store import (
    CREATE,
    NOTHING_IDLE,
    Capabilities,
    Data,
    Facts,
    IfMatch,
    Mode,
    OpenObject,
    Sink,
    checked_key,
)
from smq.model.errors import AlreadyExists, NotFound, PreconditionFailed


class MemoryStore:
    """Objects in this process. `now_ms` stamps them."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._objects: dict[str, tuple[Facts, bytes]] = {}
        self._versions = count(1)
        self._now_ms = now_ms

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(if_match=True, local_paths=False)

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        """Store an object."""
        checked_key(key)
        existing = self._objects.get(key)
        if mode == CREATE and existing is not None:
            raise AlreadyExists(key, "there is an object already")
        if isinstance(mode, IfMatch) and (existing is None or existing[0].version != mode.version):
            raise PreconditionFailed(key, f"it is not version {mode.version}")
        facts = Facts(key, len(data), str(next(self._versions)), self._now_ms())
        self._objects[key] = (facts, bytes(data))
        return facts

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what is written in the block."""
        checked_key(key)
        written = BytesIO()
        yield written
        self.put(key, written.getvalue(), mode)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object."""
        data = self._found(key)[1]
        return data[start : None if length is None else start + length]

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        """A range of an object, in one piece."""
        yield OpenObject(self.head(key), iter([self.get(key, start, length)]))

    def head(self, key: str) -> Facts:
        """An object's facts."""
        return self._found(key)[0]

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects in the order of their keys."""
        for key in sorted(self._objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > after.encode():
                yield self._objects[key][0]

    def outdate(self, key: str) -> None:
        """Nothing: it has no files."""
        checked_key(key)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._objects.pop(checked_key(key), None)

    def sweep(self, idle: Mapping[str, int] = NOTHING_IDLE) -> dict[str, int]:
        """There are never unfinished writes: nothing outlives its block."""
        del idle
        return {}

    def local_path(self, key: str) -> Path | None:
        """None: it is in memory."""
        checked_key(key)
        return None

    def _found(self, key: str) -> tuple[Facts, bytes]:
        try:
            return self._objects[checked_key(key)]
        except KeyError:
            raise NotFound(key, "there is no such object") from None
