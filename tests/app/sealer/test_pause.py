"""A pause of a worker."""

import os

import pytest

from smq.app.process.clock import replaced
from smq.app.sealer import pause as pause_module
from smq.app.sealer.pause import NEVER, Pause


def test_a_worker_waits_until_the_sealer_lets_it_go_on() -> None:
    pause = Pause()
    pause.set(is_on=True)
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tells, b"1")
        pause.wait()
        os.write(tells, b"2" if not pause.is_on else b"?")
        os._exit(0)
    assert os.read(told, 1) == b"1"
    pause.set(is_on=False)
    assert os.read(told, 1) == b"2"
    os.waitpid(pid, 0)


def test_it_says_how_long_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_ms = [0]
    pause = Pause()
    pause.set(is_on=True)

    def sleep(_seconds: float) -> None:
        passed_ms[0] += 20
        pause.set(is_on=passed_ms[0] < 60)

    monkeypatch.setattr(pause_module, "sleep", sleep)
    with replaced(lambda: 0, lambda: passed_ms[0] * 1_000_000):
        assert pause.wait() == 60
        assert NEVER.wait() == 0
