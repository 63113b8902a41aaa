"""The memory in which a pass of compaction outlives its worker."""

import os
from contextlib import suppress

import pytest

from smq.app.sealer.pass_memory import SharedPassMemory

SLOTS = 1 << 10


class Killed(BaseException):
    """The worker dies between two system calls."""


def test_the_next_worker_finds_the_place_and_the_table() -> None:
    memory = SharedPassMemory()
    assert memory.place() == b""
    pid = os.fork()
    if pid == 0:
        memory.begin(SLOTS)
        memory.table(SLOTS)[7, 2] = 9
        memory.note(b"a longer place")
        memory.note(b"a place")
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory.place() == b"a place"
    assert memory.table(SLOTS).sum() == memory.table(SLOTS)[7, 2] == 9


def test_a_pass_begins_with_an_empty_table_and_no_place() -> None:
    memory = SharedPassMemory()
    memory.begin(2 * SLOTS)
    memory.table(2 * SLOTS)[:] = 1
    memory.note(b"a place")
    memory.begin(SLOTS)
    assert memory.place() == b""
    assert memory.table(SLOTS).sum() == 0


def test_the_end_of_a_pass_gives_the_memory_back() -> None:
    memory = SharedPassMemory()
    memory.begin(SLOTS)
    memory.note(b"a place")
    memory.clear()
    assert os.fstat(memory._fd).st_size == 0
    assert memory.place() == b""


@pytest.mark.parametrize("calls", range(4))
def test_a_place_that_was_half_written_is_none(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    memory, pwrite = SharedPassMemory(), os.pwrite
    memory.begin(SLOTS)
    memory.note(b"before")
    left = [calls]

    def dying(fd: int, data: bytes, at: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return pwrite(fd, data, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", dying)
        with suppress(Killed):
            memory.note(b"after")
    assert memory.place() == (b"before", b"", b"", b"after")[calls]
