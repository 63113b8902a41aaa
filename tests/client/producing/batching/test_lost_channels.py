"""Channels to close are reported once; the size that their successors need is kept."""

from smq.client.producing.batching.lost_channels import LostChannels


def test_lost_channels_are_taken_once() -> None:
    lost = LostChannels()
    assert not lost
    lost.add(1)
    lost.add_too_small(2, 5000)
    assert lost
    assert lost.take() == {1, 2}
    assert not lost
    assert lost.take() == set()


def test_the_size_that_a_channel_must_take_stays_known() -> None:
    lost = LostChannels()
    lost.add_too_small(2, 5000)
    lost.take()
    assert (lost.request_bytes(1), lost.request_bytes(2)) == (0, 5000)
