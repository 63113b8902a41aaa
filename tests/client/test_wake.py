"""A wake makes a descriptor readable, from any thread, until it is cleared."""

import errno
import threading
from collections.abc import Iterator

import pytest

from smq.client.wait import wait_readable
from smq.client.wake import EventWake, SocketWake, Wake

WAIT_S = 30
FILLING = 1_000_000  # More bytes than a pair of sockets holds.


def test_linux_uses_the_faster_one() -> None:
    assert Wake is EventWake


@pytest.fixture(params=[EventWake, SocketWake])
def wake(request: pytest.FixtureRequest) -> Iterator[EventWake | SocketWake]:
    made = request.param()
    yield made
    made.close()


def is_readable(wake: EventWake | SocketWake) -> bool:
    return wait_readable([wake.fileno()], 0) == [wake.fileno()]


def test_it_is_readable_from_wake_to_clear(wake: EventWake | SocketWake) -> None:
    assert not is_readable(wake)
    wake.clear()
    for _ in range(3):
        wake.wake()
    assert is_readable(wake)
    wake.clear()
    assert not is_readable(wake)
    wake.wake()
    assert is_readable(wake)


def test_a_waiting_thread_is_woken_by_another(wake: EventWake | SocketWake) -> None:
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(wait_readable([wake.fileno()], WAIT_S)))
    thread.start()
    wake.wake()
    thread.join(WAIT_S)
    assert found == [[wake.fileno()]]


def test_wakes_without_end_neither_block_nor_pile_up() -> None:
    wake = SocketWake()
    for _ in range(FILLING):
        wake.wake()
    assert is_readable(wake)
    wake.clear()
    assert not is_readable(wake)
    wake.close()


@pytest.mark.parametrize("kind", [EventWake, SocketWake])
def test_once_it_is_closed_waking_fails(kind: type[EventWake | SocketWake]) -> None:
    wake = kind()
    wake.close()
    with pytest.raises(OSError, match="Bad file descriptor") as raised:
        wake.wake()
    assert raised.value.errno == errno.EBADF
