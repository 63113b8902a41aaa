"""The plain twin of the produce kernels: parse, check, append. Read it first.

parse          shm.kernels.request.produce: parse_requests
check_batch    shm.kernels.record.batches
Producers      shm.kernels.log.producers
PlainBroker    shm.kernels.log.append: the answers, and the partitions' contents
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shm.kernels.record.records import INFLATED_BYTES_MAX, RECORD_BYTES_MIN
from shm.kernels.twin.log import batch_is_good, crc32c

VERSIONS = range(3, 14)
LOG_START_FROM, FLEXIBLE_FROM, IDS_FROM = 5, 9, 13
SEQUENCES = 2**31  # After the last comes 0.

_BATCH = struct.Struct(">qiibIhiqqqhii")
NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER = 0, 2, 3, 6
MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP, OUT_OF_ORDER = 10, 21, 32, 45
INVALID_PRODUCER_EPOCH, NOT_AUTHORIZED, STORAGE_ERROR = 47, 53, 56
UNSUPPORTED_COMPRESSION, INVALID_RECORD, UNKNOWN_TOPIC_ID, UNKNOWN_ERROR = 76, 87, 100, -1


class Cut(Exception):
    """The request ends before its fields do, or a length is impossible."""


class Header(NamedTuple):
    """The header of a record batch, KIP-98."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def read_header(batch: bytes) -> Header:
    """The header of a batch that has one."""
    return Header(*_BATCH.unpack_from(batch))


# --- Parsing --------------------------------------------------------------------------------------


class PlainRequest(NamedTuple):
    """A Produce request: topics are (name or id, [(partition, records)])."""

    version: int
    correlation_id: int
    is_transactional: bool
    acks: int
    topics: list[tuple[bytes, list[tuple[int, bytes | None]]]]


class Fields:
    """Takes fields off the front of a request's bytes."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        if count > len(self.left):
            raise Cut
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), signed=True)

    def varint(self) -> int:
        value = 0
        for place in range(5):
            byte = self.take(1)[0]
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise Cut

    def length(self, width: int, *, compact: bool) -> int:
        """The length of a string, bytes or an array; -1 stands for null."""
        length = self.varint() - 1 if compact else self.number(width)
        if not -1 <= length <= len(self.left):
            raise Cut
        return length

    def field(self, width: int, *, compact: bool) -> bytes | None:
        length = self.length(width, compact=compact)
        return None if length < 0 else self.take(length)

    def count(self, *, compact: bool) -> int:
        count = self.length(4, compact=compact)
        if count < 0:
            raise Cut
        return count

    def tags(self, *, compact: bool) -> None:
        for _ in range(self.varint() if compact else 0):
            self.varint()
            self.take(self.varint())


def parse_request(body: bytes) -> PlainRequest:
    """One request without its length. Raises Cut."""
    fields = Fields(body)
    fields.number(2)
    version, correlation_id = fields.number(2), fields.number(4)
    compact = version >= FLEXIBLE_FROM
    fields.field(2, compact=False)
    fields.tags(compact=compact)
    transactional_id = fields.field(2, compact=compact)
    acks = fields.number(2)
    fields.number(4)
    topics = [_parse_topic(fields, version) for _ in range(fields.count(compact=compact))]
    fields.tags(compact=compact)
    return PlainRequest(version, correlation_id, transactional_id is not None, acks, topics)


def _parse_topic(fields: Fields, version: int) -> tuple[bytes, list[tuple[int, bytes | None]]]:
    compact = version >= FLEXIBLE_FROM
    key = fields.take(16) if version >= IDS_FROM else fields.field(2, compact=compact)
    if key is None:
        raise Cut
    partitions = []
    for _ in range(fields.count(compact=compact)):
        index = fields.number(4)
        partitions.append((index, fields.field(4, compact=compact)))
        fields.tags(compact=compact)
    fields.tags(compact=compact)
    return key, partitions


def parse(data: bytes, request_bytes_max: int) -> tuple[list[PlainRequest], int, str]:
    """The whole Produce requests at the start of `data`: (requests, their bytes, why it ends).

    The end is "need more", "other API" or "malformed".
    """
    requests, at = list[PlainRequest](), 0
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 4], signed=True)
        if not 8 <= size <= request_bytes_max:
            return requests, at, "malformed"
        body = data[at + 4 : at + 4 + size]
        if len(body) < size:
            break
        if body[:2] != b"\0\0" or int.from_bytes(body[2:4], signed=True) not in VERSIONS:
            return requests, at, "other API"
        try:
            requests.append(parse_request(body))
        except Cut:
            return requests, at, "malformed"
        at += 4 + size
    return requests, at, "need more"


# --- Checking -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopicLimits:
    """The limits of a topic; times in ms."""

    batch_bytes_max: int
    log_append_time: bool = False
    before_max_ms: int = 2**62
    after_max_ms: int = 2**62


class BatchRefused(Exception):
    """A batch is not appended. Kafka says where the log starts if the log refused it."""

    def __init__(self, error: int, *, by_log: bool = False) -> None:
        super().__init__(error)
        self.error, self.by_log = error, by_log


def next_batch(records: bytes) -> bytes | None:
    """The first batch of some bytes if it is whole. Raises BatchRefused."""
    if len(records) < 12:
        return None
    length = int.from_bytes(records[8:12], signed=True)
    if length < 14 or (len(records) > 16 and records[16] > 2):
        raise BatchRefused(CORRUPT_MESSAGE)
    return records[: 12 + length] if len(records) >= max(17, 12 + length) else None


def shape(records: bytes | None, version: int, *, is_transactional: bool) -> bytes:
    """The one batch of a partition. Raises BatchRefused."""
    batch = next_batch(records or b"")
    if batch is None or batch[16] != 2:
        raise BatchRefused(INVALID_RECORD)
    if next_batch((records or b"")[len(batch) :]) is not None:
        raise BatchRefused(INVALID_RECORD)
    if len(batch) < _BATCH.size:
        raise BatchRefused(CORRUPT_MESSAGE)
    attributes = read_header(batch).attributes
    if attributes & 16 and not is_transactional:
        raise BatchRefused(NOT_AUTHORIZED)
    if attributes & 7 == 4 and version < 7:
        raise BatchRefused(UNSUPPORTED_COMPRESSION)
    return batch


def check_content(batch: bytes) -> int:
    """Check a batch's header against its log: an error, or NONE."""
    header = read_header(batch)
    codec = header.attributes & 7
    if header.base_offset != 0 or header.attributes & 32:
        return INVALID_RECORD
    if codec > 4:
        return UNKNOWN_ERROR
    if not header.record_count == header.last_offset_delta + 1 > 0:
        return INVALID_RECORD
    inflated_bytes_max = INFLATED_BYTES_MAX if codec else len(batch) - _BATCH.size
    if RECORD_BYTES_MIN * header.record_count > inflated_bytes_max:
        return INVALID_RECORD
    if header.producer_id >= 0 and header.base_sequence < 0:
        return INVALID_RECORD
    return NONE


def check_times(batch: bytes, limits: TopicLimits, wall_ms: int) -> int:
    """Check a batch's timestamps against its topic: an error, or NONE."""
    header = read_header(batch)
    too_new = header.max_timestamp - wall_ms > limits.after_max_ms
    age_ms = wall_ms - header.base_timestamp
    too_old = header.base_timestamp != -1 and limits.before_max_ms < age_ms < 2**63
    return INVALID_TIMESTAMP if (too_new or too_old) and not limits.log_append_time else NONE


def check_batch(
    request: PlainRequest,
    records: bytes | None,
    limits: TopicLimits,
    frame_bytes_max: int,
    wall_ms: int,
) -> bytes:
    """The batch to append. Raises BatchRefused."""
    batch = shape(records, request.version, is_transactional=request.is_transactional)
    frame_bytes = -(-(48 + len(batch)) // 64) * 64
    if len(batch) > limits.batch_bytes_max or frame_bytes > frame_bytes_max:
        raise BatchRefused(MESSAGE_TOO_LARGE)
    if not batch_is_good(batch):
        raise BatchRefused(CORRUPT_MESSAGE)
    if error := check_content(batch) or check_times(batch, limits, wall_ms):
        raise BatchRefused(error, by_log=True)
    return batch


# --- Idempotent producers -------------------------------------------------------------------------


class Appended(NamedTuple):
    """An appended batch of a producer."""

    first: int
    last: int
    base_offset: int
    timestamp: int


@dataclass
class Producers:
    """The last five batches of each producer's newest epoch, on one partition."""

    known: dict[int, tuple[int, list[Appended]]] = field(default_factory=dict)

    def check(self, producer_id: int, epoch: int, first: int, last: int) -> Appended | None:
        """The batch that this one repeats, None: it is new and follows. Raises BatchRefused."""
        if producer_id not in self.known:
            return None
        newest_epoch, batches = self.known[producer_id]
        if epoch < newest_epoch:
            raise BatchRefused(INVALID_PRODUCER_EPOCH, by_log=True)
        if epoch == newest_epoch:
            for batch in batches:
                if (batch.first, batch.last) == (first, last):
                    return batch
        follows = (batches[-1].last + 1) % SEQUENCES if epoch == newest_epoch else 0
        if first != follows:
            raise BatchRefused(OUT_OF_ORDER, by_log=True)
        return None

    def remember(self, producer_id: int, epoch: int, batch: Appended) -> None:
        """Note a batch that was appended."""
        newest_epoch, batches = self.known.get(producer_id, (epoch, []))
        kept = batches if epoch == newest_epoch else []
        self.known[producer_id] = (epoch, [*kept, batch][-5:])


def sip_hash(key: bytes, data: bytes) -> int:
    """SipHash-1-3, after its paper, which hashes producers and topics."""
    v = sip_start(key)
    for block in sip_blocks(data):
        v[3] ^= block
        sip_round(v)
        v[0] ^= block
    v[2] ^= 0xFF
    for _ in range(3):
        sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def sip_start(key: bytes) -> list[int]:
    """The state for a key of 16 bytes."""
    words = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    secret = b"somepseudorandomlygeneratedbytes"
    return [words[i % 2] ^ int.from_bytes(secret[8 * i : 8 * i + 8]) for i in range(4)]


def sip_blocks(data: bytes) -> list[int]:
    """The words that are hashed: the last one says the length."""
    length, full = (len(data) & 255) << 56, len(data) // 8 * 8
    blocks = [int.from_bytes(data[at : at + 8], "little") for at in range(0, full, 8)]
    return [*blocks, length | int.from_bytes(data[full:], "little")]


def sip_round(v: list[int]) -> None:
    """One round."""
    for one, other, bits, turned in ((0, 1, 13, 0), (2, 3, 16, -1), (0, 3, 21, -1), (2, 1, 17, 2)):
        v[one] = (v[one] + v[other]) % 2**64
        v[other] = _turned(v[other], bits) ^ v[one]
        if turned >= 0:
            v[turned] = _turned(v[turned], 32)


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) % 2**64


# --- Appending ------------------------------------------------------------------------------------


class Row(NamedTuple):
    """The answer for one batch."""

    partition: int
    error: int
    base_offset: int = -1
    append_time: int = -1
    log_start: int = -1


@dataclass
class PlainPartition:
    """Its limits, and its batches as they are stored."""

    limits: TopicLimits
    leader_epoch: int = 0
    log_start: int = 0
    log_end: int = 0
    read_only: bool = False
    batches: list[bytes] = field(default_factory=list)
    producers: Producers = field(default_factory=Producers)

    def append(self, batch: bytes, wall_ms: int) -> tuple[int, int]:
        """Store a checked batch: (base offset, append time)."""
        header, stamped = read_header(batch), self.limits.log_append_time
        first = header.base_sequence
        last = (first + header.last_offset_delta) % SEQUENCES
        idempotent = header.producer_id >= 0 and header.producer_epoch >= 0
        if idempotent:
            repeated = self.producers.check(header.producer_id, header.producer_epoch, first, last)
            if repeated is not None:
                return repeated.base_offset, repeated.timestamp
        timestamp = wall_ms if stamped else header.max_timestamp
        base_offset, self.log_end = self.log_end, self.log_end + header.record_count
        stored = header._replace(
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            attributes=header.attributes | 8 if stamped else header.attributes & ~8,
            max_timestamp=timestamp,
        )
        data = _BATCH.pack(*stored) + batch[_BATCH.size :]
        self.batches.append(data[:17] + crc32c(data[21:]).to_bytes(4) + data[21:])
        if idempotent:
            appended = Appended(first, last, base_offset, timestamp)
            self.producers.remember(header.producer_id, header.producer_epoch, appended)
        return base_offset, wall_ms if stamped else -1


@dataclass
class PlainBroker:
    """Topics by name and by id; each a list of partitions, None where another node leads."""

    topics: dict[bytes, list[PlainPartition | None]]
    frame_bytes_max: int = 1 << 30

    def answers(
        self, requests: list[PlainRequest], wall_ms: int
    ) -> Iterator[tuple[PlainRequest, list[list[Row]]]]:
        """The answers to each request; none after an error with acks=0, which ends the
        connection."""
        closed = False
        for request in requests:
            rows = [
                [self._row(request, key, index, records, wall_ms) for index, records in partitions]
                for key, partitions in request.topics
            ]
            if request.acks == 0:
                closed |= any(row.error for topic in rows for row in topic)
            elif not closed:
                yield request, rows

    def _row(
        self, request: PlainRequest, key: bytes, index: int, records: bytes | None, wall_ms: int
    ) -> Row:
        log_start = -1
        try:
            partition = self._partition(request, key, index)
            if request.version >= LOG_START_FROM:
                log_start = partition.log_start
            limits = partition.limits
            batch = check_batch(request, records, limits, self.frame_bytes_max, wall_ms)
            base_offset, append_time = partition.append(batch, wall_ms)
        except BatchRefused as why:
            return Row(index, why.error, log_start=log_start if why.by_log else -1)
        return Row(index, NONE, base_offset, append_time, log_start)

    def _partition(self, request: PlainRequest, key: bytes, index: int) -> PlainPartition:
        if not -1 <= request.acks <= 1:
            raise BatchRefused(INVALID_REQUIRED_ACKS)
        partitions = self.topics.get(key)
        if partitions is None and request.version >= IDS_FROM:
            raise BatchRefused(UNKNOWN_TOPIC_ID)
        if partitions is None or not 0 <= index < len(partitions):
            raise BatchRefused(UNKNOWN_TOPIC_OR_PARTITION)
        partition = partitions[index]
        if partition is None or partition.read_only:
            raise BatchRefused(NOT_LEADER if partition is None else STORAGE_ERROR)
        return partition
