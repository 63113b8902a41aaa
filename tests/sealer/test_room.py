"""A room: files of any size, one after the other, in the same memory."""

import numpy as np
import pytest

from smq.sealer import room as module
from smq.sealer.room import Room

FIRST_BYTES = 1 << 16


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BYTES", FIRST_BYTES)


def test_a_file_is_what_was_written_in_any_pieces() -> None:
    room, chance = Room(), np.random.default_rng(3)
    pieces = [chance.bytes(size) for size in (0, 1, 100, FIRST_BYTES, 3 * FIRST_BYTES, 7)]
    for piece in pieces:
        assert room.write(memoryview(piece)) == len(piece)
    whole = b"".join(pieces)
    assert room.tell() == len(whole)
    assert room.written().tobytes() == whole
    assert room.written(101).tobytes() == whole[101:]


def test_the_next_file_begins_empty_and_takes_the_same_memory() -> None:
    room = Room()
    room.write(bytes(2 * FIRST_BYTES))
    first = room.written()
    room.begin()
    assert room.tell() == len(room.written()) == 0
    room.write(b"next")
    assert np.shares_memory(first, room.written())
    assert room.written().tobytes() == b"next"
