"""Kernels that race, for tests of the atomics."""
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201

from shm.kernels.base.atomics import (
    compare_exchange,
    fence,
    fetch_add,
    load_acquire,
    pause,
    store_release,
)
from shm.kernels.base.jit import kernel


@kernel
def meet(words, i):
    """Wait at word i until the other side is here too."""
    fetch_add(words, i, 1)
    while load_acquire(words, i) < 2:
        pass


@kernel
def add_many(words, rounds):
    """Count up word 0, atomically."""
    meet(words, 8)
    for _ in range(rounds):
        fetch_add(words, 0, 1)


@kernel
def exchange_many(words, rounds):
    """Count up word 0 by compare and exchange."""
    meet(words, 8)
    for _ in range(rounds):
        seen = load_acquire(words, 0)
        while compare_exchange(words, 0, seen, seen + 1) != seen:
            seen = load_acquire(words, 0)


@kernel
def race_many(words, rounds):
    """Count up word 0 in two steps, which is wrong."""
    meet(words, 8)
    for _ in range(rounds):
        store_release(words, 0, load_acquire(words, 0) + 1)


@kernel
def send_many(words, rounds):
    """Write word 0, then publish word 16; the partner of receive_many."""
    for i in range(1, rounds + 1):
        words[0] = i
        store_release(words, 16, i)


@kernel
def receive_many(words, rounds):
    """How often word 0 was older than the word 16 that was read before it."""
    stale, seen = 0, 0
    while seen < rounds:
        seen = load_acquire(words, 16)
        if load_acquire(words, 0) < seen:
            stale += 1
    return stale


@kernel
def raise_flags(words, places, seen, rounds, fenced):
    """Dekker's handshake: raise my flag, look at the other's (their places); what was seen."""
    mine, other = places
    for i in range(rounds):
        fetch_add(words, 24, 1)
        while load_acquire(words, 24) < 2 * (i + 1):
            pass
        store_release(words, mine, i + 1)
        if fenced:
            fence()
        seen[i] = load_acquire(words, other) >= i + 1


@kernel
def one_of_each(words):
    """What each operation on word 1 returned, and the word after them."""
    added = fetch_add(words, 1, 5)
    refused = compare_exchange(words, 1, 99, 0)
    taken = compare_exchange(words, 1, refused, -3)
    return added, refused, taken, load_acquire(words, 1)


@kernel
def pause_many(rounds):
    """Pause so many times."""
    for _ in range(rounds):
        pause()
