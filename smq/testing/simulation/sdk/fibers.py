"""The threads of a simulated program: greenlets, one of which runs at a time until it waits.

A program's code blocks: it connects, waits for an answer, a lock, or time to pass. Each such call
waits in `Program.wait`, which lets the rest of the simulation run, and returns on its condition or
timeout. Chance decides which waiting thread continues first.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from greenlet import GreenletExit, getcurrent, greenlet

from smq.testing.simulation.clock import MS
from smq.testing.simulation.environment import Environment

if TYPE_CHECKING:
    from smq.testing.simulation.network import SimulatedSocket

SECOND = 1000 * MS


class Fiber(greenlet):
    """A thread of a program. It waits for `is_ready`, until `due_ns`."""

    def __init__(self, program: "Program", work: Callable[[], object]) -> None:
        super().__init__(self._run, parent=program.hub)  # Where it continues when it ends.
        self.program, self._work = program, work
        self.is_ready: Callable[[], bool] = lambda: True
        self.due_ns: int | None = None

    def _run(self) -> None:
        try:
            self._work()
        except GreenletExit:
            pass
        except BaseException as reason:  # noqa: BLE001  (The simulation raises it in its own turn.)
            self.program.failure = self.program.failure or reason


def current() -> Fiber | None:
    """The running thread; None while the simulation itself runs."""
    found = getcurrent()
    return found if isinstance(found, Fiber) else None


class Program:
    """A program that uses the SDK: the Owner of its sockets, which takes turns like a Client."""

    def __init__(self, world: Environment, name: str) -> None:
        self.world, self.name = world, name
        self.chance = Random(f"{world.seed} program {name}")  # noqa: S311
        self.is_touched = self.is_over = False
        self._wake_ns: int | None = None
        self.failure: BaseException | None = None
        self.sockets: dict[int, SimulatedSocket] = {}
        self.counters: dict[int, int] = {}  # eventfds by descriptor.
        self._fibers: list[Fiber] = []
        self.hub: greenlet = getcurrent()

    def before_call(self, _method: str) -> None:
        """See SocketOwner. Programs never die."""

    # --- for its threads -------------------------------------------------------------------------

    def spawn(self, work: Callable[[], object]) -> Fiber:
        """Create a thread, which starts in a later turn."""
        fiber = Fiber(self, work)
        self._fibers.append(fiber)
        self.is_touched = True
        return fiber

    def wait(self, is_ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Block the running thread; returns whether it was ready in time. Always yields first.

        After the simulation's end it ends the thread.
        """
        fiber = current()
        if fiber is None or self.is_over:  # Cleaning up.
            return True
        now_ns = self.world.clock.now_ns
        fiber.is_ready = is_ready
        fiber.due_ns = None if seconds is None else now_ns + max(0, int(seconds * SECOND))
        self.hub.switch()
        return is_ready()

    # --- turns, as of a Client -------------------------------------------------------------------

    def is_ready(self, now_ns: int) -> bool:
        """Whether a thread can continue."""
        if self.is_touched or (self._wake_ns is not None and self._wake_ns <= now_ns):
            self.is_touched = bool(self._ready(now_ns))
            self._wake_ns = self._next_ns(now_ns)
        return self.is_touched

    def next_due_ns(self) -> int | None:
        """When it may become ready by itself."""
        return self._wake_ns

    def _ready(self, now_ns: int) -> list[Fiber]:
        return [
            each
            for each in self._fibers
            if (each.due_ns is not None and each.due_ns <= now_ns) or each.is_ready()
        ]

    def turn(self) -> None:
        """Run one thread until it waits. Raises the program's exception."""
        ready = self._ready(self.world.clock.now_ns)
        if ready:
            self.hub = getcurrent()
            fiber = self.chance.choice(ready)
            fiber.switch()
            if fiber.dead:
                self._fibers.remove(fiber)
        self.is_touched = True  # Its effects may have made another one ready.
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def _next_ns(self, now_ns: int) -> int | None:
        """The next timeout of a thread or arrival of bytes, from now on."""
        for each in self.sockets.values():
            each.incoming.settle()
        dues: list[int] = [each.due_ns for each in self._fibers if each.due_ns is not None]
        dues += [due for each in self.sockets.values() if (due := each.next_due_ns()) is not None]
        return min((due for due in dues if due > now_ns), default=None)

    def close(self) -> None:
        """End all threads, wherever they wait."""
        self.is_over = True
        while self._fibers:
            self._fibers.pop().throw(GreenletExit)
