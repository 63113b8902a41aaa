"""The composition root: assembles the broker from its processes and its kernels.

The only module that imports all of them, so the only one that is slow to import.
"""

from shm.kernels.base import jit
from smq.app.agent.main import agent_main
from smq.app.coordinator.main import coordinator_main
from smq.app.front.main import front_main
from smq.app.sealer.main import sealer_main
from smq.app.shard.main import shard_main
from smq.app.supervisor.serve import say, serve
from smq.app.supervisor.supervisor import Mains
from smq.model.config import Config
from smq.model.config_sources import Machine


def serve_broker(config: Config, machine: Machine) -> int:
    """Serve until a signal stops us; returns the exit code."""
    mains = Mains(shard_main, coordinator_main, sealer_main, front_main, agent_main)
    return serve(config, machine.memory_bytes, mains, warm_kernels)


def warm_kernels() -> None:
    """Have the kernels ready: nothing is to be done where they are linked."""
    for problem in jit.PROBLEMS:
        say(problem)
    if jit.LIBRARY is None:
        from smq.app.supervisor.kernels import warm_kernels as load  # noqa: PLC0415  (with Numba)

        load()
