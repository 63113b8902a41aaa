"""A program: feeds the kernels cut and garbled bytes that end where memory ends.

Each buffer lies against a page nobody may touch, so that a read or write behind it ends the
process; its parent builds the kernels with Numba's own checks of indices besides.
"""

import ctypes
import mmap
import random
import sys

import numpy as np

from shm.kernels.base.crc_sums import new_sums
from shm.kernels.base.words import (
    HEAD_END,
    HEAD_REQUEST_BYTES_MAX,
    HEAD_START,
    HEAD_WALL_MS,
    P_HIGH_WATERMARK,
    P_LAST_STABLE,
    STOP_OUT_FULL,
)
from shm.kernels.log.recover import SCAN_COLUMNS, find_frame, scan_frames
from shm.kernels.log.spans import gather_checked
from shm.kernels.record.batches import whole_batch
from shm.kernels.request.fetch import STATE_START, STATE_WORDS, answer_fetch
from shm.kernels.request.produce import produce, write_answers
from smq.wire.codec import Writer
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    write_fetch_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from tests.oracle.batches import batch, changed
from tests.shm.kernels.rig import NOW_MS, REQUEST_BYTES_MAX, Rig, request_of

PAGE = mmap.PAGESIZE
GUARDED_BYTES = 16 * PAGE
PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """Memory that ends where the process does."""

    def __init__(self) -> None:
        self._mapping = mmap.mmap(-1, GUARDED_BYTES + PAGE)
        whole = np.frombuffer(self._mapping, np.uint8)
        guard = ctypes.c_void_p(whole.ctypes.data + GUARDED_BYTES)
        assert _LIBC.mprotect(guard, PAGE, PROT_NONE) == 0, ctypes.get_errno()
        self._memory = whole[:GUARDED_BYTES]

    def holding(self, data: bytes) -> np.ndarray:
        """These bytes, the last one before the guard."""
        place = self._memory[GUARDED_BYTES - len(data) :]
        place[:] = np.frombuffer(data, np.uint8)
        return place


def streams(rng: random.Random) -> bytes:
    """Requests of random versions, with some bytes changed or cut off."""
    stream = bytearray()
    for _ in range(rng.randint(1, 3)):
        size = rng.choice([0, 1, 50, 300])
        fields = rng.choice([{}, {"length": 2**31 - 1}, {"record_count": 7}, {"producer_id": 3}])
        records = changed(batch(rng.randbytes(size)), **fields)[: rng.choice([None, 20, 60])]
        partitions = [(rng.randint(-1, 4), records) for _ in range(rng.randint(0, 3))]
        stream += request_of([(rng.choice(["a", "", "b" * 40]), partitions)], rng.randint(3, 13))
    for _ in range(rng.choice([0, 0, 1, 5])):
        stream[rng.randrange(len(stream))] = rng.randrange(256)
    return bytes(stream[: len(stream) - rng.choice([0, 0, 1, 30])])


def feed_produce(guarded: Guarded, answers: Guarded, rng: random.Random, rounds: int) -> None:
    rig = Rig()
    for _ in range(rounds):
        data = guarded.holding(streams(rng))
        rig.plan[HEAD_START], rig.plan[HEAD_END], rig.plan[HEAD_WALL_MS] = 0, len(data), NOW_MS
        rig.plan[HEAD_REQUEST_BYTES_MAX] = REQUEST_BYTES_MAX
        out = answers.holding(bytes(rng.choice([0, 64, 300, 1000, 5000])))
        args = rig.log.memory, rig.links, rig.producers
        if produce(data, *args, rig.directory, rig.plan, out) == STOP_OUT_FULL:
            write_answers(data, rig.plan, answers.holding(bytes(20_000)))
        rig.drain()


def feed_scans(guarded: Guarded, rng: random.Random, rounds: int) -> None:
    rig = Rig()
    for size in range(0, 900, 50):
        rig.receive(request_of([("a", [(0, batch(b"v" * size))])]))
    rig.drain()
    rows = np.zeros((50, SCAN_COLUMNS), np.int64)
    for _ in range(rounds):
        wal = bytearray(rig.wal[: rng.randrange(len(rig.wal))] + b"\0")
        wal[rng.randrange(len(wal))] ^= 1 << rng.randrange(8)
        data = guarded.holding(bytes(wal))
        sums = new_sums(len(data))
        count, at, _ = scan_frames(data, 0, len(data), 0, 0, rows, sums)
        find_frame(data, at, len(data), 0, 0, sums)
        spans = rows[:count, :2] + np.array([48, 0])
        gather_checked(data, 0, spans, np.zeros(1 << 16, np.uint8), 0)


def fetches(rng: random.Random) -> bytes:
    """A fetch of a random version, with some bytes changed or cut off."""
    version = rng.randint(4, 18)
    places = [
        FetchPartition(partition=rng.randint(0, 3), fetch_offset=rng.randint(0, 20))
        for _ in range(rng.randint(0, 3))
    ]
    topics = [FetchTopic(topic=name, partitions=places) for name in rng.sample(["a", "b"], 1)]
    writer = Writer()
    write_request_header(RequestHeader(1, version, 5, "client"), writer)
    write_fetch_request(FetchRequest(topics=topics, min_bytes=1), version, writer)
    request = bytearray(writer.to_bytes())
    for _ in range(rng.choice([0, 0, 1, 5])):
        request[rng.randrange(len(request))] = rng.randrange(256)
    return bytes(request[: len(request) - rng.choice([0, 0, 1, 30])])


def feed_fetch(guarded: Guarded, answers: Guarded, rng: random.Random, rounds: int) -> None:
    rig, state = Rig(), np.zeros(STATE_WORDS, np.int64)
    for size in range(0, 900, 50):
        rig.receive(request_of([("a", [(0, batch(b"v" * size))])]))
    rig.drain()
    rig.log.partitions[:, [P_HIGH_WATERMARK, P_LAST_STABLE]] = 18
    for _ in range(rounds):
        data = guarded.holding(fetches(rng))
        out = answers.holding(bytes(rng.choice([200, 300, 1000, 20_000])))
        state[STATE_START] = 0
        memory, is_last = rig.log.memory, rng.random() < 0.5
        answer_fetch(data, len(data), is_last, memory, rig.links, rig.directory, state, out)


def lie(guarded: Guarded) -> None:
    """Say that there are more bytes than there are: this must end the process."""
    data = guarded.holding(batch(b"")[:20])
    whole_batch(data, 0, len(data) + 1)
    whole_batch(data[12:], 0, len(data))


def main(seed: int, rounds: int) -> None:
    rng, guarded, answers = random.Random(seed), Guarded(), Guarded()
    if rounds == 0:
        lie(guarded)
    for size in range(120):
        data = guarded.holding(batch(b"")[:size])
        whole_batch(data, 0, len(data))
    feed_produce(guarded, answers, rng, rounds)
    feed_scans(guarded, rng, rounds)
    feed_fetch(guarded, answers, rng, rounds)
    sys.stdout.write("inside")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
