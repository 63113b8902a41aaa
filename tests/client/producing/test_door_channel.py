"""The door's words become the channel's. What a door does its own tests say."""

import select
from typing import Any, cast

import numpy as np
import pytest

from smq.client.door.door import Door, DoorGone, InboxFull
from smq.client.producing.batch_writer import Stamp
from smq.client.producing.channel import ChannelGone
from smq.client.producing.columns import one_of
from smq.client.producing.door_channel import DoorChannel


class FakeDoor:
    """Does what the test says."""

    def __init__(self) -> None:
        self.fails_with: Exception | None = None
        self.has_room = True
        self.request_bytes_max = 1000
        self.calls: list[tuple[Any, ...]] = []

    def _do(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails_with is not None:
            raise self.fails_with

    def reserve(self, size: int, deadline_ns: int) -> np.ndarray:
        self._do("reserve", size, deadline_ns)
        return np.zeros(size, np.uint8)

    def commit(self, used_bytes: int) -> None:
        self._do("commit", used_bytes)

    def send_one(self, size: int, *request: Any) -> bool:
        self._do("send_one", size, *request)
        return self.has_room

    def answers(self) -> list[bytes]:
        self._do("answers")
        return [b"answer"]

    def fileno(self) -> int:
        return 7

    def arm(self) -> bool:
        return True

    def disarm(self) -> bool:
        self._do("disarm")
        return True

    def close(self) -> None:
        self._do("close")

    def forget(self) -> None:
        self._do("forget")


@pytest.fixture
def door() -> FakeDoor:
    return FakeDoor()


@pytest.fixture
def channel(door: FakeDoor) -> DoorChannel:
    return DoorChannel(cast("Door", door))


def test_room_is_asked_for_without_waiting(door: FakeDoor, channel: DoorChannel) -> None:
    room = channel.reserve(9)
    assert room is not None
    assert len(room) == 9
    channel.commit(5)
    assert door.calls == [("reserve", 9, 0), ("commit", 5)]
    assert channel.answers() == [b"answer"]


def test_a_single_record_goes_in_one_call(door: FakeDoor, channel: DoorChannel) -> None:
    head, stamp = np.zeros(1, np.uint8), Stamp(1, 2, 3)
    one = one_of(b"v", None, (), 0)
    assert channel.send_one(9, head, 5, one, stamp)
    assert door.calls == [("send_one", 9, head, 5, one, stamp)]
    door.has_room = False
    assert not channel.send_one(9, head, 5, one, stamp)
    door.fails_with = DoorGone("gone")
    with pytest.raises(ChannelGone):
        channel.send_one(9, head, 5, one, stamp)


def test_a_full_inbox_is_no_room(door: FakeDoor, channel: DoorChannel) -> None:
    door.fails_with = InboxFull("full")
    assert channel.reserve(9) is None


def test_a_shard_that_is_gone_is_gone(door: FakeDoor, channel: DoorChannel) -> None:
    door.fails_with = DoorGone("gone")
    with pytest.raises(ChannelGone):
        channel.reserve(9)
    with pytest.raises(ChannelGone):
        channel.commit(5)
    with pytest.raises(ChannelGone):
        channel.answers()
    channel.disarm()


def test_sleeping_is_the_doors(door: FakeDoor, channel: DoorChannel) -> None:
    assert (channel.fileno(), channel.events(), channel.arm()) == (7, select.POLLIN, True)
    channel.disarm()
    channel.push()
    channel.close()
    channel.forget()
    assert door.calls == [("disarm",), ("close",), ("forget",)]
