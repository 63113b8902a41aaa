"""An answer that is assembled from the answers to a request's portions.

Rows are encoded as they arrive and kept as bytes. An outer row that continues in the next portion
is written when it is complete. All other fields come from the last portion's answer.
"""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from smq.shard.loans import Sendable
from smq.wire.codec import Append, joined
from smq.wire.messages.notation import Field
from smq.wire.structure_code import snake

Path = tuple[str, ...]


class WrittenArray(Sequence[Any]):
    """An already encoded array: iterating writes its bytes, and yields no rows."""

    def __init__(self, count: int, pieces: list[bytes | Sendable], append: Append) -> None:
        self._count, self._pieces, self._append = count, pieces, append

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            self._append(piece)
        return iter(())

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401  (Sequence asks for it.)
        raise AssertionError("what is written is not read")


class Rows:
    """The rows of one array of an answer, of which the last may still grow.

    `field` describes the array, `path` the nested arrays that are joined likewise.
    Invariant: only the last row is held as an object.
    """

    def __init__(self, module: ModuleType, field: Field, version: int, path: Path) -> None:
        self._module, self._field, self._version, self._path = module, field, version, path
        self._write: Callable[[Any, int, Append], None] = getattr(
            module, f"_write_{snake(field.type)}"
        )
        self.pieces: list[bytes | Sendable] = []
        self._size = self._count = 0
        self._last: Any = None  # With self._inner, the rows in it.
        self._inner: Rows | None = None

    def add(self, rows: Sequence[Any], *, continues: bool) -> None:
        """Add a portion's rows; `continues`: the first may be the last one of those before."""
        pieces: list[Any] = []
        for row in rows:
            if not self._path:
                self._write(row, self._version, pieces.append)
                self._count += 1
                continue
            inner = getattr(row, self._path[0])
            if continues and self._inner is not None and self._is_same(row):
                self._inner.add(inner, continues=True)
            else:
                self._close(pieces)
                self._open(row, inner)
            continues = False
        self._size += sum(map(_size_of, pieces))
        if self.pieces and isinstance(self.pieces[-1], bytes):
            pieces.insert(0, self.pieces.pop())  # Many small portions become few pieces, too.
        self.pieces += joined(pieces)

    @property
    def size(self) -> int:
        """The bytes of all rows so far, but what is outside of the nested rows of the last one."""
        return self._size + (self._inner.size if self._inner is not None else 0)

    def written(self, append: Append) -> WrittenArray:
        """All rows, for the array of a message that is written with `append`."""
        pieces: list[Any] = []
        self._close(pieces)
        self.pieces += pieces
        return WrittenArray(self._count, self.pieces, append)

    def _is_same(self, row: Any) -> bool:  # noqa: ANN401  (a row of some message)
        names = (name for name in type(row).__slots__ if name != self._path[0])
        return all(getattr(row, name) == getattr(self._last, name) for name in names)

    def _open(self, row: Any, inner: Sequence[Any]) -> None:  # noqa: ANN401
        [field] = (each for each in self._field.fields if each.name == self._path[0])
        self._last = row
        self._inner = Rows(self._module, field, self._version, self._path[1:])
        self._inner.add(inner, continues=False)
        setattr(row, self._path[0], ())  # Its size in bytes bounds it.

    def _close(self, pieces: list[Any]) -> None:
        if self._inner is not None:
            setattr(self._last, self._path[0], self._inner.written(pieces.append))
            self._write(self._last, self._version, pieces.append)
            self._count += 1
            self._last = self._inner = None


def _size_of(piece: bytes | bytearray | memoryview | Sendable) -> int:
    return len(piece) if isinstance(piece, (bytes, bytearray, memoryview)) else piece.length
