"""A log of a few pages and its produce kernels, driven as a shard drives them; and its plain twin.

Topic `a` has three partitions: plain, on disk level, LogAppendTime; a fourth is led elsewhere.
Topic `\u00e9-small` has one partition that takes only small and recent batches.
"""

import struct
from collections.abc import Sequence
from uuid import UUID

import numpy as np

from shm.kernels.base.entries import LINK_COLUMNS
from shm.kernels.base.words import (
    DURABILITY_SHIFT,
    FLAG_LOG_APPEND_TIME,
    FRAME_KIND_PADDING,
    HEAD_CLOSE,
    HEAD_END,
    HEAD_ERRORS,
    HEAD_LED_ELSEWHERE,
    HEAD_LEVEL,
    HEAD_NOW_MS,
    HEAD_OUT_BYTES,
    HEAD_PARSED,
    HEAD_REQUEST_BYTES_MAX,
    HEAD_REQUEST_COUNT,
    HEAD_START,
    HEAD_STOPPED_ROW,
    HEAD_WALL_MS,
    P_BATCH_BYTES_MAX,
    P_EPOCH,
    P_FLAGS,
    P_LAST_ENTRY,
    P_LOG_START,
    P_NUMBER,
    P_TIMESTAMP_AFTER_MAX,
    P_TIMESTAMP_BEFORE_MAX,
    REFERENCES_CHECKED,
    ROW_STATE,
    STOP_LOG_FULL,
    STOP_OUT_FULL,
    STOP_PLAN_FULL,
    STOP_REFERENCES,
    WORD_GENERATION,
    WORD_INDEX_KEEP,
    WORD_INDEX_TAIL,
    WORD_RING_BYTES,
    WORD_TAIL,
    WORD_WRITTEN,
)
from shm.kernels.log.append import append_rows
from shm.kernels.log.plan import new_plan, row_at
from shm.kernels.request.produce import produce, write_answers
from shm.kernels.twin import produce as plain
from shm.kernels.twin.log import PlainFrame, scan
from shm.producer_table import new_producers
from shm.segment import LogMemory
from shm.timings import ERROR_SLOTS
from smq.model.catalog import Catalog, Topic
from smq.model.now import Now
from smq.wire.codec import ZERO_UUID, Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    read_produce_response,
    write_produce_request,
)
from smq.wire.headers import (
    RequestHeader,
    read_response_header,
    write_request_header,
)
from tests.shard.directories import build_directory

RING_BYTES, SEGMENT_BYTES, LOG, GENERATION = 8192, 4096, 3, 5
REQUEST_BYTES_MAX = 100_000
NOW_MS = 1_700_000_000_000  # Wall time.
MONOTONIC_MS = 50_000_000
NOW = Now(MONOTONIC_MS, NOW_MS)
TOPIC = Topic("a", UUID(int=0xA), (10, 11, 12, 13), (LOG, LOG, LOG, 9))
SMALL = Topic("\u00e9-small", UUID(int=0xE), (20,), (LOG,))
TOPICS = {topic.name: topic for topic in (TOPIC, SMALL)}
SLOTS = {10: 0, 11: 1, 12: 2, 20: 3}
LIMITS = {
    10: plain.TopicLimits(2000),
    11: plain.TopicLimits(1 << 20),
    12: plain.TopicLimits(2000, log_append_time=True),
    20: plain.TopicLimits(300, before_max_ms=1000, after_max_ms=500),
}
LEVELS = {10: 1, 11: 2, 12: 1, 20: 0}


class Rig:
    """`receive` is what a shard does with the bytes of a recv; `wal` is what was written."""

    def __init__(self, *, requests_max: int = 4, rows_max: int = 8) -> None:
        self.log = LogMemory.in_process(LOG, RING_BYTES, SEGMENT_BYTES, 8)
        self.log.words[WORD_GENERATION] = GENERATION
        for number, slot in SLOTS.items():
            self._configure(slot, number)
        capacity = self.log.layout.index_capacity
        self.links = np.full((LINK_COLUMNS, capacity), -1, np.int64)
        self.producers = new_producers(1024, b"the key of tests")
        self.directory = build_directory(
            Catalog("c", 1, TOPICS),
            lambda number: LOG << 32 | SLOTS[number] if number in SLOTS else None,
            b"a secret of rigs",
        )
        self.plan = new_plan(requests_max, rows_max, rows_max)
        self.errors = np.zeros(ERROR_SLOTS, np.int64)
        self._count_errors(self.plan)
        self.out = np.zeros(1, np.uint8)
        self.wal = b""
        self.is_closed = False
        self.drains = 0
        self.level = 0

    def _configure(self, slot: int, number: int) -> None:
        row, limits = self.log.partitions[slot], LIMITS[number]
        row[P_NUMBER], row[P_LAST_ENTRY], row[P_EPOCH], row[P_LOG_START] = number, -1, 7, 0
        row[P_BATCH_BYTES_MAX] = limits.batch_bytes_max
        row[P_TIMESTAMP_BEFORE_MAX] = limits.before_max_ms
        row[P_TIMESTAMP_AFTER_MAX] = limits.after_max_ms
        row[P_FLAGS] = LEVELS[number] << DURABILITY_SHIFT
        row[P_FLAGS] |= FLAG_LOG_APPEND_TIME * limits.log_append_time

    def receive(self, data: bytes, wall_ms: int = NOW_MS) -> tuple[bytes, int, int]:
        """The answers to all whole requests in `data`, the bytes they took, why it ended."""
        array, answers = np.frombuffer(data, np.uint8).copy(), b""
        self.plan[HEAD_START], self.plan[HEAD_END] = 0, len(data)
        self.plan[HEAD_NOW_MS], self.plan[HEAD_WALL_MS] = MONOTONIC_MS, wall_ms
        self.plan[HEAD_REQUEST_BYTES_MAX] = REQUEST_BYTES_MAX
        while True:
            args = self.log.memory, self.links, self.producers
            stop = produce(array, *args, self.directory, self.plan, self.out)
            if stop >= STOP_LOG_FULL:
                self._finish(array)
            answers += self.out[: self.plan[HEAD_OUT_BYTES]].tobytes()
            self.level = max(self.level, int(self.plan[HEAD_LEVEL]))
            parsed = int(self.plan[HEAD_PARSED])
            if self.plan[HEAD_CLOSE] or parsed != STOP_PLAN_FULL:
                self.is_closed |= bool(self.plan[HEAD_CLOSE])
                return answers, int(self.plan[HEAD_START]), parsed
            if self.plan[HEAD_REQUEST_COUNT] == 0:
                self.plan = self._larger_plan()

    def _larger_plan(self) -> np.ndarray:
        plan = new_plan(8, len(self.plan), len(self.plan))
        plan[: HEAD_REQUEST_BYTES_MAX + 1] = self.plan[: HEAD_REQUEST_BYTES_MAX + 1]
        plan[HEAD_WALL_MS] = self.plan[HEAD_WALL_MS]
        self._count_errors(plan)
        return plan

    def _count_errors(self, plan: np.ndarray) -> None:
        plan[HEAD_ERRORS : HEAD_ERRORS + 2] = self.errors.ctypes.data, len(self.errors)

    def _finish(self, data: np.ndarray) -> None:
        while True:
            reason = append_rows(self.log.memory, self.links, self.producers, data, self.plan)
            if reason == STOP_LOG_FULL:
                self.drain()
            elif reason == STOP_REFERENCES:  # Handles are checked elsewhere; these may stay.
                row = row_at(self.plan, self.plan[HEAD_STOPPED_ROW])
                self.plan[row + ROW_STATE] = REFERENCES_CHECKED
            else:
                break
        self.plan[HEAD_LED_ELSEWHERE] = 0  # Who leads instead, Python says (smq.shard.answers).
        while write_answers(data, self.plan, self.out) == STOP_OUT_FULL:
            self.out = np.zeros(2 * len(self.out), np.uint8)

    def drain(self) -> None:
        """Write the WAL, so that the log can go on."""
        self.drains += 1
        words, ring_bytes = self.log.words, self.log.words[WORD_RING_BYTES]
        start, end = words[WORD_WRITTEN], words[WORD_TAIL]
        assert 0 <= end - start <= ring_bytes
        ring = self.log.ring.tobytes()
        first = start % ring_bytes
        self.wal += (ring[first:] + ring[:first])[: end - start]
        words[WORD_WRITTEN] = end
        words[WORD_INDEX_KEEP] = words[WORD_INDEX_TAIL]

    def frames(self) -> list[PlainFrame]:
        """All frames ever appended; the twin's reader finds nothing wrong with any."""
        self.drain()
        frames, end, _ = scan(self.wal, 0, 0)
        assert end == len(self.wal) == self.log.words[WORD_TAIL]
        for frame in frames:
            last = frame.position + frame.frame_bytes - 1
            assert frame.position // RING_BYTES == last // RING_BYTES
            assert frame.position // SEGMENT_BYTES == last // SEGMENT_BYTES
            assert frame.generation == GENERATION
        return frames

    def stored(self) -> dict[int, list[bytes]]:
        """The batches of each partition by its number, as they are stored."""
        stored: dict[int, list[bytes]] = {number: [] for number in SLOTS}
        for frame in self.frames():
            if frame.kind != FRAME_KIND_PADDING:
                assert frame.level == LEVELS[frame.partition]
                stored[frame.partition].append(frame.content)
        return stored


def twin() -> plain.PlainBroker:
    """What a Rig is, in plain Python."""
    topics: dict[bytes, list[plain.PlainPartition | None]] = {}
    for topic in TOPICS.values():
        partitions = [
            plain.PlainPartition(LIMITS[number], leader_epoch=7) if number in SLOTS else None
            for number in topic.partition_numbers
        ]
        topics[topic.name.encode()] = topics[topic.id.bytes] = partitions
    return plain.PlainBroker(topics, min(SEGMENT_BYTES, RING_BYTES // 2))


def twin_stored(broker: plain.PlainBroker) -> dict[int, list[bytes]]:
    """The batches of each partition by its number, as the twin stores them."""
    return {
        number: partition.batches
        for topic in TOPICS.values()
        for number, partition in zip(
            topic.partition_numbers, broker.topics[topic.name.encode()], strict=True
        )
        if partition is not None
    }


def request_of(
    topics: Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]],
    version: int = 9,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    correlation_id: int = 1,
) -> bytes:
    """A framed Produce request, by the generated codec."""
    message = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=TOPICS[name].id if name in TOPICS else ZERO_UUID,
                partition_data=[PartitionProduceData(index=i, records=r) for i, r in partitions],
            )
            for name, partitions in topics
        ],
    )
    writer = Writer()
    write_request_header(RequestHeader(0, version, correlation_id, "c"), writer)
    write_produce_request(message, version, writer)
    body = b"".join(piece for piece in writer.pieces() if isinstance(piece, bytes))
    return struct.pack(">i", len(body)) + body


def read_answers(answers: bytes, versions: list[int]) -> list[tuple[int, ProduceResponse]]:
    """(correlation id, response) of each answer, by the generated codec."""
    at, read = 0, []
    for version in versions:
        end = at + 4 + int.from_bytes(answers[at : at + 4])
        correlation_id, body = read_response_header(answers[:end], at + 4, 0, version)
        read.append((correlation_id, read_produce_response(answers[:end], body, version)))
        at = end
    assert at == len(answers)
    return read


def rows_of(response: ProduceResponse) -> list[list[plain.Row]]:
    """A response as the twin gives it."""
    return [
        [
            plain.Row(
                row.index,
                row.error_code,
                row.base_offset,
                row.log_append_time_ms,
                row.log_start_offset,
            )
            for row in topic.partition_responses
        ]
        for topic in response.responses
    ]
