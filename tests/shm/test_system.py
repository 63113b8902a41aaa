"""What this system lacks; tests/client/test_other_systems.py uses the SDK without it."""

import os
import platform
import subprocess
import sys

import pytest

from shm import system
from shm.system import MACHINE, MACHINES, at_fork, why_wire_only


def test_here_nothing_is_missing() -> None:
    assert why_wire_only() == ""
    assert platform.machine() == MACHINE
    assert MACHINE in MACHINES


@pytest.mark.parametrize(
    ("name", "machine", "found"),
    [
        ("darwin", "aarch64", "this is darwin,"),
        ("win32", "x86_64", "this is win32,"),
        ("linux", "riscv64", "this is Linux on riscv64,"),
    ],
)
def test_elsewhere_a_sentence_says_what_works(
    monkeypatch: pytest.MonkeyPatch, name: str, machine: str, found: str
) -> None:
    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(system, "MACHINE", machine)
    assert found in why_wire_only()
    assert "need Linux on x86_64 or aarch64" in why_wire_only()
    assert "smq.connect()" in why_wire_only()


@pytest.mark.parametrize(("theirs", "ours"), [("AMD64", "x86_64"), ("arm64", "aarch64")])
def test_processors_have_one_name(theirs: str, ours: str) -> None:
    code = (
        f"import platform; platform.machine = lambda: {theirs!r}\n"
        "import shm.system; print(shm.system.MACHINE)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ours


def test_at_fork_runs_its_functions_in_order() -> None:
    done: list[str] = []
    at_fork(
        before=lambda: done.append("before"),
        after_in_parent=lambda: done.append("parent"),
        after_in_child=lambda: done.append("child"),
    )
    pid = os.fork()
    if pid == 0:
        os._exit(0 if done == ["before", "child"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert done == ["before", "parent"]


def test_where_no_process_forks_nothing_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(os, "register_at_fork")
    at_fork(after_in_child=lambda: None)
