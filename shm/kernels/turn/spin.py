"""Decides whether to spin before sleeping, learning from past success.

Waking a sleeping process costs more than a small request, often several times as much. Spinning
pays if a client asks again at once; a process that spins in vain stops doing so for
SPIN_PAUSE_TURNS. An idle process has no turns and never spins. Nor does one on a single core, which
its client needs.

    spin      int64: credit, which grows with success; turns left without trying, -1: for ever
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.system import core_count

SPIN_MAX_NS = 30_000  # About the cost of falling asleep and being woken.
SPIN_SESSION_NS = 100_000  # For programs on this host: waking two of them, and some work.
SPIN_SYNC_NS = 250_000  # For waits on a disk: the time of a good one, plus a wake-up.
SPIN_CREDIT_MAX, SPIN_LOSS = 16, 2  # Two of three must succeed.
SPIN_PAUSE_TURNS = 100
_CREDIT, _PAUSE = 0, 1


def new_spin() -> np.ndarray:
    """The state of a process that has not tried yet."""
    return np.array([SPIN_CREDIT_MAX, 0 if core_count() > 1 else -1])


@kernel
def may_spin(spin):
    """Whether to spin; ask once after each turn."""
    if spin[_PAUSE] > 0:
        spin[_PAUSE] -= 1
        return False
    return spin[_PAUSE] == 0


@kernel
def note_spin(spin, has_come):
    """Record whether spinning brought anything."""
    gain = 1 if has_come else -SPIN_LOSS
    spin[_CREDIT] = min(SPIN_CREDIT_MAX, spin[_CREDIT] + gain)
    if spin[_CREDIT] <= 0:
        spin[_CREDIT], spin[_PAUSE] = 1, SPIN_PAUSE_TURNS
