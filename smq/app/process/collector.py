"""Python's collector of cycles, in a process whose loop must not wait for it.

It looks at all that the process holds from time to time: with large state for a tenth of a second.
Reference counts free what has no cycles, which is so of all that lives for long (the tests of what
a process holds say so). Cycles come of exceptions and callbacks, and die young.
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
