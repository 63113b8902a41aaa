"""All clients together may have so much inflated in the loop in one turn."""

from smq.shard.checks import ROOM_BYTES, TurnRoom


def test_room_is_taken_until_the_next_turn() -> None:
    room = TurnRoom()
    assert room.take(ROOM_BYTES - 10)
    assert not room.take(11)
    assert room.take(10)
    assert not room.take(1)
    room.begin_turn()
    assert room.left == ROOM_BYTES
