"""Children that are ready, end too early, or never get there."""

import socket
import sys
from pathlib import Path

import pytest

from smq.testing.processes import Child, answers, free_port

SAYS_AND_STAYS = "import sys, time; print('hello', flush=True); time.sleep(60)"


def child(code: str, tmp_path: Path) -> Child:
    return Child([sys.executable, "-c", code], tmp_path / "output")


def test_a_child_is_waited_for_until_it_is_ready(tmp_path: Path) -> None:
    one = child(SAYS_AND_STAYS, tmp_path)
    one.wait_ready(lambda: "hello" in one.tail(), 20)
    assert one.running
    one.terminate()
    assert not one.running


def test_a_child_that_ends_too_early_is_quoted(tmp_path: Path) -> None:
    one = child("raise SystemExit('it cannot be')", tmp_path)
    with pytest.raises(RuntimeError, match="it cannot be"):
        one.wait_ready(lambda: False, 20)


def test_a_child_that_is_never_ready_is_killed_at_the_deadline(tmp_path: Path) -> None:
    one = child(SAYS_AND_STAYS, tmp_path)
    with pytest.raises(TimeoutError):
        one.wait_ready(lambda: False, 0.05)
    assert not one.running


def test_free_ports_lie_side_by_side() -> None:
    first = free_port(3)
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for port, sock in enumerate((one, two, three), first):
            sock.bind(("127.0.0.1", port))


def test_nobody_answers_on_a_port_that_is_free() -> None:
    assert not answers(free_port())
