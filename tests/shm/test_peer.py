"""Whose process is at the other end; another user's takes part where the tests run as root."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shm.peer import PeerIdentity, check_ours, is_ours, peer_of

NOBODY = 65534
CONNECTING = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(sys.argv[1])
    sock.recv(1)
"""


def test_our_own_process_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == (os.getpid(), os.getuid())
        assert is_ours(ours)
        check_ours(ours)


def test_root_is_welcome_and_another_user_is_not() -> None:
    assert PeerIdentity(1, 0).is_ours
    assert not PeerIdentity(1, os.getuid() + 1).is_ours


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_a_process_of_another_user_is_known_by_the_kernel(tmp_path: Path) -> None:
    """Door fault 14."""
    path = Path(f"\0smq-test-{os.getpid()}")  # No directory guards an abstract name.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        program = [sys.executable, "-c", CONNECTING.replace("sys.argv[1]", repr(str(path)))]
        with subprocess.Popen([*program, "", str(NOBODY)], cwd=tmp_path) as client:
            sock, _ = listener.accept()
            with sock:
                assert peer_of(sock) == (client.pid, NOBODY)
                assert not is_ours(sock)
                with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
                    check_ours(sock)
