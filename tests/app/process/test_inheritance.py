"""Stopping and readiness; real forks test the contents of a share.

See test_supervisor: there each process tells what it has mapped and open.
"""

import os
import signal
from pathlib import Path

from smq.app.process.inheritance import Stop, attach_name, shard_name, socket_path
from smq.client.wait import wait_readable


def readable(fd: int) -> bool:
    return bool(wait_readable([fd], 0))


def test_a_stop_is_requested_once_and_wakes_an_event_loop() -> None:
    stop = Stop()
    assert not stop.requested()
    assert not readable(stop.fd)
    stop.request()
    stop.request()
    assert stop.requested()
    assert os.read(stop.fd, 9) == b"\0"
    stop.close()


def test_a_signal_requests_it() -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        stop.on_signals([signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.requested()
        assert readable(stop.fd)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGUSR1, before)
        stop.close()


def test_processes_find_each_other_by_name() -> None:
    assert socket_path(Path("/run/smq"), shard_name(2)) == Path("/run/smq/shard-2.sock")
    assert socket_path(Path("/run/smq"), attach_name(2)) == Path("/run/smq/attach-2.sock")
