"""The twin itself, on the cases that are the idea."""

import pytest

from shm.kernels.session.words import FAULT_CUT, FAULT_SIZE, FAULT_TAIL
from shm.kernels.twin.session import Fault, requests, room, take

FIRST = (9).to_bytes(4) + b"nine byte"
SECOND = (12).to_bytes(4) + b"twelve bytes"
PAD = b"\xff" * 4


def test_requests_follow_each_other_and_a_pad_leads_to_the_start() -> None:
    inbox = (SECOND + FIRST.ljust(16) + PAD).ljust(40)
    assert list(requests(inbox, 16, 56, 20)) == [(32, FIRST), (40, b""), (56, SECOND)]
    assert take(inbox, 16, 56, 20, room=20) == (40, FIRST)


@pytest.mark.parametrize(
    ("inbox", "tail", "fault"),
    [
        (FIRST.ljust(16), 24, FAULT_TAIL),
        (FIRST.ljust(16), -8, FAULT_TAIL),
        (FIRST.ljust(16), 9, FAULT_TAIL),
        (FIRST.ljust(16), 8, FAULT_CUT),
        (PAD.ljust(16), 8, FAULT_CUT),
        (bytes(16), 16, FAULT_SIZE),
        ((21).to_bytes(4).ljust(64), 64, FAULT_SIZE),
    ],
)
def test_an_impossible_inbox_raises_fault(inbox: bytes, tail: int, fault: int) -> None:
    with pytest.raises(Fault, match=str(fault)):
        take(inbox, 0, tail, 20, room=100)


def test_room_is_contiguous_or_behind_a_pad_or_nowhere() -> None:
    assert room(64, head=0, tail=0, size=30) == (0, 0)
    assert room(64, head=32, tail=40, size=30) == (0, 24)
    assert room(64, head=24, tail=40, size=30) is None
