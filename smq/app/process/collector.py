"""Configures Python's cycle collector for a process whose loop must not wait for it.

By default the collector sometimes examines all objects of the process: with large state that takes
a tenth of a second. Objects without cycles are freed by their reference counts, and all long-lived
state is without cycles (tests check it). Cycles arise from exceptions and callbacks, and die young.
"""

import gc

YOUNG = 10_000  # So many objects are looked at at once, in about a millisecond.
NEVER = 2**31 - 1
_USUAL = gc.get_threshold()


def collect_only_young() -> None:
    """From now on collect cycles only among what was made lately, a bounded number at once."""
    gc.collect()
    gc.set_threshold(YOUNG, NEVER, NEVER)


def collect_as_usual() -> None:
    """Collect cycles of any age: for a forked process, whose libraries make cycles that live long,
    and nobody waits for it in milliseconds."""
    gc.set_threshold(*_USUAL)


def collect_all() -> None:
    """Collect cycles among all that this process has made: much of it was dropped at once.

    What it shares with the supervisor is frozen.
    """
    gc.collect()
