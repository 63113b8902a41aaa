"""How long a message of 64 B takes to a shard's log when no process sleeps or is woken.

The sender writes into its inbox, the shard, which looks there without sleeping (session.spin.us),
appends, and the sender sees the log's tail move. One clock, and all the steps of a record that is
produced but the answer to it.
"""

import time
from collections.abc import Callable

import numpy as np

from shm.kernels.base.words import WORD_TAIL
from shm.kernels.reader.glance import acquire_word
from smq.client.door.door import Door
from smq.client.locate import SHARED_MEMORY, reach_of
from smq.client.producing.channel.produce_request import put_head, request_head
from smq.client.producing.encode.batch_writer import BatchWriter, Stamp
from smq.client.producing.encode.columns import one_of
from smq.wire.compression import Codec

SPIN_US = 2000  # The shard's: longer than the gap between two messages.
NODE_ID = 1
_NOBODY = Stamp(-1, -1, -1)


def _request(topic: str, value: bytes) -> np.ndarray:
    head, out = request_head("bench", topic, 0), np.zeros(1024, np.uint8)
    row = one_of(value, None, (), time.time_ns() // 1_000_000)
    end = BatchWriter(Codec.NONE).write(row, (0, 1), _NOBODY, 1024, out, len(head)).end
    put_head(out, head, end, 0)
    return out[:end].copy()


def appended_ns(
    bootstrap: str, topic: str, value: bytes, count: int, pause: Callable[[], object]
) -> list[int]:
    """From before the write into the inbox until the log's tail has moved, sorted."""
    reach = reach_of(bootstrap, SHARED_MEMORY, 10, 300)
    assert reach.open_door is not None
    door = reach.open_door(NODE_ID)
    try:
        return _send(door, _request(topic, value), count, pause)
    finally:
        door.close()


def _send(door: Door, request: np.ndarray, count: int, pause: Callable[[], object]) -> list[int]:
    (log,) = door.readers.values()
    memory, size, taken = log.memory.memory, len(request), list[int]()
    for _ in range(count):
        tail = acquire_word(memory, WORD_TAIL)
        started = time.perf_counter_ns()
        door.reserve_until(size, 0)[:] = request
        door.commit(size)
        while acquire_word(memory, WORD_TAIL) == tail:
            pass
        taken.append(time.perf_counter_ns() - started)
        pause()
        door.answers()
    return sorted(taken[count // 10 :])
