"""The composition root: assembles the broker from its processes and its kernels.

The only module that imports all of them, so the only one that is slow to import.
"""

import fcntl
import gc
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shm.kernels.base.jit import SHIPPED, SOURCES, cache_directory
from shm.warm.shard import warm, warm_rest, warm_turns
from smq.app.coordinator.main import coordinator_main
from smq.app.front.main import front_main
from smq.app.process.clock import monotonic_ms
from smq.app.sealer.main import sealer_main
from smq.app.shard.main import shard_main
from smq.app.supervisor.serve import say, serve
from smq.app.supervisor.supervisor import Mains
from smq.model.config import Config
from smq.model.config_sources import Machine


def complete_mark() -> Path:
    """The file that marks a complete cache of this installation's kernels.

    Numba stores a kernel under its source's path, and treats it as stale if the source's time has
    changed: another environment, or the same version reinstalled, compiles again.
    """
    digest = hashlib.sha256()
    for source in sorted(SOURCES.rglob("*.py")):
        digest.update(f"{source} {source.stat().st_mtime_ns}\n".encode())
    return cache_directory() / f"complete-{digest.hexdigest()[:16]}"


def serve_broker(config: Config, machine: Machine) -> int:
    """Serve until a signal stops us; returns the exit code."""
    mains = Mains(shard_main, coordinator_main, sealer_main, front_main)
    return serve(config, machine.memory_bytes, mains, warm_kernels)


def warm_kernels() -> None:
    """Load the kernels. Compile and announce them if this machine never has, as it takes a while.

    The garbage collector is off: both create very many objects and keep most of them.
    """
    gc.disable()
    started_ms = monotonic_ms()
    complete = complete_mark()
    if complete.exists() or (SHIPPED and SHIPPED.whole()):
        warm()
    else:
        say("compiling the kernels, once on this machine …")
        with _alone(complete.parent):
            if not complete.exists():  # Another process may have compiled meanwhile.
                _compile_by_two()
            warm()
            complete.touch()
        say(f"the kernels are compiled, in {(monotonic_ms() - started_ms) / 1000:.1f} s")
    gc.enable()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """A lock between compiling processes: Numba may give two versions of a kernel one file."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _compile_by_two() -> None:
    """Fill the cache with two processes. Loading compiles what they could not."""
    # A broker calls no client kernels: it compiles them without loading them.
    from shm.warm.client import warm_client  # noqa: PLC0415
    from shm.warm.reader import warm_reader  # noqa: PLC0415

    helper = os.fork()
    if not helper:
        try:
            warm_rest()
            warm_client()
            warm_reader()
        finally:
            os._exit(0)
    warm_turns()
    os.waitpid(helper, 0)
