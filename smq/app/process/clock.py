"""The clock of the broker's processes and of the command line; the SDK's is smq.client.clock.

Only these two files read the system's clocks or sleep: a linter checks it, except in tests, bench
and smq.testing. Kernels read them through shm.kernels.base.libc. Code below `smq.app` does not
import this file: it takes the time, or a function that returns it, as an argument.

    wall_ms        for people, and where Kafka defines something by it: records' times, retention.
                   It may be set at any time, by seconds or by years
    monotonic_ms   for ages and deadlines (`now_ms` in arguments): the time line of the data
                   directory, which continues over restarts (smq.app.supervisor.timeline)
    monotonic_ns   for durations. It starts at boot
    cpu_ms         the processor's time of this process, as a measure of its load
    awake_ms       for turns of a process that may starve: the time it waits for a core is no part

The simulator replaces both system clocks for a block of code (`replaced`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from smq.model.now import Now

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


def _read_starved_ns() -> int:
    try:
        return int(_SCHEDSTAT.read_text().split()[1])
    except OSError:  # Not every kernel counts it.
        return 0


_wall_ns: Callable[[], int] = time.time_ns
_monotonic_ns: Callable[[], int] = time.monotonic_ns
_cpu_ns: Callable[[], int] = time.process_time_ns
_starved_ns: Callable[[], int] = _read_starved_ns
_ahead_ms = 0


def wall_ms() -> int:
    """Milliseconds since 1970, like Kafka's timestamps."""
    return _wall_ns() // 1_000_000


def monotonic_ns() -> int:
    """Monotonic nanoseconds from an arbitrary start."""
    return _monotonic_ns()


def monotonic_ms() -> int:
    """Monotonic milliseconds on the time line, if one was begun, or from an arbitrary start."""
    return _monotonic_ns() // 1_000_000 + _ahead_ms


def cpu_ms() -> int:
    """Milliseconds of the processor's time that this process has used."""
    return _cpu_ns() // 1_000_000


def awake_ms() -> int:
    """Monotonic milliseconds without those in which this thread was ready and had no core."""
    return (_monotonic_ns() - _starved_ns()) // 1_000_000


def now() -> Now:
    """Both clocks."""
    return Now(monotonic_ms(), wall_ms())


def ahead_ms() -> int:
    """How far the time line is ahead of the system's monotonic clock, which kernels read."""
    return _ahead_ms


def begin_at(now_ms: int) -> None:
    """Begin a time line: it is `now_ms` now, here and in every later fork."""
    global _ahead_ms  # noqa: PLW0603  (A process has one clock.)
    _ahead_ms = now_ms - _monotonic_ns() // 1_000_000


def sleep(seconds: float) -> None:
    """Return when this much time has passed."""
    time.sleep(seconds)


@contextmanager
def replaced(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Iterator[None]:
    """Use these clocks within the block, and no time line from before it."""
    global _wall_ns, _monotonic_ns, _cpu_ns, _starved_ns, _ahead_ms
    before = _wall_ns, _monotonic_ns, _cpu_ns, _starved_ns, _ahead_ms
    replacements = wall_ns, monotonic_ns, _nothing, _nothing, 0
    _wall_ns, _monotonic_ns, _cpu_ns, _starved_ns, _ahead_ms = replacements
    try:
        yield
    finally:
        _wall_ns, _monotonic_ns, _cpu_ns, _starved_ns, _ahead_ms = before


def _nothing() -> int:
    """A simulated process waits for no core, and uses none."""
    return 0
