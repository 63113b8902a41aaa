"""Whose turn it is: processes, threads, clients and planned actions, in random order, and the time
that passes meanwhile."""

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from smq.testing.simulation.clients import SimClient
from smq.testing.simulation.clock import MS
from smq.testing.simulation.disk import Killed
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.processes import SimProcess
from smq.testing.simulation.sdk.programs import SdkProgram

Participant: TypeAlias = SimClient | SdkProgram

PAUSES_SHARE, PAUSE_MS_MAX = 0.03, 5.0  # After a turn the process may lose the CPU.
ROUNDS_MAX = 1_000_000
HEALED_ROUNDS = 8  # Between two checks when nothing is disturbed any more: reading takes long.


class Scheduler:
    """The order of one simulation. `asserts`: check the processes' invariants."""

    def __init__(self, world: Environment, clients: Sequence[Participant]) -> None:
        self._world, self._clients = world, clients
        self._clock, self._chance, self._processes = world.clock, world.chance, world.processes
        self._later: list[tuple[int, int, Callable[[], object]]] = []
        self._tie_breaker = count()
        self._frozen: dict[str, int] = {}  # By a process's name: until when.
        self._is_healed = False
        self.asserts = True
        self.rounds = 0

    def after(self, ms: float, action: Callable[[], object]) -> None:
        """Run an action after this time."""
        due_ns = self._clock.now_ns + int(ms * MS)
        heapq.heappush(self._later, (due_ns, next(self._tie_breaker), action))

    def after_unless_healed(self, ms: float, action: Callable[[], object]) -> None:
        """Run an action after this time, unless all is healed by then."""
        self.after(ms, lambda: self._is_healed or action())

    def heal(self) -> None:
        """Nobody is disturbed any more."""
        self._is_healed = True
        self._frozen.clear()

    def freeze(self, name: str, ms: float) -> None:
        """Give a process no CPU time for a while."""
        self._processes[name].stands_still()
        self._pause(name, ms)
        self._world.disturb(ms)

    def _pause(self, name: str, ms: float) -> None:
        self._frozen[name] = max(self._frozen.get(name, 0), self._clock.now_ns + int(ms * MS))

    def thaw(self, name: str) -> None:
        """A process has died: its successor is not frozen."""
        self._frozen.pop(name, None)

    def let_pass(self, ms: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        end_ns = self._clock.now_ns + int(ms * MS)
        while self._clock.now_ns < end_ns and not until():
            self._round(end_ns)

    def let_others(self, until_ns: int) -> None:
        """Give others a turn while a blocking call waits, until then at most."""
        self._round(max(until_ns, self._clock.now_ns + 1))

    def _round(self, end_ns: int) -> None:
        """Let some ready participants act; without any, advance the clock until one is ready."""
        now_ns, chance = self._clock.now_ns, self._chance
        self.rounds += 1
        if self.rounds > ROUNDS_MAX:
            raise Broken("some work never ends")
        while self._later and self._later[0][0] <= now_ns:
            heapq.heappop(self._later)[2]()
        has_moved = self._let_processes(now_ns)
        for client in self._clients:
            if client.is_ready(now_ns):
                has_moved = True
                if chance.random() < 0.9:
                    client.turn()
        if has_moved:
            self._clock.now_ns += chance.randint(1000, 50_000)
        else:
            self._clock.now_ns = min(end_ns, max(now_ns + 1000, self._next_due_ns()))

    def _let_processes(self, now_ns: int) -> bool:
        """Let all processes act in random order; returns whether any could."""
        names = list(self._processes)
        self._chance.shuffle(names)
        has_moved = False
        for name in names:
            process = self._processes.get(name)
            if process is not None and self._frozen.get(name, 0) <= now_ns:
                has_moved |= self._let(process, now_ns)
        return has_moved

    def _let(self, process: SimProcess, now_ns: int) -> bool:
        """Let one process act; returns whether it could."""
        self._run(process, lambda: process.step_threads(now_ns))
        if self._processes.get(process.name) is not process or not process.is_ready(now_ns):
            return False
        if self._chance.random() < 0.85:
            self._run(process, process.turn)
            is_checked = self.asserts and not (self._is_healed and self.rounds % HEALED_ROUNDS)
            if is_checked and self._processes.get(process.name) is process:
                process.invariants()
                self._world.check_leaders(process)
            if self._chance.random() < PAUSES_SHARE:
                self._pause(process.name, self._chance.random() * PAUSE_MS_MAX)
        return True

    def _run(self, process: SimProcess, action: Callable[[], None]) -> None:
        """Run a process's code, which may kill it as planned."""
        try:
            action()
        except Killed:
            if self._processes.get(process.name) is process:
                process.ends(process.name)

    def _next_due_ns(self) -> int:
        dues = [self._later[0][0]] if self._later else []
        for name, process in self._processes.items():
            due_ns = process.next_due_ns()
            if due_ns is not None:
                dues.append(max(due_ns, self._frozen.get(name, 0)))
        dues += [due for each in self._clients if (due := each.next_due_ns()) is not None]
        return min(dues, default=1 << 62)
