"""Reads requests in portions: only a part of a large array is in memory as objects.

The elements of all arrays are counted before any object is made, and a request with more elements
than its API allows is malformed. A Python object takes some hundred bytes and some microseconds
until it is answered: without the count, a megabyte of empty elements would hold a loop for seconds.

    path       the array that is cut, through the arrays it lies in: ("topics", "partitions")
    portion    the request with a part of that array. If the former portion ended inside an outer
               element, it begins with that element again: it `continues`

`check` reads the request once and keeps nothing, so that a malformed request is found before a part
of it takes effect; `portions` reads it again. Both yield often, so that the loop serves others.
"""

from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from smq.wire import codec
from smq.wire.codec import READ_ERRORS, Buffer, Malformed, Message, skip_tags
from smq.wire.messages.notation import Field
from smq.wire.messages.tables import APIS
from smq.wire.structure_code import is_structure, snake

Path = tuple[str, ...]
Read = Callable[[Buffer, int], tuple[Any, int]]
Cut = tuple[list[Any], bool]  # Rows of an array; whether the first one continues.

PORTION_BYTES_MAX = 16 * 1024  # Per portion: tagged fields and text take time as elements do.
NESTED_MAX = 1024  # Elements within an element that is not cut: a topic's configs, its assignments.
CHECKED_MAX = 500  # Elements between yields; reading one takes some microseconds.

_REQUESTS = {api.key: (api.messages[f"{api.name}Request"], api.flexible_from) for api in APIS}
_FIXED_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8,
}  # fmt: skip


class Portion(NamedTuple):
    """A part of a request; whether its first outer element is the last one of the part before."""

    message: Message
    continues: bool


class Part(NamedTuple):
    """A field in one version."""

    path: Path  # In the message, where newer versions may have replaced it.
    read: Read  # A value; of an array its count.
    read_element: Read | None  # Of an array.
    element: "Structure | None"  # For an array whose elements hold arrays.

    @property
    def is_array(self) -> bool:
        return self.read_element is not None


class Structure(NamedTuple):
    """A structure in one version: the fields that are not tagged, in their order."""

    read: Read
    is_flexible: bool
    parts: tuple[Part, ...]


@lru_cache(maxsize=512)
def request_structure(module: ModuleType, api_key: int, version: int) -> Structure:
    """An API's request; `module` is its codec."""
    field, flexible_from = _REQUESTS[api_key]
    return _structure(module, field, version, flexible=version >= flexible_from)


def _structure(module: ModuleType, field: Field, version: int, *, flexible: bool) -> Structure:
    read = getattr(module, f"_read_{snake(field.type)}")
    fields = [each for each in field.fields if version in each.versions]
    assert not any(each.is_array for each in fields if each.tag is not None), "it is not counted"
    parts = (_part(module, each, version, flexible=flexible) for each in fields if each.tag is None)
    return Structure(lambda buffer, at: read(buffer, at, version), flexible, tuple(parts))


def _part(module: ModuleType, field: Field, version: int, *, flexible: bool) -> Part:
    compact = "compact_" if flexible else ""
    nullable = "nullable_" if version in field.nullable else ""
    if is_structure(field) and not field.is_array:
        structure = _structure(module, field, version, flexible=flexible)
        assert not any(part.is_array for part in structure.parts), "it is not counted"
        return Part(field.path, _nullable(structure.read), None, None)
    if not field.is_array:
        return Part(field.path, _value(field.type, compact + nullable), None, None)
    count: Read = getattr(codec, f"read_{compact}{nullable}count")
    if not is_structure(field):
        return Part(field.path, count, _value(field.type, compact), None)
    structure = _structure(module, field, version, flexible=flexible)
    has_arrays = any(part.is_array for part in structure.parts)
    return Part(field.path, count, structure.read, structure if has_arrays else None)


def _nullable(read: Read) -> Read:
    def read_nullable(buffer: Buffer, at: int) -> tuple[Any, int]:
        is_there, at = codec.read_presence(buffer, at)
        return read(buffer, at) if is_there else (None, at)

    return read_nullable


def _value(kind: str, form: str) -> Read:
    if kind in _FIXED_BYTES:
        return _fixed(_FIXED_BYTES[kind])
    read: Read = getattr(codec, "read_uuid" if kind == "uuid" else f"read_{form}{kind}")
    return read


@lru_cache
def _fixed(size: int) -> Read:
    def read(buffer: Buffer, at: int) -> tuple[int, int]:
        if len(buffer) - at < size:
            raise Malformed("a number that is cut")
        return int.from_bytes(buffer[at : at + size], signed=True), at + size

    return read


def holder(message: Any, path: Path) -> Any:  # noqa: ANN401  (a message, or a row of it)
    """What has the field at the end of a path, through arrays of one row."""
    for name in path[:-1]:
        [message] = getattr(message, name)
    return message


class RequestReader:
    """Reads one request whose body begins at `at`, and whose array at the end of `path` is cut.

    With an empty path the request comes in one portion, whatever it holds.
    """

    def __init__(
        self, structure: Structure, buffer: Buffer, at: int, path: Path, elements_max: int
    ) -> None:
        self._structure, self._buffer, self._start = structure, buffer, at
        self._path, self._elements_max = path, elements_max
        self.elements = 0  # In all arrays read so far.
        self._pause_at = CHECKED_MAX
        self._kept: list[bytes] = []  # The request without the elements of its arrays.
        self._array: tuple[Part, int, int] | None = None  # The path's first: count, first element.

    @property
    def is_cut(self) -> bool:
        """Whether it can be read in portions."""
        return bool(self._path)

    @property
    def body(self) -> tuple[Buffer, int]:
        """The request, and where its body begins."""
        return self._buffer, self._start

    def check(self) -> Iterator[None]:
        """Read it to the end. Raises Malformed."""
        try:
            yield from self._check()
        except READ_ERRORS as error:
            raise Malformed(f"a request that is cut: {error}") from error

    def _check(self) -> Iterator[None]:
        at = kept_to = self._start
        for part in self._structure.parts:
            if not part.is_array:
                _, at = part.read(self._buffer, at)
                continue
            self._kept.append(bytes(self._buffer[kept_to:at]))
            count, first = part.read(self._buffer, at)
            inner = self._path[len(part.path) :]
            is_cut = bool(self._path) and part.path + inner == self._path
            if is_cut:
                self._array = part, count, first
            self._kept.append(self._count_bytes(count))
            at = kept_to = yield from self._check_array(part, count, first, inner if is_cut else ())
        if self._structure.is_flexible:
            at = skip_tags(self._buffer, at)
        self._kept.append(bytes(self._buffer[kept_to:at]))

    def _count_bytes(self, count: int) -> bytes:
        """The bytes of a count whose elements are left out: zero, or null."""
        if self._structure.is_flexible:
            return b"\0" if count < 0 else b"\1"
        return b"\xff\xff\xff\xff" if count < 0 else b"\0\0\0\0"

    def _check_array(
        self, part: Part, count: int, at: int, path: Path
    ) -> Generator[None, None, int]:
        """Read an array's elements; the generator's value is the place after them."""
        read, buffer = part.read_element, self._buffer
        assert read is not None
        for _ in range(count):
            self._count(1)
            if self.elements >= self._pause_at:
                self._pause_at = self.elements + CHECKED_MAX
                yield
            if part.element is None:
                _, at = read(buffer, at)
            elif path:
                at = yield from self._check_outer(part.element, at, path)
            else:
                at = self._pass(part.element, at, self.elements + NESTED_MAX)
        return at

    def _check_outer(self, structure: Structure, at: int, path: Path) -> Generator[None, None, int]:
        for part in structure.parts:
            count, at = part.read(self._buffer, at)
            if part.is_array:
                assert part.path == path[:1], "an outer element holds one array"
                assert part is structure.parts[-1], "and nothing behind it"
                at = yield from self._check_array(part, count, at, path[1:])
        return skip_tags(self._buffer, at) if structure.is_flexible else at

    def _pass(self, structure: Structure, at: int, elements_max: int) -> int:
        """The place after a structure that is not cut."""
        for part in structure.parts:
            count, at = part.read(self._buffer, at)
            if not part.is_array:
                continue
            if self.elements + count > elements_max:
                raise Malformed(f"an element that holds more than {NESTED_MAX} others")
            self._count(max(0, count))
            for _ in range(count):
                if part.element is not None:
                    at = self._pass(part.element, at, elements_max)
                else:
                    assert part.read_element is not None
                    _, at = part.read_element(self._buffer, at)
        return skip_tags(self._buffer, at) if structure.is_flexible else at

    def _count(self, elements: int) -> None:
        self.elements += elements
        if self.elements > self._elements_max:
            raise Malformed(f"more than {self._elements_max} elements")

    # --- the second pass ---------------------------------------------------------------------

    def fits(self, portion_max: int) -> bool:
        """Whether a request that was checked is no larger than a portion."""
        return self.elements <= portion_max and (
            len(self._buffer) - self._start <= PORTION_BYTES_MAX or not self.elements
        )

    def portions(self, portion_max: int) -> Iterator[Portion]:
        """The request in portions of this many elements, after `check`."""
        assert self._kept, "it is checked first"
        frame = b"".join(self._kept)
        if self._array is None or self._array[1] <= 0:
            yield Portion(self._structure.read(frame, 0)[0], continues=False)
            return
        part, count, at = self._array
        inner = self._path[len(part.path) - 1 :]
        cutter = _Cutter(self._buffer, inner, portion_max)
        for rows, continues in cutter.cut(part, count, at):
            message, _ = self._structure.read(frame, 0)
            setattr(holder(message, part.path), part.path[-1], rows)
            yield Portion(message, continues)


class _Cutter:
    """Cuts the array at the end of a path.

    Invariant: `_lists[0]` holds the rows of the next portion, and each deeper list is the array of
    the last row of the one above, if `_is_open` there.
    """

    def __init__(self, buffer: Buffer, path: Path, portion_max: int) -> None:
        self._buffer, self._path, self._portion_max = buffer, path, portion_max
        self._lists: list[list[Any]] = [[] for _ in path]
        self._outer: list[tuple[bytes, Structure] | None] = [None] * len(path)
        self._is_open = [False] * len(path)
        self._held, self._cut_at = 0, 0
        self._continues = False

    def cut(self, part: Part, count: int, at: int) -> Iterator[Cut]:
        """The parts of the array; whether the first row of each continues."""
        self._cut_at = at
        yield from self._array(part, count, at, 0)
        if self._lists[0]:
            yield self._take(at)

    def _array(self, part: Part, count: int, at: int, level: int) -> Generator[Cut, None, int]:
        """The generator's value is the place after the array."""
        read, buffer = part.read_element, self._buffer
        assert read is not None
        is_last = level == len(self._path) - 1
        for _ in range(count):
            if self._held >= self._portion_max or at - self._cut_at >= PORTION_BYTES_MAX:
                yield self._take(at)
            if is_last:
                element, at = read(buffer, at)
                self._place(level).append(element)
                self._held += 1
            else:
                assert part.element is not None
                at = yield from self._outer_element(part.element, at, level)
        return at

    def _outer_element(
        self, structure: Structure, start: int, level: int
    ) -> Generator[Cut, None, int]:
        at = start
        *heads, inner = structure.parts
        for part in heads:
            _, at = part.read(self._buffer, at)
        head = bytes(self._buffer[start:at])
        count, at = inner.read(self._buffer, at)
        self._open(level, head, structure, count)
        at = yield from self._array(inner, count, at, level + 1)
        self._is_open[level + 1] = False
        return skip_tags(self._buffer, at) if structure.is_flexible else at

    def _open(self, level: int, head: bytes, structure: Structure, count: int) -> None:
        """Begin an outer element, still without inner elements."""
        empty = (
            (b"\1\0" if count >= 0 else b"\0\0")
            if structure.is_flexible
            else (b"\0\0\0\0" if count >= 0 else b"\xff\xff\xff\xff")
        )
        self._held += 1
        self._outer[level] = head + empty, structure
        self._add_outer(level, is_null=count < 0)

    def _add_outer(self, level: int, *, is_null: bool = False) -> None:
        outer = self._outer[level]
        assert outer is not None
        content, structure = outer
        message, _ = structure.read(content, 0)
        self._place(level).append(message)
        self._lists[level + 1] = []
        if not is_null:
            setattr(message, structure.parts[-1].path[-1], self._lists[level + 1])
        self._is_open[level + 1] = True

    def _place(self, level: int) -> list[Any]:
        """The array of a level; repeats outer elements that the last portion took along."""
        for above in range(level):
            if not self._is_open[above + 1]:
                self._continues = self._continues or above == 0
                self._add_outer(above)
        return self._lists[level]

    def _take(self, at: int) -> Cut:
        rows, continues = self._lists[0], self._continues
        self._lists[0], self._continues = [], False
        self._is_open = [False] * len(self._path)
        self._held, self._cut_at = 0, at
        return rows, continues
