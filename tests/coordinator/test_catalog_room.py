"""The room of the published catalog."""

from smq.coordinator.catalog_room import HEAD_BYTES_MAX, CatalogRoom


def test_growth_takes_room_and_shrinking_gives_it_back() -> None:
    room = CatalogRoom(HEAD_BYTES_MAX + 10)
    assert room.has(10)
    assert not room.has(11)
    room.count(10)
    assert (room.left, room.has(1), room.has(0)) == (0, False, True)
    room.count(-3)
    assert room.has(3)


def test_an_overfull_catalog_may_shrink() -> None:
    room = CatalogRoom(HEAD_BYTES_MAX)
    room.count(5)
    assert room.left == -5
    assert room.has(-1)
    assert not room.has(1)
