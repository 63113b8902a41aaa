"""What this machine and this user offer: cores, memory, directories.

A container's limits count, not the host's size: the control group says what may be used.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from smq.model.config import Machine

_CGROUPS = Path("/sys/fs/cgroup")


def this_machine(environment: Mapping[str, str]) -> Machine:
    """The machine as this process sees it."""
    return Machine(
        cores=_cores(_CGROUPS),
        memory_bytes=min([psutil.virtual_memory().total, *_memory_limits_bytes(_CGROUPS)]),
        data_home=_data_home(environment),
        runtime_home=_runtime_home(environment),
    )


def _data_home(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "smq"


def _runtime_home(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_RUNTIME_DIR")
    # Short by need: the path of a unix socket has at most 107 bytes.
    return Path(base) / "smq" if base else Path(f"/tmp/smq-{os.getuid()}")  # noqa: S108


def _memory_limits_bytes(cgroups: Path) -> list[int]:
    """The limits of a version 2 and of a version 1 control group, where there are any."""
    texts = (_text(cgroups / "memory.max"), _text(cgroups / "memory/memory.limit_in_bytes"))
    return [int(text) for text in texts if text.isdigit()]


def _cores(cgroups: Path) -> int:
    """Cores we may run on, and no more than the quota of the control group."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = _text(cgroups / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
