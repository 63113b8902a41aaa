"""The lives of the broker's processes: they start, die one by one or all at once, start again."""

from smq.app.process.inheritance import COORDINATOR, SEALER, shard_name
from smq.testing.simulation.disk import Killed
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.processes import CoordinatorProcess, Ends, ShardProcess, SimProcess
from smq.testing.simulation.scheduler import Scheduler
from smq.testing.simulation.sealer import SealerProcess

RESTART_MS_MAX = 30  # After a death.
COPIES_SHARE = 0.2  # Of starts that cannot read: then somebody looks after the disks.


class Lives:
    """The processes of one simulation. `next_fuse`: of the next shard that starts; -1: none."""

    def __init__(self, world: Environment, scheduler: Scheduler) -> None:
        self._world, self._host, self._processes = world, world.host, world.processes
        self._scheduler = scheduler
        self.next_fuse = -1

    def light(self, name: str, fuse: int, ends: Ends) -> None:
        """Make a process die after this many system calls; `ends` happens with it."""
        process = self._processes[name]
        if fuse == 0:
            ends(name)
        else:
            process.fuse, process.ends = fuse, ends

    def extinguish(self) -> None:
        """No process dies as planned."""
        self.next_fuse = -1
        for process in self._processes.values():
            process.fuse = None

    def kill(self, name: str) -> None:
        """Kill a process; its successor starts soon."""
        self._world.say(f"{name} is killed{self._amid()}")
        self._bury(name)
        self._restart_soon(name)

    def _bury(self, name: str) -> None:
        self._processes.pop(name).release()
        self._scheduler.thaw(name)

    def _amid(self) -> str:
        """What a death interrupts, in words."""
        at_work = {each for process in self._processes.values() for each in process.at_work()}
        return f" amid {', '.join(sorted(at_work))}" if at_work else ""

    def _restart_soon(self, name: str) -> None:
        boot = self._host.inheritance

        def start() -> None:
            if self._host.inheritance is boot and self._host.is_up:
                self._start_process(name)

        self._scheduler.after(self._world.chance.random() * RESTART_MS_MAX, start)

    def go_down(self, shards: int) -> None:
        """All processes die at once and restart soon with `shards` shards (0: the same number)."""
        self._go_down()
        self._world.ledger.lose("memory")
        self._start_soon(shards)

    def lose_power(self, shards: int) -> None:
        """The power fails, and returns soon."""
        self._go_down()
        self._host.lose_power()
        self._world.ledger.lose_power()
        self._start_soon(shards)

    def _go_down(self) -> None:
        self._world.say(f"all processes are killed{self._amid()}")
        for name in list(self._processes):
            self._bury(name)
        self._host.go_down()

    def _start_soon(self, shards: int) -> None:
        wanted = min(shards, self._host.log_count) or self._host.config.shards
        boot = self._host.generation

        def start() -> None:
            if not self._host.is_up and self._host.generation == boot:
                self.start(wanted)

        self._scheduler.after(self._world.chance.random() * RESTART_MS_MAX, start)

    def start(self, shards: int) -> None:
        """Start the host, and all processes on it."""
        self._host.start(shards)
        names = [COORDINATOR, *(shard_name(n) for n in range(1, shards + 1))]
        for name in [*names, SEALER] if self._host.seals else names:
            self._start_process(name)

    def _start_process(self, name: str) -> None:
        host, fuse = self._host, None
        lacks_pages = any(disk.has_bad_pages() for disk in host.disks)
        if self.next_fuse >= 0 and name not in {COORDINATOR, SEALER}:
            fuse, self.next_fuse = self.next_fuse, -1
        try:
            self._processes[name] = self._made(name, fuse)
            self._processes[name].ends = self.kill
        except Killed:
            self._world.say(f"{name} is killed while it starts")
            self._gave_up(name)
        except OSError as reason:
            if not lacks_pages and not any(faults.failing for faults in host.faults):
                raise
            self._world.say(f"{name} cannot start: {reason}")
            if lacks_pages:
                self._perhaps_copy()
            self._gave_up(name)
        else:
            self._world.say(f"{name} starts in generation {host.generation}")

    def _made(self, name: str, fuse: int | None) -> SimProcess:
        host = self._host
        if name == COORDINATOR:
            return CoordinatorProcess(host)
        if name == SEALER:
            return SealerProcess(host, self._scheduler.let_others)
        node_id = int(name.rpartition("-")[2])
        host.take_generation()
        host.set_node(node_id)
        process = ShardProcess(host, node_id, fuse)
        process.fuse = None
        return process

    def _perhaps_copy(self) -> None:
        """Somebody may look after disks that cannot be read."""
        if self._world.chance.random() < COPIES_SHARE:
            for disk in self._host.disks:
                disk.copy_with_zeros()

    def _gave_up(self, name: str) -> None:
        if name not in {COORDINATOR, SEALER}:
            for number, disk in enumerate(self._host.disks):
                if shard_name(self._host.leader_of(number)) == name:
                    disk.drop_descriptors()
                    disk.faults.boot_is_unknown = True
        self._restart_soon(name)
