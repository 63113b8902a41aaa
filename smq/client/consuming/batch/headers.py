"""The headers of one record, made of places: few of them at once, many when they are used.

As objects the smallest headers take a hundred times their bytes: a batch of a few kilobytes may
have millions, for which no consumer need grow by a gigabyte.
"""

from collections.abc import Iterator, Sequence
from operator import eq
from typing import overload

import numpy as np

from shm.kernels.record.records import H_KEY_AT, H_VALUE_AT

HEADERS_AT_ONCE = 1 << 10  # Made as objects, of some 300 bytes each.

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


def headers_at(view: memoryview, places: np.ndarray) -> tuple[Header, ...]:
    """The headers at these places of a memory: int64 [H_FIELDS, headers]."""
    return tuple(
        (
            str(view[key_at : key_at + key_length], "utf-8", "surrogateescape"),
            None if length < 0 else bytes(view[at : at + length]),
        )
        for key_at, key_length, at, length in places.T.tolist()
    )


class ManyHeaders(Sequence[Header]):
    """A copy of a record's headers that makes each when it is used; equals the tuple of them."""

    __slots__ = ("_places", "_view")

    def __init__(self, view: memoryview, places: np.ndarray) -> None:
        self._view, self._places = view, places

    @classmethod
    def copied(cls, view: memoryview, places: np.ndarray) -> "ManyHeaders":
        """Those at places of a memory that may be overwritten; they lie behind each other."""
        key_at, key_length, value_at, value_length = places[:, -1].tolist()
        start = int(places[H_KEY_AT, 0])
        end = max(key_at + key_length, value_at + max(value_length, 0))
        moved = places.copy()
        moved[[H_KEY_AT, H_VALUE_AT]] -= start
        return cls(memoryview(bytes(view[start:end])), moved)

    def __len__(self) -> int:
        return int(self._places.shape[1])

    def __iter__(self) -> Iterator[Header]:
        for at in range(0, len(self), HEADERS_AT_ONCE):
            yield from headers_at(self._view, self._places[:, at : at + HEADERS_AT_ONCE])

    @overload
    def __getitem__(self, at: int) -> Header: ...

    @overload
    def __getitem__(self, at: slice) -> Headers: ...

    def __getitem__(self, at: int | slice) -> Header | Headers:
        if isinstance(at, slice):
            return ManyHeaders(self._view, self._places[:, at])
        (header,) = headers_at(self._view, self._places[:, at, None])
        return header

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ManyHeaders | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __add__(self, other: object) -> tuple[Header, ...]:
        return (*self, *other) if isinstance(other, ManyHeaders | tuple) else NotImplemented

    def __radd__(self, other: object) -> tuple[Header, ...]:
        # A list is extended, as by a tuple, and stays a list.
        return (*other, *self) if isinstance(other, tuple) else NotImplemented

    def __reduce__(self) -> tuple[object, ...]:
        return _of_bytes, (bytes(self._view), self._places)

    def __repr__(self) -> str:
        return f"<{len(self)} headers>"


def _of_bytes(data: bytes, places: np.ndarray) -> ManyHeaders:
    return ManyHeaders(memoryview(data), places)
