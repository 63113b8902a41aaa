"""Children that are ready, end too early, or never get there."""

import socket
import sys
from pathlib import Path

import pytest

from smq.testing.processes import Child, ReservedPorts, answers, free_port

SAYS_AND_STAYS = "import sys, time; print('hello', flush=True); time.sleep(60)"


def child(code: str, tmp_path: Path) -> Child:
    return Child.start([sys.executable, "-c", code], tmp_path / "output")


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


def test_reserved_ports_can_be_bound_by_their_broker_only() -> None:
    with ReservedPorts(3) as ports:
        for port in range(ports.first, ports.first + 3):
            for _ in range(2):  # A broker may come back.
                with socket.create_server(("127.0.0.1", port)) as broker:
                    assert broker.getsockname()[1] == port
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(("127.0.0.1", port))
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", ports.first))


def test_answers_is_false_for_a_free_port() -> None:
    assert not answers(free_port())
