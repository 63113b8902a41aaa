"""What consumers say that they read."""

import struct

import pytest

from smq.coordinator.subscriptions import _topics
from smq.model.errors import PeerError


def test_the_topics_stand_behind_the_version() -> None:
    said = b"\0\3" + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"\xff\xff\xff\xff and more"
    assert _topics(said) == ["a", "bc"]
    assert _topics(b"\0\0" + b"\0\0\0\0") == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0" + b"\0\0\0\1",
        b"\0\0" + b"\x7f\xff\xff\xff" + b"\0\1a",
        b"\0\0\xff\xff\xff\xff",
    ],
)
def test_what_is_no_subscription_is_refused(said: bytes) -> None:
    with pytest.raises((PeerError, struct.error)):
        _topics(said)
