"""What a process gives up before it reads bytes that it does not trust; it needs Linux."""

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KiB = 1024
_PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h


def confine(more_bytes: int) -> None:
    """Take no new privileges, dump no core, allocate at most `more_bytes` more.

    Call it after the imports: their memory is not counted. Beyond the limit an allocation fails,
    or kills the process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound = _allocated_bytes() + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


@contextmanager
def memory_limited(more_bytes: int) -> Iterator[None]:
    """Let allocations fail that go `more_bytes` beyond what there is, within the block."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_allocated_bytes() + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _allocated_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return KiB * next(int(line.split()[1]) for line in status.splitlines() if "VmData:" in line)
