"""A producer's channels: adopted, opened, polled and closed together."""

import os
import select
from collections.abc import Iterator

import pytest

from smq.client.errors import ChannelGone
from smq.client.producing.channel.channels import Channels
from smq.client.wait import ready
from tests.client.fake_shard import FakeChannel


class Polled(FakeChannel):
    """A channel that can be polled."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.eventfd(0)
        self.polled_for, self.is_armed = select.POLLIN, False
        self.is_closing = False  # Found by whoever wakes.

    def fileno(self) -> int:
        return self.descriptor

    def events(self) -> int:
        return self.polled_for

    def arm(self) -> bool:
        self.is_armed = True
        return super().arm()

    def disarm(self) -> bool:
        self.is_armed = False
        self.is_gone |= self.is_closing
        self._check()
        return super().disarm()


@pytest.fixture
def two() -> Iterator[list[Polled]]:
    made = [Polled(), Polled()]
    yield made
    for each in made:
        os.close(each.descriptor)


@pytest.fixture
def channels(two: list[Polled]) -> Channels:
    made = Channels()
    for node_id, channel in enumerate(two):
        made.adopt(node_id, channel)
    made.use_adopted()
    return made


def test_an_adopted_channel_is_there_and_open_once_it_is_used(two: list[Polled]) -> None:
    channels = Channels()
    channels.adopt(1, two[0])
    assert 1 in channels
    assert 2 not in channels
    assert not channels.by_node
    channels.use_adopted()
    assert channels.by_node == {1: two[0]}
    assert 1 in channels


def test_a_channel_that_is_removed_is_closed(channels: Channels, two: list[Polled]) -> None:
    channels.remove(0)
    channels.remove(7)
    assert (two[0].is_gone, two[1].is_gone) == (True, False)
    assert [*channels.by_node] == [1]


def test_answers_come_with_their_broker_and_so_does_the_end(
    channels: Channels, two: list[Polled]
) -> None:
    two[0].received = [b"a", b"b"]
    two[1].is_gone = True
    (first, second) = channels.answers()
    assert first == (0, [b"a", b"b"])
    assert second[0] == 1
    assert isinstance(second[1], ChannelGone)


def test_channels_must_push_while_a_socket_has_unsent_bytes(
    channels: Channels, two: list[Polled]
) -> None:
    assert not channels.must_push()
    two[1].polled_for |= select.POLLOUT
    assert channels.must_push()


def test_all_are_armed_also_behind_one_that_has_answers(
    channels: Channels, two: list[Polled]
) -> None:
    assert channels.are_quiet()
    assert channels.arm()
    two[0].received, two[1].is_quiet = [b"a"], False
    assert not channels.arm()
    assert not channels.are_quiet()
    assert all(each.is_armed for each in two)
    channels.disarm()
    assert not any(each.is_armed for each in two)


def test_all_are_disarmed_also_behind_one_that_is_found_to_be_gone(
    channels: Channels, two: list[Polled]
) -> None:
    two[0].is_closing = True
    assert channels.arm()
    channels.disarm()
    assert not any(each.is_armed for each in two)
    ((_, first), (_, second)) = channels.answers()
    assert isinstance(first, ChannelGone)
    assert second == []


def test_watch_returns_false_for_a_lost_channel(channels: Channels, two: list[Polled]) -> None:
    watched: dict[int, int] = {}
    assert channels.watch(watched)
    os.eventfd_write(two[1].descriptor, 1)
    assert ready(watched, 0) == [two[1].descriptor]
    kept, two[0].descriptor = two[0].descriptor, -1
    assert not channels.watch({})
    two[0].descriptor = kept


@pytest.mark.parametrize("end", [Channels.close, Channels.forget])
def test_at_the_end_adopted_ones_are_closed_as_well(end: object, two: list[Polled]) -> None:
    channels = Channels()
    channels.adopt(0, two[0])
    channels.use_adopted()
    channels.adopt(1, two[1])
    assert callable(end)
    end(channels)
    assert all(each.is_gone for each in two)
