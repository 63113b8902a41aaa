"""The composition root: here the broker is put together from its processes and its kernels.

The only module that imports all of them, so the only one that is slow to import.
"""

import gc
import os

from shm.kernels.jit import cache_directory
from shm.kernels.warm import warm, warm_rest, warm_turns
from shm.kernels.warm_client import warm_client
from shm.kernels.warm_reader import warm_reader
from smq.app.clock import monotonic_ms
from smq.app.coordinator_process import coordinator_main
from smq.app.front_process import front_main
from smq.app.sealer_process import sealer_main
from smq.app.serve import say, serve
from smq.app.shard_process import shard_main
from smq.app.supervisor import Mains
from smq.model.config import Config, Machine


def serve_broker(config: Config, machine: Machine) -> int:
    """Serve until a signal stops us; returns the exit code."""
    mains = Mains(shard_main, coordinator_main, sealer_main, front_main)
    return serve(config, machine.memory_bytes, mains, warm_kernels)


def warm_kernels() -> None:
    """Load the kernels; compile them if this machine never has, and say so: it takes a while.

    Without the collector: both make very many objects, and keep most of them.
    """
    gc.disable()
    started_ms = monotonic_ms()
    first_time = not any(cache_directory().rglob("*.nbi"))
    if first_time:
        say("compiling the kernels, once on this machine …")
        _compile_by_two()
    warm()
    if first_time:
        say(f"the kernels are compiled, in {(monotonic_ms() - started_ms) / 1000:.1f} s")
    gc.enable()


def _compile_by_two() -> None:
    """Fill the cache with two processes; what one of them could not do, loading does."""
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
