"""The resources of this machine and user: cores, memory, directories; and releasing memory.

A container's limits count, not the host's size: they are read from the control group.
"""

import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from smq.model.config_sources import Machine

# Per process, beside client connections: WAL segments, sockets, cold reads.
DESCRIPTORS_OF_OURS = 4096

_CGROUPS = Path("/sys/fs/cgroup")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OWN_CGROUP = Path("/proc/self/cgroup")
_MEMORY = Path("/proc/meminfo")
_LIBC = ctypes.CDLL(None)


def boot_id() -> bytes:
    """16 characters that change with each boot of this machine."""
    return _BOOT_ID.read_text().strip().replace("-", "")[:16].encode()


def this_machine(environment: Mapping[str, str]) -> Machine:
    """The machine as this process sees it."""
    groups = own_groups(_CGROUPS, _text(_OWN_CGROUP))
    return Machine(
        cores=min([len(os.sched_getaffinity(0)), *_core_limits(groups)]),
        memory_bytes=min([_memory_bytes(_text(_MEMORY)), *_memory_limits_bytes(groups)]),
        data_home=_data_home(environment),
        runtime_home=_runtime_home(environment),
    )


def _data_home(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "smq"


def _runtime_home(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_RUNTIME_DIR")
    # Must be short: the path of a unix socket has at most 107 bytes.
    return Path(base) / "smq" if base else Path(f"/tmp/smq-{os.getuid()}")  # noqa: S108


def own_groups(root: Path, own: str) -> list[Path]:
    """This process's control groups up to the root; all limits apply. `own`: /proc/self/cgroup."""
    paths = [Path(line.split(":", 2)[2].lstrip("/")) for line in own.splitlines() if "::" in line]
    groups = {root / each for path in paths for each in (path, *path.parents)}
    return sorted(groups | {root, root / "memory"})  # The last one is version 1.


def _memory_bytes(facts: str) -> int:
    """The memory that /proc/meminfo says. In a container of LXC only that knows its limit: the
    groups above its own are not shown, and sysconf() asks the kernel."""
    found = dict(line.split(":", 1) for line in facts.splitlines())
    if total := found.get("MemTotal", "").removesuffix("kB").strip():
        return int(total) * 1024
    return os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def _memory_limits_bytes(groups: list[Path]) -> list[int]:
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [_text(group / name) for group in groups for name in names]
    return [int(text) for text in texts if text.isdigit()]


def _core_limits(groups: list[Path]) -> list[int]:
    """Whole cores within the quota, at least one."""
    limits = []
    for group in groups:
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(max(1, int(quota) // int(period)))
    return limits


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def give_back_code(library: str) -> None:
    """Release the memory of a library's code in this process.

    Running the code reads it from the file again. Code is never written, so nothing is lost; the
    library's data may have been written, and stays.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, permissions, *_, name = line.split()
        if permissions == "r-xp" and Path(name).name.startswith(library):
            start, end = (int(each, 16) for each in places.split("-"))
            _LIBC.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def room_for_logs(directory: Path) -> int:
    """The disk space that the logs in a directory occupy, plus the free space."""
    files = (path.stat() for path in directory.glob("*/*") if path.is_file())
    there = next(each for each in (directory, *directory.parents) if each.exists())
    found = os.statvfs(there)
    return found.f_bavail * found.f_frsize + sum(each.st_size for each in files)


def room_for(connections: int) -> int:
    """Raise the descriptor limit as far as the user may; returns how many clients may connect.

    The rest stays reserved for the log, which would fail without.
    """
    wanted = connections + DESCRIPTORS_OF_OURS
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    room = min(connections, max(1, limit - min(DESCRIPTORS_OF_OURS, limit // 2)))
    if room < connections:
        sys.stderr.write(
            f"this user may open {hard} files a process: a shard takes {room} connections only\n"
        )
    return room
