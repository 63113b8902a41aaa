"""Stores around stores that are slow, fail by a seed, or die in the middle of a write.

Slow      every call first waits, by a function the test passes (a fake clock's, mostly)
Flaky     a call fails before it has done anything, with the given probability
Torn      a write dies after part of its bytes, with the given probability
Patient   not a fault: a caller that retries; around the others it must behave like a store
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

from smq.filer.store import (
    CREATE,
    NOTHING_IDLE,
    Capabilities,
    Data,
    Facts,
    Mode,
    OpenObject,
    Sink,
    Store,
)
from smq.model.errors import Unavailable

ATTEMPTS_MAX = 100  # At a probability of a half, more than this never happens.

T = TypeVar("T")


class Wrapper:
    """A store that forwards everything. `_call` sees each call except streamed writes."""

    def __init__(self, store: Store) -> None:
        self.inner = store

    def _call(self, key: str, call: Callable[[], T]) -> T:  # noqa: ARG002  (for subclasses)
        return call()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        """Store an object."""
        return self._call(key, lambda: self.inner.put(key, data, mode))

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what is written in the block."""
        with self.inner.writing(key, mode) as sink:
            yield sink

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """A range of an object."""
        return self._call(key, lambda: self.inner.get(key, start, length))

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        """A range of an object, piece by piece."""
        with ExitStack() as opened:
            yield self._call(
                key, lambda: opened.enter_context(self.inner.reading(key, start, length))
            )

    def head(self, key: str) -> Facts:
        """An object's facts."""
        return self._call(key, lambda: self.inner.head(key))

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        """Objects in the order of their keys."""
        return self._call(prefix, lambda: self.inner.list(prefix, after))

    def outdate(self, key: str) -> None:
        """Make the object's time 0, where it is a file."""
        self._call(key, lambda: self.inner.outdate(key))

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._call(key, lambda: self.inner.delete(key))

    def sweep(self, idle: Mapping[str, int] = NOTHING_IDLE) -> dict[str, int]:
        """Forget unfinished writes."""
        return self._call("", lambda: self.inner.sweep(idle))

    def local_path(self, key: str) -> Path | None:
        """The object's file."""
        return self.inner.local_path(key)


class Slow(Wrapper):
    """Waits before each call."""

    def __init__(self, store: Store, wait: Callable[[], None]) -> None:
        super().__init__(store)
        self._wait = wait

    def _call(self, key: str, call: Callable[[], T]) -> T:  # noqa: ARG002
        self._wait()
        return call()

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Wait, then store what is written in the block."""
        self._wait()
        with self.inner.writing(key, mode) as sink:
            yield sink


class Flaky(Wrapper):
    """Fails before doing anything."""

    def __init__(self, store: Store, chance: Random, probability: float = 0.5) -> None:
        super().__init__(store)
        self._chance, self.probability = chance, probability

    def _call(self, key: str, call: Callable[[], T]) -> T:
        self._fail_perhaps(key)
        return call()

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Fail, or store what is written in the block."""
        self._fail_perhaps(key)
        with self.inner.writing(key, mode) as sink:
            yield sink

    def _fail_perhaps(self, key: str) -> None:
        if self._chance.random() < self.probability:
            raise Unavailable(key, "the store fails at random")


class Torn(Wrapper):
    """Dies in the middle of a write; no reader may see the bytes already written."""

    def __init__(self, store: Store, chance: Random, probability: float = 0.5) -> None:
        super().__init__(store)
        self._chance, self.probability = chance, probability

    def put(self, key: str, data: Data, mode: Mode = CREATE) -> Facts:
        """Store an object, or die in the middle."""
        with self.writing(key, mode) as sink:
            sink.write(data)
        return self.inner.head(key)

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what is written in the block, or die in the middle."""
        with self.inner.writing(key, mode) as sink:
            tears = self._chance.random() < self.probability
            yield _TearingSink(key, sink, self._chance) if tears else sink


class _TearingSink:
    def __init__(self, key: str, sink: Sink, chance: Random) -> None:
        self._key, self._sink, self._chance = key, sink, chance
        self.closed = False

    def write(self, data: Data, /) -> int:
        self._sink.write(bytes(data)[: self._chance.randint(0, len(data))])
        raise Unavailable(self._key, "the store died in the middle of a write")


class Patient(Wrapper):
    """Retries while the store is unavailable; keeps a stream and writes it at its end."""

    def _call(self, key: str, call: Callable[[], T]) -> T:
        for _ in range(ATTEMPTS_MAX):
            try:
                return call()
            except Unavailable:
                pass
        raise Unavailable(key, f"{ATTEMPTS_MAX} attempts failed")

    @contextmanager
    def writing(self, key: str, mode: Mode = CREATE) -> Iterator[Sink]:
        """Store what is written in the block, when the store can."""
        kept = _Kept()
        yield kept
        self.put(key, bytes(kept.data), mode)


class _Kept:
    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False

    def write(self, data: Data, /) -> int:
        self.data += data
        return len(data)
