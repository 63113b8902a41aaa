"""What a process gives up before it reads bytes that it does not trust."""

import ctypes
import resource
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
    status = Path("/proc/self/status").read_text()
    now_kib = next(int(line.split()[1]) for line in status.splitlines() if "VmData:" in line)
    bound = now_kib * KiB + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
