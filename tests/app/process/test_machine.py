"""Limits of containers, as files of control groups say them."""

import os
import resource
from pathlib import Path

import pytest
from llvmlite import binding

from smq.app.process import machine
from smq.app.process.machine import (
    _core_limits,
    _memory_limits_bytes,
    give_back_code,
    own_groups,
    room_for_logs,
    this_machine,
)


def test_the_machine_has_cores_memory_and_directories() -> None:
    machine = this_machine({"XDG_DATA_HOME": "/d", "XDG_RUNTIME_DIR": "/r"})
    assert machine.cores >= 1
    assert machine.memory_bytes > 0
    assert (machine.data_home, machine.runtime_home) == (Path("/d/smq"), Path("/r/smq"))


def test_the_memory_of_a_container_of_lxc_is_what_its_meminfo_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = tmp_path / "meminfo"
    monkeypatch.setattr(machine, "_MEMORY", facts)
    facts.write_text(
        "MemTotal:        1024 kB\nMemFree:          100 kB\nHugePages_Total:       0\n"
    )
    assert this_machine({}).memory_bytes == 1 << 20
    facts.unlink()
    assert this_machine({}).memory_bytes > 1 << 20


def test_without_xdg_the_runtime_directory_is_the_users_own_and_short() -> None:
    assert str(this_machine({}).runtime_home).startswith("/tmp/smq-")


@pytest.mark.parametrize(("text", "limits"), [("max\n", []), ("1048576\n", [1048576])])
def test_the_memory_of_a_version_2_group_counts(
    tmp_path: Path, text: str, limits: list[int]
) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert _memory_limits_bytes([tmp_path]) == limits


def test_the_memory_of_a_version_1_group_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text("4096\n")
    assert _memory_limits_bytes([tmp_path]) == [4096]


def test_the_limits_of_every_group_above_ours_hold() -> None:
    root = Path("/sys/fs/cgroup")
    groups = own_groups(root, "1:cpu:/old\n0::/user.slice/smq.scope\n")
    assert groups == [root, root / "memory", root / "user.slice", root / "user.slice/smq.scope"]
    assert own_groups(root, "0::/\n") == [root, root / "memory"]


def test_half_a_core_is_one_and_no_quota_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert _core_limits([tmp_path]) == [1]
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert _core_limits([tmp_path]) == []


def code_kib(library: str) -> int:
    """What this process has of a library's code."""
    total, counted = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            counted = library in line and "r-xp" in line
        elif counted and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def test_code_that_was_given_back_runs_as_before() -> None:
    version = binding.llvm_version_info
    binding.parse_assembly("define i32 @one() { ret i32 1 }").verify()
    before = code_kib("libllvmlite")
    give_back_code("libllvmlite")
    assert code_kib("libllvmlite") < before / 2
    binding.parse_assembly("define i32 @two() { ret i32 2 }").verify()
    assert binding.llvm_version_info == version


def test_the_logs_may_have_what_they_have_and_what_is_free(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    assert room_for_logs(logs) > 0  # Nothing is there yet.
    (logs / "0").mkdir(parents=True)
    with (logs / "0" / "0.wal").open("wb") as file:
        file.truncate(1 << 42)  # It takes no space.
    assert room_for_logs(logs) > 1 << 42


def test_a_process_may_open_files_for_its_clients_and_for_its_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert machine.room_for(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100 + machine.DESCRIPTORS_OF_OURS
        assert not capsys.readouterr().err
        room = machine.room_for(2**40)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard == before[1]
        assert hard - machine.DESCRIPTORS_OF_OURS <= room < hard
        said = f"may open {hard} files a process: a shard takes {room} connections only"
        assert said in capsys.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_few_descriptors_are_shared_between_clients_and_the_log() -> None:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))
        os._exit(machine.room_for(10_000) == 300)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
