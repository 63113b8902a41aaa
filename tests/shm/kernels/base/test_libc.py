"""The numbers are those of the C library; each function is tested by the kernels that call it."""

import select
import socket
import time

from shm.kernels.base import libc


def test_flags_and_clocks_are_the_systems() -> None:
    assert libc.CLOCK_REALTIME == time.CLOCK_REALTIME
    assert libc.CLOCK_MONOTONIC == time.CLOCK_MONOTONIC
    assert libc.EPOLLIN == select.EPOLLIN
    assert (libc.POLLIN, libc.POLLOUT) == (select.POLLIN, select.POLLOUT)
    assert libc.MSG_DONTWAIT == socket.MSG_DONTWAIT
    assert libc.MSG_NOSIGNAL == socket.MSG_NOSIGNAL
