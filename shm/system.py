"""What this system is, and what it lacks: the one place that knows where SMQ's parts work.

The SDK works over the wire wherever Python, NumPy and Numba do. Brokers and shared memory need
Linux, on a processor whose system calls the kernels know.
"""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from threading import RLock

# The processor, by Linux's name for it; macOS and Windows have names of their own.
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(
    platform.machine(), platform.machine()
)
MACHINES = ("x86_64", "aarch64")  # Whose atomic instructions and system calls the kernels know.


def why_wire_only() -> str:
    """Why neither brokers nor shared memory work on this system: a sentence; empty if they do."""
    if sys.platform == "linux" and MACHINE in MACHINES:
        return ""
    found = f"Linux on {MACHINE}" if sys.platform == "linux" else sys.platform
    return (
        f"SMQ's broker and shared memory need Linux on {' or '.join(MACHINES)}; this is {found}, "
        "from which smq.connect() and any Kafka client reach a broker by its address host:port"
    )


def variables() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def core_count() -> int:
    """How many cores this process may use; 1 where the system does not say."""
    count = 1
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    return count


def _nothing() -> None:
    pass


def at_fork(
    *,
    before: Callable[[], object] = _nothing,
    after_in_parent: Callable[[], object] = _nothing,
    after_in_child: Callable[[], object],
) -> None:
    """See os.register_at_fork. Where no process forks, nothing is registered."""
    if sys.platform != "win32":
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )


def new_lock() -> RLock:
    """A lock that its holder may take again."""
    return RLock()
