"""A request of one record is, written in one call, what it is in several; nothing else changes."""

import os

import numpy as np
from hypothesis import example, given, settings, strategies as st

from shm.kernels.session.client import find_room, publish_request
from shm.kernels.session.one_record import MUST_RING, NO_ROOM, SENT, put_one, send_one
from shm.kernels.session.words import IN_POSITION, INBOX_AT, SHARD_SLEEP
from shm.session import SessionMemory
from smq.client.producing.channel.produce_request import put_head, request_head
from smq.client.producing.encode.batch_writer import BatchWriter, Stamp
from smq.client.producing.encode.columns import one_bound, one_of
from smq.wire.compression import Codec

INBOX_BYTES = 1 << 16
STAMP = Stamp(7, 3, 2**31 - 1)
HEAD = np.frombuffer(request_head("who", "töpic", 5), np.uint8)


def session(position: int) -> SessionMemory:
    """One whose inbox is full of something, and free from `position` on."""
    memory = SessionMemory.create(INBOX_BYTES, 4096)
    os.close(memory.fd)
    memory.memory[INBOX_AT:] = 0xAA
    memory.side[IN_POSITION] = position
    return memory


values = st.one_of(st.none(), st.binary(max_size=300))
headers = st.lists(st.tuples(st.binary(max_size=5), values), max_size=3).map(tuple)


@settings(deadline=None)
@given(
    value=values,
    key=values,
    headers=headers,
    at=st.integers(0, INBOX_BYTES // 8 - 1),
    sleeps=st.integers(0, 1),
)
@example(value=b"v" * 32, key=None, headers=(), at=INBOX_BYTES // 8 - 1, sleeps=1)
def test_one_call_sends_what_the_channels_way_sends(
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    at: int,
    sleeps: int,
) -> None:
    row = one_of(value, key, headers, 1_700_000_000_000)
    writer = BatchWriter(Codec.NONE)
    size = len(HEAD) + writer.room(one_bound(row), one_bound(row), 1 << 20)
    quick, slow = session(8 * at), session(8 * at)
    quick.words[SHARD_SLEEP] = slow.words[SHARD_SLEEP] = sleeps
    done = send_one(quick.memory, quick.side, size, HEAD, 9, *row, *STAMP)
    place = find_room(slow.memory, slow.side, size)
    if place < 0:
        assert done == NO_ROOM
    else:
        out = slow.memory[place : place + size]
        used = writer.write(row, (0, 1), STAMP, 1 << 20, out, len(HEAD)).end
        put_head(out, HEAD.tobytes(), used, 9)
        assert done == (MUST_RING if publish_request(slow.memory, slow.side, used) else SENT)
        alone = np.zeros(size, np.uint8)
        assert put_one(alone, HEAD, 9, *row, *STAMP) == used <= size
        assert (alone[:used] == out[:used]).all()
        quick.memory[place + used : place + size] = out[used:]  # What lies there is nobody's.
    assert (quick.memory == slow.memory).all()
    assert (quick.side == slow.side).all()


def test_where_there_is_no_room_nothing_is_written() -> None:
    memory = session(INBOX_BYTES - 64)
    memory.words[8] = 0  # INBOX_HEAD: all of it is to be read yet.
    before = memory.memory.copy()
    row = one_of(b"v", None, (), 0)
    assert send_one(memory.memory, memory.side, 200, HEAD, 1, *row, *STAMP) == NO_ROOM
    assert (memory.memory == before).all()
