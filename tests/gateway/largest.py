"""The largest requests that an API takes, and larger ones, made from the table of messages; and the
worst contents of a Produce: what a few bytes may ask for."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from gateway.apis.table import Api
from smq.testing.messages import codec_module
from smq.wire.codec import STRING_BYTES_MAX, TAGS_MAX, Writer
from smq.wire.compression import Codec
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, is_flexible, write_request_header
from smq.wire.messages.notation import Api as WireApi, Field
from smq.wire.messages.tables import APIS
from smq.wire.records import Record, write_batch
from smq.wire.structure_code import is_structure, snake
from tests.wire.oracles import put

WIRE = {api.key: api for api in APIS}
Path = tuple[str, ...]


class Names(NamedTuple):
    """What elements say: nothing, or what there is."""

    text: str
    id: UUID


NOTHING = Names("", UUID(int=0))


class Largest(NamedTuple):
    """A request, and what is large about it."""

    what: str
    data: bytes


def arrays(field: Field, version: int, path: Path = ()) -> Iterator[Path]:
    """The path of each array of a message, through those it lies in."""
    for each in field.fields:
        if version in each.versions and each.is_array:
            yield (*path, each.name)
            yield from arrays(each, version, (*path, each.name))


class Maker:
    """Makes requests of one version."""

    def __init__(self, api: Api, version: int, elements_max: int) -> None:
        self._api, self._version, self._elements_max = api, version, elements_max
        self._wire: WireApi = WIRE[api.key]
        self._module = codec_module(self._wire)
        self._message = self._wire.messages[f"{api.name}Request"]

    def all(self, names: Names) -> Iterator[Largest]:
        """Every array full of the smallest elements, in one outer element or one in each; text."""
        for path in arrays(self._message, self._version):
            yield from self._full(f"one array: {'.'.join(path)}", path, names, spread=False)
            if len(path) > 1:
                yield from self._full(f"many arrays: {'.'.join(path)}", path, names, spread=True)
        yield from self._texts()
        yield self._tagged()

    def _full(self, what: str, path: Path, names: Names, *, spread: bool) -> Iterator[Largest]:
        bounds = self._api.bounds
        one = len(self._request(path, names, 1, spread=spread))
        step = max(1, len(self._request(path, names, 2, spread=spread)) - one)
        levels = len(path) if spread else 1
        count = (self._elements_max - len(path) + 1) // levels
        count = min(count, (bounds.bytes_max - one - 8) // step)
        yield Largest(what, self._request(path, names, count, spread=spread))
        if not spread and self._elements_max == bounds.elements_max:
            more = min(3 * count, (bounds.bytes_max - one - 8) // step)
            yield Largest(f"too {what}", self._request(path, names, more, spread=spread))

    def _request(self, path: Path, names: Names, count: int, *, spread: bool) -> bytes:
        return self._bytes(self._structure(self._message, path, names, count, spread=spread))

    def _bytes(self, message: Any) -> bytes:
        writer = Writer()
        write_request_header(RequestHeader(self._api.key, self._version, 77, "client"), writer)
        write = getattr(self._module, f"write_{snake(self._message.type)}")
        write(message, self._version, writer)
        return writer.to_bytes()

    def _structure(
        self, field: Field, path: Path, names: Names, count: int, *, spread: bool
    ) -> Any:
        message = getattr(self._module, field.type)()
        for each in field.fields:
            if self._version not in each.versions or each.tag is not None:
                continue
            if each.is_array and path and each.name == path[0]:
                is_where = field is self._message if spread else len(path) == 1
                number = count if is_where else 1
                element = self._element(each, path[1:], names, count, spread=spread)
                value: Any = [element] * number
            elif each.is_array or is_structure(each):
                continue
            else:
                default = 0 if each.replaced_by else getattr(message, each.name)
                value = _value(each, names, default)
            put(self._module, message, field.fields, each, value)
        return message

    def _element(self, field: Field, path: Path, names: Names, count: int, *, spread: bool) -> Any:
        if is_structure(field):
            return self._structure(field, path, names, count, spread=spread)
        return _value(field, names, {"string": "", "int8": 0, "int32": 0, "int64": 0}[field.type])

    def _texts(self) -> Iterator[Largest]:
        """As much text as there is room for, good and bad."""
        for path in [(), *arrays(self._message, self._version)]:
            long = Names("\1" * (STRING_BYTES_MAX - 1), UUID(int=1))
            one = len(self._request(path, long, 1, spread=False))
            step = len(self._request(path, long, 2, spread=False)) - one if path else 0
            if step < STRING_BYTES_MAX // 2 and path:
                continue
            count = 1 + (self._api.bounds.bytes_max - one - 8) // step if path else 1
            data = self._request(path, long, max(1, count), spread=False)
            yield Largest(f"text: {path}", data.replace(b"\1", b"x"))
            yield Largest(f"bad text: {path}", data.replace(b"\1", b"\xff"))

    def _tagged(self) -> Largest:
        """A header with as many tagged fields as there is room for."""
        request = self._request((), NOTHING, 0, spread=False)
        if not is_flexible(self._api.key, self._version):
            return Largest("no tags", request)
        at = 8 + 2 + len("client")
        tags = bytes([TAGS_MAX + 1]) + b"\x7f\0" * (TAGS_MAX + 1)
        return Largest("too many tags", request[:at] + tags + request[at + 1 :])


def _value(field: Field, names: Names, default: Any) -> Any:
    if field.type == "string":
        return names.text
    if field.type == "uuid":
        return names.id
    if field.name == "validate_only":
        return True
    return default


def largest(
    api: Api, version: int, names: Names, elements_max: int | None = None
) -> Iterator[Largest]:
    """The largest requests of a version, or those of so many elements."""
    bound = api.bounds.elements_max
    yield from Maker(api, version, min(elements_max or bound, bound)).all(names)


# --- the contents of a Produce -------------------------------------------------------------------

ZEROS_BYTES, RECORDS, REPEATED, SMALL_BATCHES, PLAIN_BATCHES = (
    8 * 1024 * 1024,
    100_000,
    40,
    16_000,
    100,
)


def produce_of(name: str, batches: Sequence[bytes | None], version: int) -> bytes:
    """A Produce request, its size first, of these batches for one partition, again and again."""
    writer = Writer()
    write_request_header(RequestHeader(0, version, 1, "client"), writer)
    rows = [PartitionProduceData(index=0, records=batch) for batch in batches]
    topics = [TopicProduceData(name=name, partition_data=rows)]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    write_produce_request(request, version, writer)
    body = writer.to_bytes()
    return len(body).to_bytes(4) + body


def worst_contents(name: str, time_ms: int, version: int) -> Iterator[Largest]:
    """Compressed, repeated, accumulated: for a topic whose records are looked into."""

    def batch(size: int, codec: Codec, count: int = 1) -> bytes:
        value = bytes(size)
        records = [Record(i, time_ms, b"k", value) for i in range(count)]
        return bytes(write_batch(records, compression=codec))

    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        zeros = batch(ZEROS_BYTES - 100, codec)
        yield Largest(f"zeros: {codec.name}", produce_of(name, [zeros] * 3, version))
        records = batch(0, codec, RECORDS)
        yield Largest(f"records: {codec.name}", produce_of(name, [records] * 3, version))
        small = batch(60_000, codec)
        yield Largest(f"repeated: {codec.name}", produce_of(name, [small] * REPEATED, version))
    plain = batch(30_000, Codec.NONE)
    yield Largest("plain", produce_of(name, [plain] * PLAIN_BATCHES, version))
    tiny = batch(1, Codec.NONE)
    yield Largest("many", produce_of(name, [tiny] * SMALL_BATCHES, version))
    yield Largest("null", produce_of(name, [None] * SMALL_BATCHES, version))
