"""A watch list is published whole: a reader of its version sees the list."""

import os
import re
from collections.abc import Iterator
from threading import Thread
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.session import words
from shm.kernels.session.watch import publish_watch, watch_version
from shm.kernels.twin.session import watch_list, watched
from shm.session import SessionMemory

INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def shard() -> Iterator[SessionMemory]:
    memory = SessionMemory.create(4096, 4096)
    yield memory
    os.close(memory.fd)


@settings(max_examples=100, deadline=None)
@given(st.sets(INT64, max_size=30) | st.integers(0, 5000).map(lambda count: set(range(count))))
def test_the_shard_reads_what_the_twin_reads(numbers: set[int]) -> None:
    shard = SessionMemory.create(4096, 4096)
    client = SessionMemory.attach(shard.fd)
    os.close(shard.fd)
    client.watch(numbers)
    count, listed = watch_list(numbers)
    assert shard.words[words.WATCH_COUNT] == count
    assert shard._watch[: len(listed)].tolist() == listed
    assert shard.watch_has_changed()
    assert shard.watched() == watched(count, listed)
    assert not shard.watch_has_changed()


def test_each_list_has_a_version_of_its_own(shard: SessionMemory) -> None:
    versions = [publish_watch(shard.memory, np.array([7]), 1) for _ in range(3)]
    assert versions == [1, 2, 3]
    assert watch_version(shard.memory) == 3


def machine_code(kernel: Any, *arguments: Any) -> str:
    """What LLVM is given for a kernel: compiled anew, for a cached one does not say."""
    options: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
    compiled: Any = numba.njit(**options)(kernel.py_func)
    compiled(*arguments)
    return "".join(compiled.inspect_llvm().values())


def test_the_version_is_stored_with_release_and_loaded_with_acquire(shard: SessionMemory) -> None:
    stored = machine_code(publish_watch, shard.memory, np.array([7]), 1)
    assert re.search(r"store atomic i64 .* release, align 8", stored)
    loaded = machine_code(watch_version, shard.memory)
    assert re.search(r"load atomic i64, .* acquire, align 8", loaded)


def test_a_reader_never_sees_a_version_before_its_list(shard: SessionMemory) -> None:
    client = SessionMemory.attach(shard.fd)
    rounds = 2000

    def write() -> None:
        for i in range(1, rounds + 1):
            client.watch([i, i + rounds])

    writer = Thread(target=write)
    writer.start()
    seen = 0
    while seen < rounds:
        if shard.watch_has_changed():
            numbers = shard.watched()
            seen = int(shard.side[words.WATCH_SEEN])
            assert numbers is not None
            assert min(numbers) >= seen, "a list that is older than its version"
    writer.join()
