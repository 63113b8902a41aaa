"""All clients together may have so much inflated in the loop in one turn."""

from smq.shard.checks import ROOM_BYTES, Room


def test_what_is_taken_is_taken_until_the_next_turn() -> None:
    room = Room()
    assert room.take(ROOM_BYTES - 10)
    assert not room.take(11)
    assert room.take(10)
    assert not room.take(1)
    room.begin_turn()
    assert room.left == ROOM_BYTES
